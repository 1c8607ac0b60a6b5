"""Unmodified programs from PyPI, in a process without a GPU, over every transport."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.server import Server, run_client

PROGRAMS = Path(__file__).parent / "programs"


Run = Future[subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, server: Server) -> Iterator[dict[tuple[str, str], Run]]:
    """Every program that was asked for on every transport, two at a time.

    One alone leaves half of a small machine idle, and most of its time goes into importing numba.
    """

    def run(transport: str, program: str) -> subprocess.CompletedProcess[str]:
        return run_client(
            server.address(transport), sys.executable, str(PROGRAMS / f"{program}.py")
        )

    asked = [
        (item.callspec.params["transport"], item.callspec.params["program"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_program
    ]
    with ThreadPoolExecutor(2) as pool:
        yield {pair: pool.submit(run, *pair) for pair in asked}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("program", sorted(p.stem for p in PROGRAMS.glob("*.py")))
def test_program(runs: dict[tuple[str, str], Run], transport: str, program: str) -> None:
    result = runs[transport, program].result()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "ok"


def test_eight_sessions_at_once(server: Server) -> None:
    command = [str(Path(sys.executable).parent / "rgpu"), "run", "--server", server.tcp]
    command += ["--memory", "200MiB", "--"]  # each run has a lease of its own
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
