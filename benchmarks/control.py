"""What control calls cost by gRPC, and what the data port's own frames cost (docs/adr/0043).

A lease can be had both ways: `GrantLease` and `RevokeLease` are calls of the API, and a claim is a
HELLO on the data port, which `rgpu run` sends. The floor of gRPC's figures is the claim's.
Processes take turns, so that other work of the machine slows all of them.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import files

from benchmarks.harness import Row, arguments, report, say
from benchmarks.server import Server

_CLAIM = """
import os
from rgpu_client.session.claim import claim, let_go
def get(): let_go(claim({**os.environ}, "benchmark"))
"""
_GRPC = """
import os
from rgpu_client.control import ControlClient, LeaseRequest
from rgpu_client.settings import configured_server
client = ControlClient(configured_server(None, os.environ))
def get(): client.revoke(client.grant(LeaseRequest()).lease_id)
"""
_MEASURED = """
import statistics, time
get()
took = []
for _ in range(ROUNDS):
    start = time.perf_counter()
    get()
    took.append(time.perf_counter() - start)
print(statistics.median(took))
"""
_MEMORY = """
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""
_WARM = 200


def _cost(script: str, environment: dict[str, str]) -> tuple[float, float, float]:
    """Returns milliseconds of the clock and of processors, and MiB of memory, of a process."""
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", script + _MEMORY],
        env=environment,
        cwd="/",
        stdout=subprocess.PIPE,
        check=True,
    )
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return clock * 1e3, processors * 1e3, int(done.stdout) / 1024


def _warm(script: str, environment: dict[str, str]) -> float:
    """Returns the median milliseconds of one lease of a process that has had one."""
    text = script + _MEASURED.replace("ROUNDS", str(_WARM))
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, cwd="/", capture_output=True, check=True
    )
    return float(done.stdout) * 1e3


def _medians(call: Callable[[str], Sequence[float]], rounds: int) -> tuple[list[float], ...]:
    """Returns the medians of the figures by claim and by gRPC, in turns after a first round."""
    taken: dict[str, list[Sequence[float]]] = {_CLAIM: [], _GRPC: []}
    for number in range(rounds + 1):
        for script, figures in taken.items():
            once = call(script)
            if number:
                figures.append(once)
    return tuple(
        [statistics.median(column) for column in zip(*figures, strict=True)]
        for figures in taken.values()
    )


def _installed(name: str) -> float:
    """Returns the megabytes of an installed package."""
    found = [one.locate() for one in files(name) or ()]
    return sum(os.path.getsize(str(one)) for one in found if os.path.exists(str(one))) / 1e6


def rows(rounds: int) -> list[Row]:
    """All figures."""
    found = []
    with Server(device="emulated:256MiB") as server:
        environment = {**os.environ, "RGPU_SERVER": server.address("tcp")}
        names = ("the clock, ms", "processors, ms", "memory, MiB")
        for what, text in (("imports", ""), ("a first lease", "get()")):
            by_claim, by_grpc = _medians(lambda one, t=text: _cost(one + t, environment), rounds)
            for name, claim, grpc in zip(names, by_claim, by_grpc, strict=True):
                label, unit = name.rsplit(", ", 1)
                found.append(Row(f"{what}, {label}", unit, grpc, claim, grpc / claim))
        (claim,), (grpc,) = _medians(lambda one: [_warm(one, environment)], max(rounds // 3, 1))
        found.append(Row("a further lease, the clock", "ms", grpc, claim, grpc / claim))
    sizes = [(name, _installed(name)) for name in ("grpcio", "protobuf")]
    return [*found, *(Row(f"{name}, installed", "MB", size) for name, size in sizes)]


def main() -> int:
    options = arguments(__doc__ or "")
    say("leases by gRPC, and by claim (the floor)")
    report("control", rows(3 if options.quick else 15), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
