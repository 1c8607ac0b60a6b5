"""What each transport costs, beside the raw floor measured in the same run.

python -m benchmarks.transport [--quick] [--json FILE] [shm] [unix] [tcp] [grpc]

The floor of `unix` and `tcp` is a blocking 64-byte ping-pong, and a plain send and receive of the
same random bytes, between two processes over a socket of that kind; of `shm` it is a memcpy of the
same bytes within one process; of `grpc` it is in `benchmarks.transport_grpc`.  A synchronous call
includes the client's stub, one frame each way and the driver call in the worker; a copy to the
device ends when it is complete there.

Calls over sockets are measured with both ends on a processor each and with both on one, and their
floors in the same places: left to the system, one of the two pairs may share a processor, which
makes a round trip three times as quick, while the other one does not.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import transport_grpc
from benchmarks.harness import Row, arguments, below, compiled, cost, rate, report, say
from benchmarks.placing import placed
from benchmarks.server import Server, client_environment

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
QUICK_SIZES = (KIB, MIB, 64 * MIB)
# Targets are for copies that are long against a round trip.
LARGE = 64 * MIB


@dataclass(frozen=True, slots=True)
class Carrier:
    """A transport, its floor, and what it must reach.

    call: at most so many times the ping-pong; call_us: at most so many microseconds.
    copy: at least this part of the raw copy.
    """

    kind: str
    floor: str
    copy: float
    call: float | None = None
    call_us: float | None = None


CARRIERS = (
    Carrier("shm", "memcpy", 0.8, call_us=5.0),
    Carrier("unix", "unix", 0.9, call=1.25),
    Carrier("tcp", "tcp", 0.9, call=1.25),
)


def run(
    program: Path, server: Server, carrier: Carrier, rounds: str, sizes: tuple[int, ...], **env: str
) -> dict[str, float]:
    """One run of the C program as a client of `server`."""
    done = subprocess.run(
        [str(program), carrier.floor, rounds, *map(str, sizes)],
        env=client_environment(server, carrier.kind) | env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def placed_calls(program: Path, carrier: Carrier, here: int, there: int, quick: bool) -> Row:
    """A synchronous call from one processor to another, or to the same, beside its floor."""
    repeats, rounds = (3, "1000") if quick else (7, "4000")
    with placed(there), Server() as server, placed(here):
        figures = [
            run(program, server, carrier, rounds, (), FLOOR_CPU=str(there)) for _ in range(repeats)
        ]
    call = statistics.median(f["sync_ns"] for f in figures) / 1e3
    ping = statistics.median(f["ping_ns"] for f in figures) / 1e3
    name = f"{carrier.kind} synchronous call"
    if here == there:
        return Row(f"{name}, one processor", "us", call, ping, call / ping)
    return cost(name, "us", call, ping, carrier.call or 0)


def call_rows(program: Path, carrier: Carrier, call_ns: float, quick: bool) -> list[Row]:
    """Synchronous calls against what they may cost."""
    if carrier.call_us is not None:
        return [below(f"{carrier.kind} synchronous call", "us", call_ns / 1e3, carrier.call_us)]
    say(f"{carrier.kind}: calls, both ends placed")
    cpus = sorted(os.sched_getaffinity(0))
    return [
        placed_calls(program, carrier, cpus[0], there, quick)
        for there in dict.fromkeys((cpus[-1], cpus[0]))
    ]


def size_name(size: int) -> str:
    """A size as people write it."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def copy_rows(carrier: Carrier, mid: dict[str, float], sizes: tuple[int, ...]) -> list[Row]:
    """Copies both ways, the floor beside each."""
    rows = []
    for size in sizes:
        for way, words in (("up", "to the device"), ("down", "to the host")):
            name = f"{carrier.kind} copy {size_name(size)} {words}"
            ours, raw = size / mid[f"{way}_{size}"], size / mid[f"raw_{way}_{size}"]
            if size >= LARGE:
                rows.append(rate(name, "GB/s", ours, raw, carrier.copy))
            else:
                rows.append(Row(name, "GB/s", ours, raw, ours / raw))
    return rows


def measure(program: Path, server: Server, carrier: Carrier, quick: bool) -> list[Row]:
    """The rows of one transport: medians over runs of their medians."""
    repeats, rounds, sizes = (2, "1000", QUICK_SIZES) if quick else (5, "4000", SIZES)
    figures = []
    for number in range(repeats):
        say(f"{carrier.kind}: run {number + 1} of {repeats}")
        figures.append(run(program, server, carrier, rounds, sizes))
    mid = {key: statistics.median(f[key] for f in figures) for key in figures[0]}
    return [
        *call_rows(program, carrier, mid["sync_ns"], quick),
        below(f"{carrier.kind} launch issue, 200 in a burst", "us", mid["issue_ns"] / 1e3, 0.5),
        *copy_rows(carrier, mid, sizes),
    ]


def main() -> int:
    carriers = {carrier.kind: carrier for carrier in CARRIERS}
    options = arguments(__doc__ or "", (*carriers, "grpc"))
    rows: list[Row] = []
    with compiled("transport.c", "floor.c") as program, Server() as server:
        for kind in options.parts:
            if kind == "grpc":
                rows += transport_grpc.measure(program, options.quick)
            else:
                rows += measure(program, server, carriers[kind], options.quick)
    report("transport", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
