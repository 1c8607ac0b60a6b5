"""What a call and a copy cost over `grpc:`, beside gRPC alone, in the same run.

The floor is a bidirectional stream of grpc.aio on uvloop between two processes: 64 bytes there and
back, and 64 MiB of random bytes in messages of 1 MiB.  Over the tunnel two more processes take
part, the client's agent and the worker.  There are two floors of a copy: the first sends the same
1 MiB again and again to a reader that throws it away, and the second copies 64 MiB of memory to
64 MiB of memory, as the floors of the other transports, and every copy to a device, do.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.grpc_floor import COPY_BYTES
from benchmarks.harness import Row, arguments, compiled, cost, rate, report, say
from benchmarks.server import GRPC, Agent, Server, client_environment


@contextlib.contextmanager
def floor_server() -> Iterator[str]:
    """The port of a gRPC server that only moves bytes."""
    command = [sys.executable, "-m", "benchmarks.grpc_floor", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def floor(port: str, rounds: str) -> dict[str, float]:
    """One run of the floor's client."""
    command = [sys.executable, "-m", "benchmarks.grpc_floor", "measure", port, rounds]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=120).stdout
    figures: dict[str, float] = json.loads(output)
    return figures


def tunnelled(program: Path, agent: Agent, rounds: str) -> dict[str, float]:
    """One run of the C program as a client that has an agent."""
    done = subprocess.run(
        [str(program), "memcpy", rounds, str(COPY_BYTES)],
        env=client_environment(agent, "grpc"),
        check=True,
        stdout=subprocess.PIPE,
        timeout=300,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure(program: Path, quick: bool) -> list[Row]:
    """The rows of `grpc:`: rounds of both, one after the other, and the medians of each."""
    repeats, rounds = (3, "1000") if quick else (7, "4000")
    ours: list[dict[str, float]] = []
    floors: list[dict[str, float]] = []
    with Server(*GRPC) as server, Agent(server.grpc) as agent, floor_server() as port:
        for number in range(repeats):
            say(f"grpc: run {number + 1} of {repeats}")
            floors.append(floor(port, rounds))
            ours.append(tunnelled(program, agent, rounds))
    mid = {key: statistics.median(f[key] for f in ours) for key in ours[0]}
    raw = {key: statistics.median(f[key] for f in floors) for key in floors[0]}
    return [
        cost("grpc synchronous call", "us", mid["sync_ns"] / 1e3, raw["ping_ns"] / 1e3, 1.5),
        Row("grpc launch issue, 200 in a burst", "us", mid["issue_ns"] / 1e3),
        *copy_rows(mid, raw),
    ]


def copy_rows(mid: dict[str, float], raw: dict[str, float]) -> list[Row]:
    """Copies beside both floors."""
    rows = []
    for way, words in (("up", "to the device"), ("down", "to the host")):
        ours = COPY_BYTES / mid[f"{way}_{COPY_BYTES}"]
        for floor_key, beside in ((f"{way}_ns", ""), (f"{way}_memory_ns", ", memory to memory")):
            name = f"grpc copy 64 MiB {words}{beside}"
            rows.append(rate(name, "GB/s", ours, COPY_BYTES / raw[floor_key], 0.7))
    return rows


def main() -> int:
    options = arguments(__doc__ or "")
    with compiled("transport.c", "floor.c") as program:
        rows = measure(program, options.quick)
    report("transport_grpc", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
