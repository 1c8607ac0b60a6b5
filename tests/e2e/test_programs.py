"""Unmodified programs from PyPI, in a process without a GPU, over both transports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.server import Server, run_client

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("program", sorted(p.stem for p in PROGRAMS.glob("*.py")))
def test_program(server: Server, transport: str, program: str) -> None:
    result = run_client(server.address(transport), sys.executable, str(PROGRAMS / f"{program}.py"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "ok"


def test_eight_sessions_at_once(server: Server) -> None:
    command = [str(Path(sys.executable).parent / "rgpu"), "run", "--server", server.tcp, "--"]
    programs = [str(PROGRAMS / name) for name in ("numba_saxpy.py", "numba_reduce.py")]
    running = [
        subprocess.Popen(
            [*command, sys.executable, programs[i % 2]],
            cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for i in range(8)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=170)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 8, outputs
