"""Starts the agent that carries a program's connections to a `grpc:` server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.session.detach import serve_beside
from rgpu_client.session.folders import private_folder
from rgpu_client.settings import configured_server
from rgpu_common.credentials import configured_access_token
from rgpu_common.endpoints import GrpcEndpoint, UcxEndpoint, UnixEndpoint, parse_endpoint
from rgpu_common.errors import RgpuError, UsageError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import BinaryIO

    from rgpu_common.endpoints import Endpoint

# The server that the agent at RGPU_SERVER reaches.
TUNNEL = "RGPU_TUNNEL"
AGENT_LOG = "RGPU_AGENT_LOG"
TLS_FILES = ("RGPU_TLS_CA", "RGPU_TLS_CERT", "RGPU_TLS_KEY")
_BACKLOG = 128
_SOCKET = "agent"


def carried(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` for a program whose server may be a `grpc:` server.

    If so, this process gets an agent. The agent lives as long as this process, also after this
    process executes another program.

    Raises:
        RgpuError: the agent cannot be started.
    """
    server = configured_server(None, environment)
    if not isinstance(server, GrpcEndpoint):
        return dict(environment)
    path = start_agent(server, environment)
    return {**environment, "RGPU_SERVER": f"unix:{path}", TUNNEL: str(server)}


def same_agent(environment: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` with the agent of `current`, if that agent reaches the server asked
    for.
    """
    server, agent = environment.get("RGPU_SERVER", ""), current.get("RGPU_SERVER", "")
    runs = bool(current.get(TUNNEL)) and Path(agent.removeprefix("unix:")).is_socket()
    if runs and agent != server and str(parse_endpoint(server)) == current[TUNNEL]:
        return {**environment, "RGPU_SERVER": agent, TUNNEL: current[TUNNEL]}
    return dict(environment)


def api_server(environment: Mapping[str, str], named: str) -> Endpoint:
    """Returns the server that answers the API: that of the program's path, unless UCX carries the
    path. named: the server as the user named it.
    """
    server, tunnel = configured_server(None, environment), environment.get(TUNNEL)
    if tunnel and isinstance(server, UnixEndpoint) and server.path.endswith(f"/{_SOCKET}"):
        return parse_endpoint(tunnel)
    return parse_endpoint(named) if isinstance(server, UcxEndpoint) else server


def start_agent(server: GrpcEndpoint, environment: Mapping[str, str]) -> str:
    """Returns the path of a socket that leads to `server`; RgpuError if the agent cannot be
    started.
    """
    import subprocess

    check_files(server, environment)
    try:
        with (
            private_folder("rgpu-agent-", environment) as folder,
            listen(f"{folder}/{_SOCKET}") as listener,
            _log(environment) as log,
        ):
            words = ["--server", str(server)]
            module = "rgpu_client.session.tunnel"
            serve_beside(module, words, listener, environment, log.fileno())
    except (OSError, subprocess.SubprocessError) as error:
        raise RgpuError(f"the agent for {server} cannot be started: {error}") from None
    return f"{folder}/{_SOCKET}"


def _log(environment: Mapping[str, str]) -> BinaryIO:
    """Opens the agent's log.

    Raises:
        UsageError: the file that RGPU_AGENT_LOG names cannot be written.
    """
    file = environment.get(AGENT_LOG) or os.devnull
    try:
        return open(file, "ab")
    except OSError as error:
        raise UsageError(f"{AGENT_LOG}={file} cannot be written: {error.strerror}") from None


def listen(path: str) -> socket.socket:
    """Returns a socket that listens at `path` and that only this user can connect to; OSError."""
    from rgpu_common.unix import bind_unix

    listener = bind_unix(path)
    try:
        os.chmod(path, 0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def check_files(server: GrpcEndpoint, environment: Mapping[str, str]) -> None:
    """Checks the files that the agent will need, because the agent itself cannot report errors.

    Raises:
        UsageError: a file cannot be used.
    """
    for name in (*TLS_FILES, "RGPU_TOKEN_FILE"):
        file = environment.get(name, "")
        if not file or Path(file).is_dir():
            continue
        try:
            with open(file, "rb"):
                pass
        except OSError as error:
            raise UsageError(f"{name}={file} cannot be read: {error.strerror}") from None
    configured_access_token(environment)
    if server.secure:
        # Imported here, so that programs that need no TLS do not load OpenSSL.
        from rgpu_client.session.trust import trust

        trust(environment)
