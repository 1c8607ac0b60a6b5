"""`make gpu-check` itself: its message without a GPU, and its table, with the emulated device in
place of NVIDIA's driver.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rgpu_common.parts import compiled_part

pytestmark = pytest.mark.full

CHECK = Path(__file__).resolve().parent / "check.py"


def check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), *arguments],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_a_gpu_it_says_so_in_a_sentence() -> None:
    done = check("--driver", "libno-such-driver.so.1")
    assert done.returncode == 0
    assert done.stdout.startswith("There is no GPU to check on: ")
    assert len(done.stdout.splitlines()) == 1


def test_our_own_library_is_not_the_driver() -> None:
    done = check("--driver", str(compiled_part("rgpu_client", "lib/libcuda.so.1")))
    assert "is rgpu's own library" in done.stdout


def test_the_table(tmp_path: Path) -> None:
    done = check(
        *(
            "--driver",
            str(compiled_part("rgpu_emu", "lib/librgpu_emu.so")),
            "blocking_free",
            "low_heap",
            "free_across_processes",
        ),
        RGPU_EMU_COMPILER=f"{sys.executable} -m rgpu_emu.compiler",
        RGPU_EMU_CACHE=str(tmp_path),
        RGPU_EMU_MEMORY=str(1 << 30),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()}
    assert rows["blocking_free"].count(" s") == 2
    assert rows["free_across_processes"].rstrip().endswith("-")
    assert {"open", "synchronous_call", "launch_issue", "alloc_free", "to_device"} <= rows.keys()
    assert "There is no MIG slice to check on." in done.stdout


def test_each_mig_slice_is_checked(tmp_path: Path) -> None:
    """A list as `nvidia-smi -L` prints it."""
    uuid = "MIG-33333333-3333-3333-3333-333333333333"
    listing = tmp_path / "nvidia-smi"
    listing.write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\n"
        f"echo '  MIG 1g.10gb     Device  0: (UUID: {uuid})'\n"
    )
    listing.chmod(0o755)
    done = check(
        *("--driver", str(compiled_part("rgpu_emu", "lib/librgpu_emu.so")), "blocking_free"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        RGPU_EMU_COMPILER=f"{sys.executable} -m rgpu_emu.compiler",
        RGPU_EMU_CACHE=str(tmp_path),
        RGPU_EMU_MEMORY=str(1 << 30),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("1g.10gb"))
    assert uuid[:33] in row
    assert row.count(" s") == 2
