"""What every benchmark shares: rows, the table, JSON, the command line, C programs, a server."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

NATIVE = Path(__file__).parent / "native"
_IDLE_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")
_HALT_POLL = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    value, floor: in `unit`; floor is what the same run measured without rgpu, if there is one.
    ratio: value / floor.
    target: what is to be reached, in words; met: whether it was.
    """

    name: str
    unit: str
    value: float
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


def cost(name: str, unit: str, value: float, floor: float, at_most: float) -> Row:
    """A cost that may be at most `at_most` times its floor."""
    ratio = value / floor
    return Row(name, unit, value, floor, ratio, f"at most {at_most:g} x floor", ratio <= at_most)


def rate(name: str, unit: str, value: float, floor: float, at_least: float) -> Row:
    """A rate that must be at least `at_least` times its floor."""
    ratio = value / floor
    return Row(name, unit, value, floor, ratio, f"at least {at_least:g} x floor", ratio >= at_least)


def below(name: str, unit: str, value: float, limit: float, floor: float | None = None) -> Row:
    """A figure that must not pass an absolute limit, whatever its floor."""
    ratio = None if floor is None else value / floor
    return Row(name, unit, value, floor, ratio, f"at most {limit:g} {unit}", value <= limit)


def above(name: str, unit: str, value: float, limit: float) -> Row:
    """A figure that must reach an absolute limit."""
    return Row(name, unit, value, None, None, f"at least {limit:g} {unit}", value >= limit)


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    lines = [f"{'figure':44} {'value':>10} {'floor':>10} {'ratio':>6}  {'target':22} met"]
    for row in rows:
        floor = "" if row.floor is None else f"{row.floor:.3f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        met = "" if row.met is None else ("yes" if row.met else "NO")
        label = f"{row.name} [{row.unit}]"
        lines.append(f"{label:44} {row.value:>10.3f} {floor:>10} {ratio:>6}  {row.target:22} {met}")
    return "\n".join(lines)


def machine() -> dict[str, object]:
    """The machine line that belongs to every figure."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cpus": os.cpu_count(),
        "cpu": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "idle": idle(),
    }


def idle() -> str:
    """What the processors of this machine do without work.

    Waking one that has halted takes tens of microseconds in a virtual machine, and threads are
    put elsewhere meanwhile.
    """
    driver = polls = ""
    with contextlib.suppress(OSError):
        driver = _IDLE_DRIVER.read_text().strip()
        polls = _HALT_POLL.read_text().strip()
    if driver != "haltpoll":
        return f"cpuidle driver {driver or 'none'}"
    return f"cpuidle driver haltpoll, guest_halt_poll_ns={polls}"


def arguments(
    description: str,
    parts: Sequence[str] = (),
    more: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The one command line of all benchmarks.

    parts: names of what can be measured alone; `parts` of the result are those to measure.
    more: adds what only one of them has.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="end within 40 seconds")
    parser.add_argument("--json", metavar="FILE", help="write the rows and the machine line there")
    if parts:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"only {', '.join(parts)}")
    if more is not None:
        more(parser)
    asked = parser.parse_args()
    for part in asked.parts if parts else ():
        if part not in parts:
            parser.error(f"there is no {part!r}: say some of {' '.join(parts)}")
    if parts and not asked.parts:
        asked.parts = list(parts)
    return asked


def report(name: str, rows: Sequence[Row], json_file: str | None) -> None:
    """Prints the table and writes the JSON."""
    print(table(rows))
    if json_file:
        Path(json_file).parent.mkdir(parents=True, exist_ok=True)
        body = {"benchmark": name, "machine": machine(), "rows": [asdict(row) for row in rows]}
        Path(json_file).write_text(json.dumps(body, indent=1) + "\n")


@contextlib.contextmanager
def compiled(*sources: str) -> Iterator[Path]:
    """A C program of `native/`, built for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as folder:
        program = Path(folder) / Path(sources[0]).stem
        paths = [str(NATIVE / source) for source in sources]
        flags = ["-O2", "-Wall", "-Wextra", "-rdynamic"]
        subprocess.run(["cc", *flags, "-o", str(program), *paths, "-ldl"], check=True)
        yield program


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
