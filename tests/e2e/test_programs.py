"""Unmodified programs from PyPI, in a process without a GPU, over every transport.

Each program runs over shared memory, and two programs over each of the other transports: a
transport carries the same frames for all of them.  `make soak` runs each over all transports.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.counts import count, repeated_over
from helpers.needs import needs
from helpers.server import TRANSPORTS, Server, run_client

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))
AT_ONCE = count("RGPU_TEST_SESSIONS", 4)
Run = Future[subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, server: Server) -> Iterator[dict[tuple[str, str], Run]]:
    """Every program that was asked for on every transport, two at a time.

    One alone leaves half of a small machine idle, and most of its time goes into importing numba.
    """

    def run(transport: str, program: str) -> subprocess.CompletedProcess[str]:
        return run_client(
            server.address(transport),
            sys.executable,
            str(PROGRAMS / f"{program}.py"),
            timeout=170,
        )

    asked = [
        (item.callspec.params["transport"], item.callspec.params["program"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_program
    ]
    with ThreadPoolExecutor(2) as pool:
        yield {pair: pool.submit(run, *pair) for pair in asked}
        pool.shutdown(cancel_futures=True)


def _pairs() -> list[Any]:
    """Every transport with every program, most of them marked `full`."""
    pairs: list[Any] = []
    others = [transport for transport in TRANSPORTS if transport != "shm"]
    for transport in TRANSPORTS:
        name = transport if isinstance(transport, str) else str(transport.values[0])
        marks = [] if isinstance(transport, str) else list(transport.marks)
        all_programs = name in ("shm", *repeated_over(name))
        for number, program in enumerate(NAMES):
            turn = others[number % len(others)] if number < 2 * len(others) else "shm"
            if not all_programs and transport != turn:
                continue
            more = [] if transport in ("shm", turn) else [pytest.mark.full]
            if program.startswith("taichi"):
                more.append(needs("libx11"))
            pairs.append(pytest.param(name, program, marks=[*marks, *more], id=f"{name}-{program}"))
    return pairs


@pytest.mark.parametrize(("transport", "program"), _pairs())
def test_program(runs: dict[tuple[str, str], Run], transport: str, program: str) -> None:
    result = runs[transport, program].result()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "ok"


def test_sessions_at_once(server: Server) -> None:
    command = [str(Path(sys.executable).parent / "rgpu"), "run", "--server", server.tcp]
    # Each run has a lease of its own. The leases of the last programs may not have ended yet.
    command += ["--memory", "100MiB", "--"]
    programs = [str(PROGRAMS / name) for name in ("numba_saxpy.py", "numba_reduce.py")]
    running = [
        subprocess.Popen(
            [*command, sys.executable, programs[i % 2]],
            cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for i in range(AT_ONCE)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=170)[0] for process in running]
    assert [process.returncode for process in running] == [0] * AT_ONCE, outputs
