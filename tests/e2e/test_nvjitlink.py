"""numba-cuda in an environment that has nvJitLink. It would send SASS, which an emulated device
does not run. `make compat` has the real library; here a library of the same name takes its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.server import Server, run_client

PROGRAM = Path(__file__).parent / "programs" / "numba_saxpy.py"
# All that numba-cuda asks for before it counts on nvJitLink.
STAND_IN = """
int nvJitLinkVersion(unsigned *major, unsigned *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
const int __nvJitLinkVersion_13_0 = 0;
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    """LD_LIBRARY_PATH with a library that is called nvJitLink."""
    folder = tmp_path_factory.mktemp("nvjitlink")
    source = folder / "nvjitlink.c"
    source.write_text(STAND_IN)
    name = "libnvJitLink.so.13"
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", str(source), f"-Wl,-soname,{name}"]
    subprocess.run([*command, "-o", str(folder / name)], check=True, capture_output=True)
    return str(folder)


def test_a_program_counts_on_nvjitlink(server: Server, stand_in: str) -> None:
    result = run_client(
        server.unix, sys.executable, str(PROGRAM), timeout=170, LD_LIBRARY_PATH=stand_in
    )
    assert result.returncode == 1, result.stdout
    assert "nvJitLink" in result.stderr


@pytest.mark.full
def test_nvjitlink_is_hidden(server: Server, stand_in: str) -> None:
    result = run_client(
        server.unix,
        sys.executable,
        str(PROGRAM),
        timeout=170,
        LD_LIBRARY_PATH=stand_in,
        RGPU_HIDE_NVJITLINK="1",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ok"


@pytest.mark.full
def test_nvjitlink_is_hidden_in_the_running_process(server: Server, stand_in: str) -> None:
    source = (
        "import runpy, rgpu_client\n"
        f"rgpu_client.connect({server.unix!r})\n"
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "LD_LIBRARY_PATH": stand_in, "RGPU_HIDE_NVJITLINK": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ok"
