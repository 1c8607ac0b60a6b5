"""The source distribution: it holds what a build needs, and says its version without git."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from helpers.needs import fixture_needs, needs, program

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
BUILD = "from scikit_build_core.build import build_sdist; build_sdist({folder!r})"


@pytest.fixture(scope="module")
@fixture_needs("build-backend", "checkout")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked distribution, in a folder that git does not know."""
    folder = tmp_path_factory.mktemp("sdist")
    script = BUILD.format(folder=str(folder))
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)
    (archive,) = folder.glob("rgpu_cuda-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
    (unpacked,) = (one for one in folder.iterdir() if one.is_dir())
    return unpacked


def test_it_brings_no_build_and_no_environment(source: Path) -> None:
    names = {path.name for path in source.iterdir()}
    assert names >= {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert not names & {"build", "dist", ".venv", ".git", ".ci"}


@needs("cmake")
def test_cmake_finds_every_source(source: Path, tmp_path: Path) -> None:
    version = source.name.split("-")[-1]
    done = subprocess.run(
        [
            program("cmake"),
            "-GNinja",
            f"-DCMAKE_MAKE_PROGRAM={program('cmake', 'ninja')}",
            f"-S{source}",
            f"-B{tmp_path}",
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DSKBUILD_PROJECT_VERSION_FULL={version}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build.txt").read_text().startswith(f"version {version}\nbuild commit ")


def test_its_version_is_that_of_the_archive(source: Path) -> None:
    """A build from it has no git: the version comes from PKG-INFO."""
    script = (
        "from scikit_build_core.metadata.setuptools_scm import dynamic_metadata;"
        "print(dynamic_metadata('version'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert source.name == f"rgpu_cuda-{done.stdout.strip()}"
