"""`make warnings`: g++ reads the C++ that is installed, with warnings as errors; it writes nothing.

That takes a fifth of a build: several files are read as one, after a precompiled header. Warnings
for which a compiler must optimise are left to builds (`RGPU_WERROR`).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "warnings"


class Unit(NamedTuple):
    """What is read as one. output: relative to FOLDER, as Ninja names it."""

    words: list[str]
    output: str

    @property
    def precompiled(self) -> bool:
        return self.output.endswith(".gch")


def configure() -> list[Unit]:
    """Has CMake write down what to read."""
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", FOLDER, "-G", "Ninja", "-DCMAKE_CXX_COMPILER=g++",
         "-DRGPU_WERROR=ON", "-DCMAKE_UNITY_BUILD=ON", f"-DPython3_EXECUTABLE={sys.executable}"],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    entries = json.loads((FOLDER / "compile_commands.json").read_text())
    return [
        Unit(shlex.split(entry["command"]), os.path.relpath(FOLDER / entry["output"], FOLDER))
        for entry in entries
    ]


def read(unit: Unit, folder: Path = FOLDER) -> str:
    """Returns what g++ says; nothing if all is well. folder: where it runs."""
    at = unit.words.index("-o")
    words = [*unit.words[:at], *unit.words[at + 2 :], "-fsyntax-only"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return done.stderr or f"{shlex.join(words)} ended with {done.returncode}"


def main() -> int:
    units = configure()
    headers = [unit.output for unit in units if unit.precompiled]
    subprocess.run(["ninja", "-C", FOLDER, "--quiet", *headers], check=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        said = [one for one in pool.map(read, (u for u in units if not u.precompiled)) if one]
    print("\n".join(said) or f"{len(units)} units, no warning")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
