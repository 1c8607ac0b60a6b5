"""`rgpu agent`, and `rgpu probe` with agents for the paths that need one."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from netprobe.cli import probe_command
from rgpu_client.session.launch import check_files, listen, start_agent
from rgpu_client.settings import configured_server
from rgpu_common.command import OK, Command
from rgpu_common.endpoints import GrpcEndpoint, UnixEndpoint, cannot_listen, parse_endpoint
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    import argparse


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="ADDRESS", help="grpc:HOST:PORT or grpcs:HOST:PORT (or RGPU_SERVER)"
    )
    parser.add_argument(
        "--listen", metavar="unix:/PATH", required=True, help="the socket for programs"
    )


def _run(arguments: argparse.Namespace) -> int:
    server = configured_server(arguments.server, os.environ)
    if not isinstance(server, GrpcEndpoint):
        raise UsageError(f"{server} needs no agent: it is for grpc:HOST:PORT and grpcs:HOST:PORT")
    endpoint = parse_endpoint(arguments.listen)
    if not isinstance(endpoint, UnixEndpoint):
        raise UsageError(f"--listen: {arguments.listen!r} is not unix:/PATH")
    check_files(server, os.environ)
    from rgpu_client.session.tunnel import run

    try:
        listener = listen(endpoint.path)
    except OSError as error:
        raise cannot_listen(endpoint, error) from None
    try:
        # Programs see a local socket, and would not ask for resumption over one by themselves.
        print(f"rgpu: set RGPU_SERVER={endpoint} RGPU_RESUME=1 to reach {server}", flush=True)
        run(server, listener)
    finally:
        with contextlib.suppress(OSError):  # the socket was removed already
            os.unlink(endpoint.path)
    return OK


agent = Command("agent", "carry programs' connections to a grpc: server", _configure, _run)


@functools.cache
def tunnel_to(uri: str) -> str:
    """Starts an agent that ends with this process; returns the address of its socket."""
    server = parse_endpoint(uri)
    assert isinstance(server, GrpcEndpoint)
    return f"unix:{start_agent(server, os.environ)}"


probe = probe_command(tunnel_to)
