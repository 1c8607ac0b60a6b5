"""Compiles C++ of the repository for tests, with sanitizers where the compiler has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRECOMPILED = ROOT / "rgpu_common" / "native" / "precompiled.h"
FLAGS = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DRGPU_SANITIZED"]
DEADLINE_SECONDS = 300
# Precompiling the headers takes as long as they take in a few sources.
MANY_SOURCES = 10


# A folder in which CMake has built the programs with sanitizers (`make sanitize-build`), so that they
# are not compiled again here.
_BUILT = "RGPU_TEST_BUILD"
# For tests of a program of a hundred sources, which take minutes to compile with sanitizers.
LONG_BUILD = pytest.mark.slow if os.environ.get(_BUILT) else pytest.mark.full


def built(name: str) -> Path | None:
    """Returns a program of the folder that RGPU_TEST_BUILD names; None if it names none."""
    folder = os.environ.get(_BUILT)
    if not folder:
        return None
    found = [path for path in Path(folder).resolve().rglob(name) if path.is_file()]
    assert len(found) == 1, f"{_BUILT}: {folder} has no program {name}"
    return found[0]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; raises no exception if the command fails."""
    return subprocess.run(
        [str(word) for word in command],
        cwd="/",
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def checked(*command: str | Path) -> None:
    """Runs a command, and asserts that it succeeds."""
    done = run(*command)
    assert done.returncode == 0, " ".join(map(str, command)) + "\n" + done.stdout + done.stderr


class Builder:
    """Compiles each source once and links programs from the object files."""

    def __init__(self, folder: Path, *flags: str) -> None:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        assert compiler, "no C++ compiler: install g++ ('apt-get install g++')"
        self.folder = folder
        self.compiler = compiler
        self._flags = [*FLAGS, *self._sanitizers(), f"-I{ROOT}", f"-I{folder}", *flags]
        self._precompiled = False

    def _sanitizers(self) -> list[str]:
        probe = self.folder / "probe.cc"
        probe.write_text("int main() { return 0; }\n")
        linked = run(self.compiler, *SANITIZE, probe, "-o", self.folder / "probe")
        # Some distributions ship the compiler without the sanitizers' libraries.
        return SANITIZE if linked.returncode == 0 else []

    def _precompile(self) -> None:
        """Precompiles the headers of the standard library for all later sources."""
        header = self.folder / "all.h"
        header.write_text(f'#include "{PRECOMPILED}"\n')
        checked(self.compiler, *self._flags, "-x", "c++-header", header, "-o", f"{header}.gch")
        self._flags += ["-include", str(header)]
        self._precompiled = True

    def objects(self, sources: list[Path]) -> list[Path]:
        """Compiles the sources in parallel; returns the object files."""
        if len(sources) >= MANY_SOURCES and not self._precompiled:
            self._precompile()
        outputs = [self.folder / (self._name(s).replace("/", "_") + ".o") for s in sources]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(self._compile, sources, outputs))
        return outputs

    def generate(self) -> Path:
        """Writes what cudaspec generates where sources find it; the folder."""
        if not (self.folder / "gen").exists():
            checked(sys.executable, "-m", "cudaspec", self.folder)
        return self.folder / "gen"

    def _name(self, source: Path) -> str:
        return str(source.relative_to(ROOT if source.is_relative_to(ROOT) else self.folder))

    def _compile(self, source: Path, output: Path) -> None:
        checked(self.compiler, *self._flags, "-c", source, "-o", output)

    def link(self, name: str, objects: list[Path]) -> Path:
        """Links a program and returns it."""
        program = self.folder / name
        checked(self.compiler, *self._flags, *objects, "-o", program)
        return program
