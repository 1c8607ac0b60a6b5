"""Puts a program on a path to its server, and an agent beside it where there are several."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from netprobe.candidates import completed
from rgpu_client.session import audit
from rgpu_client.session.detach import serve_beside
from rgpu_client.session.folders import private_folder
from rgpu_client.session.pacing import TEXTFILE, pace_seconds
from rgpu_client.session.paths import check_others, find_path, transport_of, workload_of
from rgpu_client.sizes import sizes_of
from rgpu_client.variables import check_flags, writable
from rgpu_common.variables import say_misspelt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_client.session.paths import Path

AGENT = "RGPU_AGENT"
_BACKLOG = 256

# The request for which RGPU_SERVER was chosen. The same request again keeps that path.
CHOSEN = "RGPU_CHOSEN"


def on_path(
    environment: Mapping[str, str],
    named: str,
    transport: str | None,
    loud: bool,
    label: str = "",
) -> dict[str, str]:
    """Returns `environment` with the path to the server that the user named.

    transport: None leaves the choice to RGPU_TRANSPORT, then to the measurement. loud: the choice
    is printed on stderr, with the label before it.

    Raises:
        UsageError: a variable has a value that cannot be used.
        RgpuError: as `find_path`.
    """
    if CHOSEN not in environment:  # else `rgpu run` has printed this already
        say_misspelt(environment)
    _check(environment)  # before the choice, so that a mistake is reported first
    kind, named = transport_of(transport, environment), completed(named)
    path = find_path(named, kind, environment)
    audit.write_down(
        environment, "chosen", server=named, transport=kind, uri=path.uri, reason=path.reason,
        others=list(path.others),
    )  # fmt: skip
    if loud:
        audit.say(f"{label}{path.uri}: {path.reason}")
    result = {**environment, **path.variables(), CHOSEN: f"{kind} {named} {path.uri}"}
    if kind == "auto" and path.worth_watching:
        result.update(start_agent(path, named, environment, loud))
    return result


def _check(environment: Mapping[str, str]) -> None:
    """Raises UsageError for the first variable whose value cannot be used."""
    if environment.get("RGPU_WORKLOAD"):
        workload_of(environment)
    for check in (pace_seconds, check_others, audit.is_loud, check_flags, sizes_of):
        check(environment)
    writable(environment, TEXTFILE)


def same_path(
    environment: Mapping[str, str], named: str, transport: str | None, current: Mapping[str, str]
) -> dict[str, str] | None:
    """Returns `environment` with the path of `current`, if the same path was asked for;
    else None.
    """
    named = completed(named)
    kind, server = transport_of(transport, environment), current.get("RGPU_SERVER", "")
    chosen = current.get(CHOSEN, "")
    # A request without a server name has the address that RGPU_SERVER holds now.
    if chosen != f"{kind} {named} {server}" and not (
        named == server and chosen.endswith(f" {server}")
    ):
        return None
    names = ("RGPU_SERVER", "RGPU_PATHS", AGENT, CHOSEN)
    kept = {name: current[name] for name in names if name in current}
    return {**environment, **kept}


def start_agent(
    path: Path, named: str, environment: Mapping[str, str], loud: bool
) -> dict[str, str]:
    """Starts an agent that lives as long as this process, also after it executes another program.

    Returns the variables by which sessions find the agent; none if it could not be started.
    Without an agent a session keeps its path.
    """
    import socket
    import subprocess

    words = [
        f"--named={named}", "--server", path.server.hex(), *(["--loud"] if loud else []),
        "--", path.uri, *path.others, *path.unseen,
    ]  # fmt: skip
    try:
        with (
            private_folder("rgpu-paths-", environment) as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        ):
            listener.bind(f"{folder}/agent")
            listener.listen(_BACKLOG)
            output = sys.stderr.fileno() if loud else None
            serve_beside("rgpu_client.session.watch", words, listener, environment, output)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        audit.write_down(environment, "no agent", reason=str(error))
        return {}
    return {AGENT: f"{folder}/agent"}
