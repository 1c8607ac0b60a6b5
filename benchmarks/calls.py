"""What a call costs, over each transport, beside the raw floor measured in the same run.

The floor of a synchronous call is a 64-byte ping-pong between two processes over the same kind of
socket, blocking, interleaved call by call; the floor of a copy is a plain `send`/`recv` of the same
random bytes.  A synchronous call includes the client's stub, one frame each way and the driver call
in the worker.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Row, above, arguments, below, compiled, cost, rate, report, say
from benchmarks.server import Server, client_environment

MIB = 1 << 20


def run(program: Path, server: Server, kind: str, *rest: str) -> dict[str, float]:
    """One run of the C program as a client of `server`."""
    result = subprocess.run(
        [str(program), kind, *rest],
        env=client_environment(server, kind),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    parsed: dict[str, float] = json.loads(result.stdout)
    return parsed


def call_rows(kind: str, figures: Sequence[dict[str, float]]) -> list[Row]:
    """The rows of one transport from several runs: the median of their medians."""

    def mid(key: str) -> float:
        return statistics.median(f[key] for f in figures)

    def gbps(key: str) -> float:
        return 64 * MIB / mid(key)

    return [
        cost(f"{kind} synchronous call", "us", mid("sync_ns") / 1e3, mid("ping_ns") / 1e3, 1.5),
        below(f"{kind} alloc + free, on credit", "us", mid("alloc_free_ns") / 1e3, 2.0),
        below(f"{kind} launch issue, 200 in a burst", "us", mid("burst_issue_ns") / 1e3, 1.0),
        Row(f"{kind} launch issue, storm of 1,000", "us", mid("storm_issue_ns") / 1e3),
        above(f"{kind} commands per write", "n", mid("commands_per_write"), 48),
        rate(f"{kind} copy 64 MiB to the device", "GB/s", gbps("up_ns"), gbps("up_floor_ns"), 0.8),
        rate(
            f"{kind} copy 64 MiB to the host", "GB/s", gbps("down_ns"), gbps("down_floor_ns"), 0.8
        ),
    ]


def open_row(program: Path, server: Server, kind: str, runs: int) -> Row:
    """Session open: first cuInit to first reply, fresh processes, no agent."""
    times = [run(program, server, kind, "open")["open_ns"] / 1e6 for _ in range(runs)]
    return below(f"{kind} session open", "ms", statistics.median(times), 20)


def worker_memory_row(program: Path, server: Server) -> Row:
    """The largest proportional set size of a worker while 8 sessions idle."""
    idle = [
        subprocess.Popen(
            [str(program), "unix", "idle"],
            env=client_environment(server, "unix"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    try:
        for process in idle:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("an idle session did not open; see the server's log")
        sizes = [server.proportional_bytes(pid) for pid in server.session_workers()]
    finally:
        for process in idle:
            process.communicate()
    return below("worker PSS, 8 idle sessions", "MB", max(sizes) / 1e6, 60)


def main() -> int:
    options = arguments(__doc__ or "")
    rows: list[Row] = []
    repeats, rounds, opens = (2, "1000", 7) if options.quick else (5, "4000", 25)
    with compiled("calls.c", "floor.c") as program, Server() as server:
        for kind in ("unix", "tcp"):
            figures = []
            for number in range(repeats):
                say(f"{kind}: run {number + 1} of {repeats}")
                figures.append(run(program, server, kind, "all", rounds))
            rows += call_rows(kind, figures)
            say(f"{kind}: opening sessions")
            rows.append(open_row(program, server, kind, opens))
        say("worker memory")
        rows.append(worker_memory_row(program, server))
    report("calls", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
