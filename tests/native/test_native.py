"""Compiles the C++ unit tests and fuzz targets with sanitizers, and runs them.

The same sources are under CTest (`make native`, `make sanitize`); here they are part of `pytest`,
which needs no more than the compiler that built the package.  What the tests are made of stands in
CMakeLists.txt.  RGPU_TEST_BUILD names a folder where CMake has compiled them; without it only
`pytest --all` compiles and runs them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers.builder import LONG_BUILD, ROOT, Builder, built, checked, run

NATIVE = ROOT / "rgpu_common" / "native"
GATE = ROOT / "rgpu_server" / "executor" / "gate"
# All of it is compiled first, with sanitizers: minutes on a machine that does other things too.
pytestmark = pytest.mark.timeout(900)

# Inputs for a target: replay.cc runs 200 damaged forms of each seed.
LIBFUZZER_RUNS = 3_000
LISTS = (ROOT / "tests" / "native" / "CMakeLists.txt").read_text()
_groups = re.search(r"foreach\(group ([^)]+)\)", LISTS)
assert _groups is not None
GROUPS = _groups[1].split()
PARTS = [ROOT / name for name in re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(\S+\.cc)", LISTS)]
IMAGES = [ROOT / "rgpu_emu" / "device" / f"{name}.cc" for name in ("image", "fatbin", "lz4")]
GATEWAY = ROOT / "rgpu_server" / "gateway"
TARGETS = {
    "channels": [],
    "chunks": [GATEWAY / "http2" / "chunks.cc"],
    "commands": [],
    "frame_reader": [],
    "graph_definition": [],
    "handshake": [],
    "http2": [GATEWAY / "http2" / f"{name}.cc" for name in ("grpc", "nghttp2", "session")],
    "image": IMAGES,
    "probe": [],
    "ring": [],
    "zip": [],
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    stories = ROOT / "tests" / "native" / "gate_stories"
    secrets = ROOT / "tests" / "native" / "secret_addresses.txt"
    files = f'-DRGPU_GATE_STORIES="{stories}"', f'-DRGPU_SECRET_ADDRESSES="{secrets}"'
    flags = *files, '-DRGPU_RELEASE="0"'
    return Builder(tmp_path_factory.mktemp("native"), *flags)


@pytest.fixture(scope="module")
def base(builder: Builder) -> list[Path]:
    sources = [s for s in sorted(NATIVE.rglob("*.cc")) if not s.name.startswith("native_")]
    generated = builder.generate()
    codecs = [generated / f"{name}.gen.cc" for name in ("compiler", "handshake", "worker")]
    return builder.objects([*sources, *codecs])


@pytest.fixture(scope="module")
def unit_tests(request: pytest.FixtureRequest) -> Path:
    there = built("rgpu_native_tests")
    if there is not None:
        return there
    sources = [*sorted((ROOT / "tests" / "native").glob("*.cc")), *PARTS]
    return _linked(request, "rgpu_native_tests", sources)


def _linked(request: pytest.FixtureRequest, name: str, sources: list[Path]) -> Path:
    builder: Builder = request.getfixturevalue("builder")
    base: list[Path] = request.getfixturevalue("base")
    return builder.link(name, [*builder.objects(sources), *base])


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("seeds")
    checked(sys.executable, ROOT / "fuzz" / "seeds.py", out)
    return out


@pytest.mark.parametrize("source", sorted(GATE.iterdir()), ids=lambda source: source.name)
def test_the_gate_decides_without_lock_clock_page_and_driver(source: Path) -> None:
    """GateState gets all of these from events, or its tests would not tell what happens."""
    impure = re.compile(
        r"#include <(?:atomic|condition_variable|mutex|thread|chrono|ctime|time\.h|unistd\.h)>"
        r'|#include "rgpu_server/executor/(?!gate/)'
        r"|NowNs\(|ReadGrant\(|WriteGrant\(|lease::Page\b"
    )
    assert impure.findall(source.read_text()) == []


@LONG_BUILD
def test_every_group_is_here(unit_tests: Path) -> None:
    assert run(unit_tests, "--list").stdout.split() == GROUPS


@LONG_BUILD
@pytest.mark.parametrize("group", GROUPS)
def test_native(unit_tests: Path, group: str) -> None:
    done = run(unit_tests, group)
    assert done.returncode == 0, done.stdout + done.stderr
    # Only an emulated kernel, qemu-user's, lacks what a test needs.
    assert done.stdout.endswith(" 0 failed, 0 skipped\n"), done.stdout


@LONG_BUILD
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz_seeds(request: pytest.FixtureRequest, seeds: Path, target: str) -> None:
    name = f"fuzz_{target}"
    fuzz = [ROOT / "fuzz" / f"{part}.cc" for part in (target, "replay")]
    program = built(name)
    if program is None:
        program, options = _linked(request, name, [*fuzz, *TARGETS[target]]), []
    else:  # libFuzzer's, which damages the seeds itself
        options = ["-seed=1", f"-runs={LIBFUZZER_RUNS}"]
    done = run(program, *options, seeds / target)
    assert done.returncode == 0, done.stdout + done.stderr
