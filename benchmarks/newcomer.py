"""What a newcomer waits for: from an empty virtual environment to the first result, from a wheel.

    python -m benchmarks.newcomer dist/rgpu_cuda-...whl

Each of the three commands finds no compiler: PATH has links to nothing but what a bare machine has.
Packages come from the index that pip is set to. With `--cached`, those of earlier runs are used.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Row, below, report, say

_INSTALL_SECONDS = 60
# What the commands of a virtual environment call.
_PROGRAMS = ("env", "sh", "uname")


def _bare(folder: Path) -> str:
    """Returns a PATH without compilers."""
    folder.mkdir()
    for name in _PROGRAMS:
        found = next(path for place in ("/bin", "/usr/bin") if (path := Path(place, name)).exists())
        (folder / name).symlink_to(found)
    return str(folder)


@dataclass(frozen=True, slots=True)
class _Ran:
    """Seconds of the clock and of processors, and what the command printed."""

    clock: float
    processors: float
    printed: str


def _run(command: list[str], environment: dict[str, str]) -> _Ran:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, env=environment, cwd="/", stdout=subprocess.PIPE, text=True, check=True
    )
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return _Ran(clock, processors, done.stdout)


def rows(wheel: Path, cached: bool) -> list[Row]:
    """The seconds of each command."""
    with tempfile.TemporaryDirectory(prefix="rgpu-newcomer-") as name:
        folder = Path(name)
        place = folder / "venv"
        kept = {key: text for key, text in os.environ.items() if key.startswith(("PIP_", "SSL_"))}
        environment = {**kept, "PATH": _bare(folder / "bin"), "HOME": name, "LANG": "C.UTF-8"}
        if cached:
            environment["HOME"] = os.environ["HOME"]
        made = _run([sys.executable, "-m", "venv", str(place)], environment)
        pip = [str(place / "bin/python"), "-m", "pip", "install", "--quiet"]
        pip += ["--only-binary=:all:", f"{wheel.resolve()}[demo]"]
        installed = _run(pip, environment)
        environment["PATH"] = f"{place / 'bin'}{os.pathsep}{environment['PATH']}"
        ran = _run([str(place / "bin/rgpu"), "demo"], environment)
    print(ran.printed)
    return [
        Row("make the environment", "s", made.clock),
        below("install", "s", installed.clock, _INSTALL_SECONDS),
        Row("install, processors", "s", installed.processors),
        Row("rgpu demo", "s", ran.clock),
        Row("all three commands", "s", made.clock + installed.clock + ran.clock),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--cached", action="store_true", help="use the user's cache of pip")
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    asked = parser.parse_args()
    say("the newcomer")
    report("newcomer", rows(asked.wheel, asked.cached), asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
