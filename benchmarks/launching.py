"""What the `rgpu` command adds to a program: the time until it answers, and until a program starts.

Commands take turns, so that other work of the machine slows all of them. The clock says what a user
waits for; processor time is steadier on a busy machine. The floor of `rgpu --version` is Python's
own start in the same environment, and of `rgpu run` the program alone.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness import Row, arguments, below, report, say
from benchmarks.server import Server, rgpu_command

_VERSION_MS = 60
_RUN_MS = 80


@dataclass(frozen=True, slots=True)
class Taken:
    """Milliseconds: of the clock, and of processors."""

    clock: float
    processor: float


def _once(command: Sequence[str], environment: Mapping[str, str]) -> Taken:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, env=environment, cwd="/", stdout=subprocess.DEVNULL, check=True)
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Taken(clock * 1e3, processor * 1e3)


def _medians(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], rounds: int
) -> dict[str, Taken]:
    """Runs the commands in turns, after one round that is not counted."""
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            once = _once(command, environment)
            if number:
                taken[name].append(once)
    return {
        name: Taken(
            statistics.median(one.clock for one in all_),
            statistics.median(one.processor for one in all_),
        )
        for name, all_ in taken.items()
    }


def rows(rounds: int) -> list[Row]:
    """Rows of `rgpu --version` and `rgpu run`."""
    with Server(device="emulated:1GiB") as server:
        environment = {**os.environ, "RGPU_SERVER": server.address("tcp")}
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "version": [rgpu_command(), "--version"],
            "true": ["true"],
            "run": [rgpu_command(), "run", "--", "true"],
            "ps": [rgpu_command(), "ps"],
        }
        taken = _medians(commands, environment, rounds)
    found = []
    for unit, value in (("clock", lambda x: x.clock), ("processor", lambda x: x.processor)):
        python, version, true, run, ps = (value(taken[name]) for name in commands)
        found += [
            below(f"rgpu --version, {unit}", "ms", version, _VERSION_MS, python),
            below(f"rgpu run adds, {unit}", "ms", run - true, _RUN_MS),
            Row(f"rgpu ps, {unit}", "ms", ps, python, ps / python),
        ]
    return found


def main() -> int:
    options = arguments(__doc__ or "")
    say("commands")
    report("launching", rows(5 if options.quick else 21), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
