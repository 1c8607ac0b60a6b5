"""A wheel as people get it: what its files need, and that it works where no compiler is.

RGPU_WHEEL names the wheel; without it these tests skip, because building one takes minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.needs import fixture_needs, needs, program

ELF = b"\x7fELF"
MOST_BYTES = 6_000_000
GLIBC = re.compile(rb"GLIBC_2\.([0-9]+)")
TAG = re.compile(r"manylinux_2_([0-9]+)_")
OWN = re.compile(r"(cu|nvml|rgpu_)")
SECONDS = 300


@pytest.fixture(scope="module")
@fixture_needs("wheel")
def wheel() -> Path:
    path = Path(os.environ["RGPU_WHEEL"]).resolve()
    assert path.is_file(), f"RGPU_WHEEL: there is no file {path}"
    return path


def native(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if content[:4] == ELF:
                yield name, content


def test_it_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES


def test_its_files_need_the_c_library_that_its_name_says(wheel: Path) -> None:
    tag = TAG.search(wheel.name)
    if tag is None:
        pytest.skip(f"{wheel.name} is for the distribution that it was built on")
    for name, content in native(wheel):
        needed = max((int(minor) for minor in GLIBC.findall(content)), default=0)
        assert needed <= int(tag[1]), f"{name} needs glibc 2.{needed}"


def test_its_files_bring_the_runtime_of_cpp(wheel: Path) -> None:
    names = dict(native(wheel))
    assert {Path(name).name for name in names} > {"libcuda.so.1", "rgpu-worker"}
    for name, content in names.items():
        assert b"GLIBCXX_" not in content, name
        assert b"libc++.so" not in content, name


def test_its_waits_go_by_the_monotonic_clock(wheel: Path) -> None:
    """LLVM's library would wait by the wall clock, because of the old C library's headers. The files
    look for the machine's function by its name.
    """
    for name, content in native(wheel):
        if b"_ZNSt3__118condition_variable" in content or Path(name).name == "rgpu-worker":
            assert b"pthread_cond_clockwait" in content, name


@needs("binutils")
def test_its_libraries_export_nothing_but_their_own_functions(wheel: Path, tmp_path: Path) -> None:
    """Programs load them, so a function of the C++ runtime would take the place of the program's."""
    nm = program("binutils", "nm")
    found: set[str] = set()
    for name, content in native(wheel):
        if ".so" in Path(name).name:
            (tmp_path / "library").write_bytes(content)
            command = [nm, "--dynamic", "--defined-only", "--format=posix", "library"]
            done = subprocess.run(
                command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
            )
            found |= {line.split()[0] for line in done.stdout.splitlines()}
    assert {"cuInit", "nvmlInit_v2", "rgpu_claim_open"} <= found
    assert not {name for name in found if not OWN.match(name)}


class Place:
    """A virtual environment, and programs in it that find no compiler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=SECONDS)

    def run(self, *words: str) -> str:
        """Runs a program of the environment and returns what it printed."""
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env={"PATH": str(self.bin), "HOME": str(self.folder), "LANG": "C.UTF-8"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def borrow(self) -> None:
        """Adds the packages of the running Python, but for those of rgpu and of this environment.

        Links, because cuda-pathfinder searches the folders of packages alone.
        """
        (own,) = (self.folder / "lib").glob("python*/site-packages")
        there = {path.name for path in own.iterdir()}
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if path.name not in there and not path.name.startswith("rgpu_cuda-"):
                (own / path.name).symlink_to(path)


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_it_is_all_that_a_machine_without_a_compiler_needs(wheel: Path, tmp_path: Path) -> None:
    place = Place(tmp_path / "venv")
    place.run("python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", str(wheel))
    version = wheel.name.split("-")[1]
    assert place.run("rgpu", "--version").startswith(f"rgpu {version} (protocol ")
    assert "\n  run " in place.run("rgpu", "--help")
    assert "rgpu serve --config" in place.run("rgpu", "help", "server")
    assert place.run("netprobe", "--version")
    path = place.run("python", "-c", "import rgpu_client; print(rgpu_client.library_path())")
    assert (Path(path.strip()) / "libcuda.so.1").is_file()


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_its_demo_runs(wheel: Path, tmp_path: Path) -> None:
    """The packages of the extra `demo`, which are large, are those of the running Python."""
    place = Place(tmp_path / "venv")
    place.run("python", "-m", "pip", "install", "--quiet", "--no-deps", str(wheel))
    place.borrow()
    said = place.run("python", "-c", "import rgpu_client; print(rgpu_client.__file__)")
    assert str(place.folder) in said
    assert "emulated device" in place.run("rgpu", "demo")
