"""`rgpu run`, `devices`, `ps`, `trace` and `demo`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from netprobe.candidates import TRANSPORTS
from rgpu_client.preload import client_environment, library_path
from rgpu_client.session.audit import is_loud
from rgpu_client.session.launch import carried
from rgpu_client.session.start import on_path
from rgpu_client.settings import (
    API_SERVER_HELP,
    DEFAULT_SERVER,
    SESSION_SERVER_HELP,
    ClientSettings,
    configured_server,
)
from rgpu_client.trace import format_trace, parse_trace
from rgpu_common.command import FAILED, OK, Command
from rgpu_common.endpoints import UcxEndpoint, parse_endpoint
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.sharing import POLICIES, parse_policy
from rgpu_common.tables import as_json, table
from rgpu_common.units import (
    Memory,
    format_bytes,
    format_seconds,
    format_share,
    parse_memory,
    parse_share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_client.control import ControlClient, LeaseRequest
    from rgpu_common.endpoints import Endpoint

T = TypeVar("T")

_MEMORY_HELP = "memory limit: 2GiB, 25%%, or 8vmem in units of 256 MiB"


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=SESSION_SERVER_HELP)
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS,
        help="how to reach the server (default: RGPU_TRANSPORT, then auto: the best of its paths)",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say which path was chosen, and why"
    )
    parser.add_argument("--memory", metavar="SIZE", help=_MEMORY_HELP)
    parser.add_argument(
        "--device", type=int, metavar="N", help="device of the server (default: any)"
    )
    _add_share_options(parser)
    parser.add_argument("--tenant", metavar="NAME", help="who is billed")
    parser.add_argument("--lease", metavar="KEY", help="processes with one key share one lease")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program and its arguments",
    )


def _add_share_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share", metavar="PART", help="guaranteed part of the device: 0.4, 40%% or 40vcore"
    )
    parser.add_argument("--limit", metavar="PART", help="cap on that share: 0.7")
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        help="fixed: limit = share; burst: limit = 1; best-effort: share = 0; none: as given",
    )
    parser.add_argument("--priority", type=int, metavar="N", help="who gets idle time first: 0-100")
    parser.add_argument("--weight", type=int, metavar="N", help="how much of it: 1-1000")


def _settings(arguments: argparse.Namespace) -> ClientSettings:
    return ClientSettings(
        arguments.server,
        arguments.memory,
        arguments.device,
        arguments.share,
        arguments.limit,
        arguments.tenant,
        arguments.lease,
        arguments.policy,
        arguments.priority,
        arguments.weight,
    )


def _program(arguments: argparse.Namespace, usage: str) -> list[str]:
    words: list[str] = list(arguments.program)
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError(f"say which program to run: {usage}")
    found = shutil.which(words[0])
    if found is None:
        raise RgpuError(_why_no_program(words[0]))
    return [found, *words[1:]]


def _why_no_program(name: str) -> str:
    if "/" not in name:
        return f"there is no program {name!r} on the PATH"
    if not os.path.exists(name):
        return f"there is no file {name!r}"
    if os.path.isdir(name):
        return f"{name!r} is a folder, not a program"
    return f"{name!r} is not executable: `chmod +x` it, or name its interpreter before it"


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The program's environment, with the path to its server."""
    variables = _settings(arguments).variables()
    environment = client_environment(os.environ, variables, library_path())
    loud = arguments.verbose or is_loud(environment)
    return on_path(environment, _named(arguments), arguments.transport, loud)


def _named(arguments: argparse.Namespace) -> str:
    """The server as the user named it."""
    return arguments.server or os.environ.get("RGPU_SERVER") or str(DEFAULT_SERVER)


# rgpu run


def _configure_run(parser: argparse.ArgumentParser) -> None:
    _add_session_options(parser)
    parser.add_argument(
        "--hold",
        action="store_true",
        help="grant a lease of its own before the program starts, and revoke it when it has ended",
    )


def _run(arguments: argparse.Namespace) -> int:
    _settings(arguments).variables()  # mistakes in them come first
    command = _program(arguments, "rgpu run [OPTIONS] -- PROGRAM [ARGUMENTS]")
    environment = _environment(arguments)
    if arguments.hold:
        from rgpu_client.control import ControlClient
        from rgpu_client.session.agent import run_under_lease

        with ControlClient(_api_server(environment, _named(arguments))) as client:
            request = _lease_request(environment)
            return run_under_lease(client, request, command, carried(environment))
    environment = carried(environment)
    sys.stdout.flush()
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        raise RgpuError(f"{command[0]} cannot be started: {error.strerror}") from None


def _api_server(environment: dict[str, str], named: str) -> Endpoint:
    """Where the API answers: on the program's path, unless that carries sessions only."""
    server = configured_server(None, environment)
    return parse_endpoint(named) if isinstance(server, UcxEndpoint) else server


def _lease_request(environment: dict[str, str]) -> LeaseRequest:
    from rgpu_client.control import LeaseRequest

    memory = _variable(environment, "RGPU_MEMORY", parse_memory) or Memory()
    return LeaseRequest(
        tenant=environment.get("RGPU_TENANT", ""),
        key=environment.get("RGPU_LEASE", ""),
        device=_variable(environment, "RGPU_DEVICE", _ordinal),
        memory_bytes=memory.bytes,
        memory_ppm=memory.ppm,
        share_request_ppm=_variable(environment, "RGPU_SHARE", parse_share) or 0,
        share_limit_ppm=_variable(environment, "RGPU_LIMIT", parse_share) or 0,
        policy=_variable(environment, "RGPU_POLICY", parse_policy),
        priority=_variable(environment, "RGPU_PRIORITY", _whole),
        weight=_variable(environment, "RGPU_WEIGHT", _whole),
    )


def _variable(environment: dict[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = environment.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a whole number")
    return int(text)


def _ordinal(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a device: they are numbered from 0")
    return int(text)


# rgpu devices, rgpu ps


def _configure_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _client(arguments: argparse.Namespace) -> ControlClient:
    from rgpu_client.control import ControlClient

    return ControlClient(configured_server(arguments.server, os.environ))


def _devices(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        answer = client.devices()
    if arguments.json:
        print(as_json({"devices": answer.devices}))
        return OK
    rows = [
        (
            str(device.ordinal),
            device.name,
            device.pool,
            format_bytes(device.memory_bytes),
            format_bytes(device.memory_bytes - device.leased_memory_bytes),
            format_bytes(device.used_memory_bytes),
            format_share(device.leased_share_ppm),
            str(device.leases),
            str(device.sessions),
        )
        for device in answer.devices
    ]
    titles = (
        "device>",
        "name",
        "pool",
        "memory>",
        "free>",
        "used>",
        "shares>",
        "leases>",
        "sessions>",
    )
    print(table(titles, rows))
    return OK


def _ps(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        sessions, usages = client.sessions(), client.usage()
    if arguments.json:
        print(as_json({"sessions": sessions, "leases": usages}))
        return OK
    leases = [
        (
            lease.lease_id,
            lease.tenant,
            lease.lease_key,
            str(lease.device),
            format_bytes(lease.memory_limit_bytes),
            format_bytes(lease.usage.memory_used_bytes),
            format_bytes(lease.usage.memory_peak_bytes),
            str(lease.usage.refused_allocations),
            format_share(lease.share_request_ppm),
            format_share(lease.share_limit_ppm),
        )
        for lease in usages
    ]
    titles = ("lease", "tenant", "key", "device>", "memory>", "used>", "peak>", "refused>")
    print(table((*titles, "share>", "limit>"), leases))
    rows = [
        (
            str(session.session_id),
            session.lease_id,
            str(session.client_pid),
            session.peer,
            session.transport,
            format_bytes(session.usage.memory_used_bytes),
            format_bytes(session.usage.memory_peak_bytes),
            str(session.usage.launches),
            format_bytes(session.usage.copied_bytes),
            format_seconds(session.age_seconds),
            session.program,
        )
        for session in sessions
    ]
    columns = (
        "session>",
        "lease",
        "pid>",
        "from",
        "over",
        "used>",
        "peak>",
        "launches>",
        "copied>",
    )
    print("\n" + table((*columns, "age>", "program"), rows))
    return OK


# rgpu trace


def _trace(arguments: argparse.Namespace) -> int:
    _settings(arguments).variables()
    command = _program(arguments, "rgpu trace [OPTIONS] -- PROGRAM [ARGUMENTS]")
    environment = carried(_environment(arguments))
    with tempfile.TemporaryDirectory(prefix="rgpu-trace-") as folder:
        path = Path(folder) / "trace.tsv"
        status = _call(command, {**environment, "RGPU_TRACE": str(path)})
        if not path.exists():
            complaint = "the program made no CUDA call, or was killed before it could say which"
            print(f"rgpu: {complaint} (exit code {status})", file=sys.stderr)
            return status or FAILED
        text = path.read_text(encoding="utf-8")
    print(format_trace(parse_trace(text)))
    return status


def _call(command: Sequence[str], environment: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise RgpuError(f"{command[0]} cannot be started: {error.strerror}") from None
    from rgpu_client.session.agent import forwarded_signals

    # What the program counted is shown also when Ctrl-C has ended it.
    with forwarded_signals(process):
        status = process.wait()
    return 128 - status if status < 0 else status


# rgpu demo


def _configure_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="show the server's log too")


def _demo(arguments: argparse.Namespace) -> int:
    from rgpu_client.demo.show import run_demo

    return OK if run_demo(verbose=arguments.verbose) else FAILED


run = Command("run", "run a program on a server's device", _configure_run, _run)
devices = Command("devices", "list what a server offers", _configure_query, _devices)
ps = Command("ps", "list a server's leases and sessions, and what they use", _configure_query, _ps)
trace = Command("trace", "run a program and count its CUDA calls", _add_session_options, _trace)
demo = Command(
    "demo", "see it work: a server and two programs in two leases", _configure_demo, _demo
)
