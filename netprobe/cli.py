"""The commands `netprobe listen`, `netprobe run` and `rgpu probe`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import textwrap
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from netprobe.candidates import completed, is_explicit, normal, proxies
from netprobe.cost import WORKLOADS
from netprobe.identity import make_identity
from netprobe.netdev import net_devices
from netprobe.picture import draw
from netprobe.prober import ProbeBudget
from netprobe.reach import check_reach
from netprobe.record import Entry
from netprobe.respond import listen_on, responder_command, start_responder
from netprobe.show import as_json, notes, path_table, survey_plain
from netprobe.survey import Survey, chosen, find, measured, memory, survey
from rgpu_common.command import FAILED, OK, Command, run_alone
from rgpu_common.endpoints import (
    DEFAULT_PORT,
    GrpcEndpoint,
    TcpEndpoint,
    TlsEndpoint,
    UcxEndpoint,
    UnixEndpoint,
    parse_listener,
)
from rgpu_common.errors import ProtocolError, RgpuError, ServerError, UsageError
from rgpu_common.passing_on import passing_on
from rgpu_common.tables import terminal_width
from rgpu_common.units import parse_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from netprobe.cost import Workload
    from netprobe.survey import Found, Progress, Tunnel
    from rgpu_common.endpoints import Endpoint

_DEFAULT = f"127.0.0.1:{DEFAULT_PORT}"
_LISTEN = "127.0.0.1:7701"
_LEAST_SECONDS, _MOST_SECONDS = 0.01, 60.0
# A responder gives one address a quarter more than this on average
# (docs/explanation/netprobe.md).
_BYTES_PER_SECOND = 100e6
_LEAST_BYTES = 1 << 16


# netprobe run, rgpu probe


def _measuring_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", choices=tuple(WORKLOADS), default="mixed",
                        help="what the paths are ranked for (default: mixed)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.1, metavar="S",
                        help="seconds that measuring a path may take (default 0.1)")  # fmt: skip
    parser.add_argument("--bytes", default="64MiB", metavar="SIZE",
                        help="bytes that it may move each way (default 64MiB)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--svg", metavar="FILE", help="draw a picture as well")
    parser.add_argument("--watch", type=float, metavar="S", help="measure again every S seconds")


def _budget(arguments: argparse.Namespace) -> ProbeBudget:
    if not _LEAST_SECONDS <= arguments.seconds <= _MOST_SECONDS:
        raise UsageError(
            f"--seconds is {arguments.seconds:g}; give {_LEAST_SECONDS:g} to {_MOST_SECONDS:g}"
        )
    size = parse_bytes(arguments.bytes)
    if size < _LEAST_BYTES:
        raise UsageError(f"--bytes is {arguments.bytes}; give at least 64KiB")
    return ProbeBudget(seconds=arguments.seconds, bytes=size)


def _configure_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "server", nargs="?", help=f"HOST:PORT or a URI (default: RGPU_SERVER, then {_DEFAULT})"
    )
    parser.add_argument(
        "--server", dest="option", metavar="ADDRESS", help="the same, as with other commands"
    )
    _measuring_options(parser)


def probe_command(tunnel: Tunnel | None) -> Command:
    """Returns `rgpu probe`; tunnel: starts agents for the paths that need one."""

    def run(arguments: argparse.Namespace) -> int:
        return _probe(arguments, tunnel)

    about = "measure the paths to a server and choose one"
    return Command("probe", about, _configure_probe, run)


def _probe(arguments: argparse.Namespace, tunnel: Tunnel | None) -> int:
    if arguments.server and arguments.option:
        raise UsageError("name the server once: as SERVER or with --server")
    named = arguments.server or arguments.option
    server = completed(named or os.environ.get("RGPU_SERVER") or _DEFAULT)
    return _rounds(arguments, [server], keep=True, tunnel=tunnel)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="HOST:PORT|URI",
        help="a server or responder, whose paths are all measured; or several paths to it",
    )
    _measuring_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    addresses = [completed(text) for text in arguments.paths]
    try:
        return _rounds(arguments, addresses, keep=False, tunnel=None)
    except ServerError as error:
        if "listens at" not in str(error):
            raise
        # The transports' errors mention servers only.
        raise ServerError(f"{error}; without a server use `netprobe listen` there") from None


def _rounds(
    arguments: argparse.Namespace, addresses: Sequence[str], *, keep: bool, tunnel: Tunnel | None
) -> int:
    workload, budget = WORKLOADS[arguments.workload], _budget(arguments)
    if arguments.watch is not None and not 0.2 <= arguments.watch <= 86400:
        raise UsageError("--watch must be 0.2 to 86400 seconds")
    for address in addresses:
        check_reach(address)
    rounds, paths = 0, 1
    while True:
        if rounds:
            budget = _lasting(budget, arguments.watch, paths)
        try:
            result = _survey(addresses, workload, budget, tunnel)
        except (ServerError, ProtocolError) as error:
            # --watch goes on, to show when the server is back.
            if not rounds:
                raise
            print(f"{time.strftime('%X')}  {error}", file=sys.stderr, flush=True)
        else:
            paths = len(result.paths)
            _report(arguments, result, workload, addresses[0] if keep else "")
            if arguments.watch is None:
                return OK if result.choice is not None else FAILED
        rounds += 1
        sys.stdout.flush()
        time.sleep(arguments.watch)


def _lasting(budget: ProbeBudget, pause: float, paths: int) -> ProbeBudget:
    """Returns the budget with so few bytes that the server grants them round after round."""
    each = int(_BYTES_PER_SECOND * pause / (2 * max(paths, 1)))
    return replace(budget, bytes=max(min(budget.bytes, each), _LEAST_BYTES))


def _report(arguments: argparse.Namespace, result: Survey, workload: Workload, name: str) -> None:
    """Shows a survey, and caches it under the server's name if `name` is not empty."""
    if name:
        found = result.found
        entry = Entry(result.at, found.offer.server, found.same_host, result.paths)
        memory(os.environ).write(name, entry)
    _print(arguments, result, workload)
    if arguments.svg:
        _write(arguments.svg, draw(result, workload))


def _survey(
    addresses: Sequence[str], workload: Workload, budget: ProbeBudget, tunnel: Tunnel | None
) -> Survey:
    progress = _Progress()
    try:
        if len(addresses) == 1 and not is_explicit(addresses[0]):
            return survey(addresses[0], workload, budget, progress.say, tunnel)
        return _given(addresses, workload, budget, (progress.say, tunnel))
    finally:
        progress.clear()


def _given(
    addresses: Sequence[str],
    workload: Workload,
    budget: ProbeBudget,
    helpers: tuple[Progress, Tunnel | None],
) -> Survey:
    """Measures exactly the named paths, to the server that answers on the first working one."""
    uris = [normal(address) for address in addresses]
    progress, tunnel = helpers
    found = _first(uris, tunnel)
    paths = measured(uris, found.offer.server, budget, progress, tunnel)
    choice = chosen(paths, found.same_host, workload)
    return Survey(found, paths, (), choice, time.time())


def _first(uris: Sequence[str], tunnel: Tunnel | None) -> Found:
    """Returns the server at the first path that works; raises ServerError if none works."""
    for uri in uris[:-1]:
        with contextlib.suppress(ServerError):
            return find(uri, tunnel=tunnel)
    return find(uris[-1], tunnel=tunnel)


class _Progress:
    """One line on a terminal that shows what is being measured."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def say(self, uri: str, what: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\033[K{uri}: {what}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _print(arguments: argparse.Namespace, result: Survey, workload: Workload) -> None:
    set_proxies = proxies(os.environ)
    if arguments.json:
        plain = survey_plain(result, workload, set_proxies, net_devices())
        # With --watch each round is one line.
        print(as_json(plain) if arguments.watch is None else json.dumps(plain))
        return
    width = terminal_width()
    print(path_table(result.paths, workload, width))
    print()
    for line in notes(result, set_proxies, workload):
        print(line if width is None else textwrap.fill(line, width, break_long_words=False))


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RgpuError(
            f"{path} cannot be written: {error.strerror}; name a file that you may write to, in "
            "a folder that exists"
        ) from None


# netprobe listen

LIMITS = (
    ("places", 64, "probes at a time"),
    ("places-per-peer", 32, "probes at a time from one address"),
    ("burst", 256, "probes from one address after a pause; then 20 a second"),
    ("bytes-per-second", 512_000_000, "bytes that all probes together may move in the long run"),
    ("idle-ms", 2000, "milliseconds without a byte until a probe is given up"),
    ("time-ms", 15000, "milliseconds that a probe may take in all"),
)
_MOST = 1_000_000_000


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= _MOST:
        raise UsageError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def _configure_listen(parser: argparse.ArgumentParser) -> None:
    about = f"HOST:PORT or unix:/PATH, several times (default {_LISTEN})"
    parser.add_argument("--listen", action="append", metavar="ADDRESS", help=about)
    for name, default, about in LIMITS:
        parser.add_argument(f"--{name}", type=_count, metavar="N",
                            help=f"{about} (default {default})")  # fmt: skip


def _listener(text: str) -> Endpoint:
    endpoint = parse_listener(text)
    if isinstance(endpoint, TlsEndpoint):
        raise UsageError(f"{text}: only a server speaks TLS, a responder alone does not")
    if isinstance(endpoint, GrpcEndpoint):
        raise UsageError(f"{text}: only a server speaks HTTP/2, a responder alone does not")
    if isinstance(endpoint, UcxEndpoint):
        raise UsageError(f"{text}: only a server speaks UCX, a responder alone does not")
    return endpoint


def _listen(arguments: argparse.Namespace) -> int:
    endpoints = [_listener(text) for text in arguments.listen or [_LISTEN]]
    listeners = [listen_on(endpoint) for endpoint in endpoints]
    bound = [
        TcpEndpoint(endpoint.host, listener.getsockname()[1])
        if isinstance(endpoint, TcpEndpoint)
        else endpoint
        for endpoint, listener in zip(endpoints, listeners, strict=True)
    ]
    offered = [f"shm:{one.path}" for one in bound if isinstance(one, UnixEndpoint)]
    offered += [normal(str(endpoint)) for endpoint in bound]
    command = responder_command(make_identity(), offered)
    for name, _, _ in LIMITS:
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None:
            command += [f"--{name}", str(value)]
    with passing_on([signal.SIGTERM]) as pass_to:
        try:
            process = start_responder(command, "--listen-fd", [one.fileno() for one in listeners])
        except OSError as error:
            raise RgpuError(
                f"{command[0]} cannot be started: {error.strerror}; install rgpu again, in a file "
                "system from which programs may be started"
            ) from None
        try:
            pass_to(process)
            print(f"netprobe: listening on {', '.join(map(str, bound))}", flush=True)
            process.wait()
        finally:
            process.kill()
            process.wait()
            for endpoint in bound:
                if isinstance(endpoint, UnixEndpoint):
                    with contextlib.suppress(OSError):
                        os.unlink(endpoint.path)
    return OK if process.returncode == -signal.SIGTERM else FAILED


_COMMANDS = {
    command.name: command
    for command in (
        Command("listen", "answer probes, without a server", _configure_listen, _listen),
        Command("run", "measure the paths to a server or responder", _configure_run, _run),
    )
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `netprobe`; returns its exit code."""
    return run_alone("netprobe", "Measures network paths and chooses one.", _COMMANDS, argv)
