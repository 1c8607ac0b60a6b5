"""Compiles the C++ unit tests and fuzz targets with sanitizers, and runs them.

The same sources are under CTest (`make native`, `make sanitize`); here they are part of `pytest`,
which needs no more than the compiler that built the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "rgpu_common" / "native"
GROUPS = ["base", "connect", "connection", "frames", "handshake", "lease", "outbox", "send"]
TARGETS = ["commands", "frame_reader", "handshake"]
FLAGS = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
DEADLINE_SECONDS = 120


def _run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
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


def _checked(*command: str | Path) -> None:
    done = _run(*command)
    assert done.returncode == 0, " ".join(map(str, command)) + "\n" + done.stdout + done.stderr


class Builder:
    """Compiles sources once each and links them."""

    def __init__(self, folder: Path) -> None:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        assert compiler, "no C++ compiler: install g++ ('apt-get install g++')"
        self.folder = folder
        self._compiler = compiler
        self._flags = [*FLAGS, *self._sanitizers(), f"-I{ROOT}", f"-I{folder}"]

    def _sanitizers(self) -> list[str]:
        probe = self.folder / "probe.cc"
        probe.write_text("int main() { return 0; }\n")
        linked = _run(self._compiler, *SANITIZE, probe, "-o", self.folder / "probe")
        # Some distributions ship the compiler without the sanitizers' libraries.
        return SANITIZE if linked.returncode == 0 else []

    def objects(self, sources: list[Path]) -> list[Path]:
        outputs = [
            self.folder / (str(s.relative_to(ROOT)).replace("/", "_") + ".o") for s in sources
        ]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(self._compile, sources, outputs))
        return outputs

    def _compile(self, source: Path, output: Path) -> None:
        _checked(self._compiler, *self._flags, "-c", source, "-o", output)

    def link(self, name: str, objects: list[Path]) -> Path:
        program = self.folder / name
        _checked(self._compiler, *self._flags, *objects, "-o", program)
        return program


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def base(builder: Builder) -> list[Path]:
    sources = [s for s in sorted(NATIVE.rglob("*.cc")) if not s.name.startswith("native_")]
    return builder.objects(sources)


@pytest.fixture(scope="module")
def unit_tests(builder: Builder, base: list[Path]) -> Path:
    own = builder.objects(sorted((ROOT / "tests" / "native").glob("*.cc")))
    return builder.link("rgpu_native_tests", [*own, *base])


@pytest.fixture(scope="module")
def seeds(builder: Builder) -> Path:
    out = builder.folder / "seeds"
    _checked(sys.executable, ROOT / "fuzz" / "seeds.py", out)
    return out


def test_every_group_is_here(unit_tests: Path) -> None:
    assert _run(unit_tests, "--list").stdout.split() == GROUPS


@pytest.mark.parametrize("group", GROUPS)
def test_native(unit_tests: Path, group: str) -> None:
    done = _run(unit_tests, group)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_fuzz_seeds(builder: Builder, base: list[Path], seeds: Path, target: str) -> None:
    if not (builder.folder / "gen").exists():
        _checked(sys.executable, "-m", "cudaspec", builder.folder)
    own = builder.objects([ROOT / "fuzz" / f"{target}.cc", ROOT / "fuzz" / "replay.cc"])
    program = builder.link(f"fuzz_{target}", [*own, *base])
    done = _run(program, seeds / target)
    assert done.returncode == 0, done.stdout + done.stderr
