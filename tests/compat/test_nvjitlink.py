"""numba-cuda with the real nvJitLink: a sentence that says what to set, and what is set works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.server import Server, run_client

PROGRAMS = sorted((Path(__file__).parents[1] / "e2e" / "programs").glob("numba_*.py"))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of nvJitLink, which the environment of the other tests must not have."""
    folder = tmp_path_factory.mktemp("nvjitlink")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--target", str(folder), "nvidia-nvjitlink==13.*"], check=True)
    return str(next(folder.rglob("libnvJitLink.so.13")).parent)


def test_the_sentence_says_what_to_set(libraries: str) -> None:
    with Server() as server:
        result = run_client(
            server.unix, sys.executable, str(PROGRAMS[0]), LD_LIBRARY_PATH=libraries
        )
    assert result.returncode == 1
    assert "set RGPU_HIDE_NVJITLINK=1 before `rgpu run`" in result.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_hidden(libraries: str, program: Path) -> None:
    with Server() as server:
        result = run_client(
            server.unix,
            sys.executable,
            str(program),
            LD_LIBRARY_PATH=libraries,
            RGPU_HIDE_NVJITLINK="1",
        )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ok"
