"""`rgpu run`, `devices`, `ps`, `trace` and `demo`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgpu_client.preload import client_environment, library_path
from rgpu_client.settings import ClientSettings, configured_server
from rgpu_client.tables import table
from rgpu_client.trace import format_trace, parse_trace
from rgpu_common.command import FAILED, OK, Command
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.units import format_bytes, format_seconds, format_share, parse_bytes, parse_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_client.control import ControlClient, LeaseRequest

_SERVER_HELP = "HOST:PORT or unix:/PATH (default: RGPU_SERVER, then 127.0.0.1:7700)"


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=_SERVER_HELP)
    parser.add_argument("--memory", metavar="SIZE", help="memory limit, such as 2GiB")
    parser.add_argument(
        "--device", type=int, metavar="N", help="device of the server (default: any)"
    )
    parser.add_argument("--share", metavar="FRACTION", help="guaranteed share of the device: 0.4")
    parser.add_argument("--limit", metavar="FRACTION", help="cap on that share: 0.7")
    parser.add_argument("--tenant", metavar="NAME", help="who is billed")
    parser.add_argument("--lease", metavar="KEY", help="processes with one key share one lease")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program and its arguments",
    )


def _settings(arguments: argparse.Namespace) -> ClientSettings:
    return ClientSettings(
        arguments.server,
        arguments.memory,
        arguments.device,
        arguments.share,
        arguments.limit,
        arguments.tenant,
        arguments.lease,
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


# rgpu run


def _configure_run(parser: argparse.ArgumentParser) -> None:
    _add_session_options(parser)
    parser.add_argument(
        "--hold",
        action="store_true",
        help="grant a lease of its own before the program starts, and revoke it when it has ended",
    )


def _run(arguments: argparse.Namespace) -> int:
    variables = _settings(arguments).variables()
    command = _program(arguments, "rgpu run [OPTIONS] -- PROGRAM [ARGUMENTS]")
    environment = client_environment(os.environ, variables, library_path())
    if arguments.hold:
        from rgpu_client.control import ControlClient
        from rgpu_client.session.agent import run_under_lease

        with ControlClient(configured_server(None, environment)) as client:
            return run_under_lease(client, _lease_request(environment), command, environment)
    sys.stdout.flush()
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        raise RgpuError(f"{command[0]} cannot be started: {error.strerror}") from None


def _lease_request(environment: dict[str, str]) -> LeaseRequest:
    from rgpu_client.control import LeaseRequest

    return LeaseRequest(
        tenant=environment.get("RGPU_TENANT", ""),
        key=environment.get("RGPU_LEASE", ""),
        device=_variable(environment, "RGPU_DEVICE", _ordinal),
        memory_bytes=_variable(environment, "RGPU_MEMORY", parse_bytes) or 0,
        share_request_ppm=_variable(environment, "RGPU_SHARE", parse_share) or 0,
        share_limit_ppm=_variable(environment, "RGPU_LIMIT", parse_share) or 0,
    )


def _variable(environment: dict[str, str], name: str, parse: Callable[[str], int]) -> int | None:
    text = environment.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _ordinal(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a device: they are numbered from 0")
    return int(text)


# rgpu devices, rgpu ps


def _configure_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=_SERVER_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _client(arguments: argparse.Namespace) -> ControlClient:
    from rgpu_client.control import ControlClient

    return ControlClient(configured_server(arguments.server, os.environ))


def _devices(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        answer = client.devices()
    if arguments.json:
        _print_json({"devices": answer.devices})
        return OK
    rows = [
        (
            str(device.ordinal),
            device.name,
            format_bytes(device.memory_bytes),
            format_bytes(device.memory_bytes - device.leased_memory_bytes),
            format_bytes(device.used_memory_bytes),
            format_share(device.leased_share_ppm),
            str(device.leases),
            str(device.sessions),
        )
        for device in answer.devices
    ]
    titles = ("device>", "name", "memory>", "free>", "used>", "shares>", "leases>", "sessions>")
    print(table(titles, rows))
    return OK


def _ps(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        sessions, usages = client.sessions(), client.usage()
    if arguments.json:
        _print_json({"sessions": sessions, "leases": usages})
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
            format_bytes(session.usage.memory_used_bytes),
            format_bytes(session.usage.memory_peak_bytes),
            str(session.usage.launches),
            format_bytes(session.usage.copied_bytes),
            format_seconds(session.age_seconds),
            session.program,
        )
        for session in sessions
    ]
    titles = ("session>", "lease", "pid>", "from", "used>", "peak>", "launches>", "copied>")
    print("\n" + table((*titles, "age>", "program"), rows))
    return OK


def _print_json(groups: dict[str, Any]) -> None:
    plain = {name: [_plain(message) for message in group] for name, group in groups.items()}
    print(json.dumps(plain, indent=2))


def _plain(message: Any) -> dict[str, Any]:
    """Every field by its name, also those that are 0, and numbers as numbers."""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None:
            plain[field.name] = _plain(value)
        elif field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            plain[field.name] = value if named is None else named.name
        else:
            plain[field.name] = value
    return plain


# rgpu trace


def _trace(arguments: argparse.Namespace) -> int:
    variables = _settings(arguments).variables()
    command = _program(arguments, "rgpu trace [OPTIONS] -- PROGRAM [ARGUMENTS]")
    environment = client_environment(os.environ, variables, library_path())
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
