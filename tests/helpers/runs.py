"""Runs `rgpu run` with programs that print their memory and go on until they are told to end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import clients
from helpers.asking import leases_of
from helpers.command import rgpu_command
from helpers.server import Server
from helpers.waiting import wait_until

MIB = 1 << 20
NOT_STARTED = 125
SHOWS = "cuda.open(); print(cuda.memory()[1], flush=True)"
STAYS = SHOWS + "; input()"


@contextmanager
def run(
    server: str, *options: str, source: str = STAYS, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Runs `rgpu run OPTIONS` with a program that goes on until its input ends."""
    process = subprocess.Popen(
        [rgpu_command(), "run", "--server", server, *options, "--", *clients.command(source)],
        env={**clients.environment(None), **environment}, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate("\n", timeout=60)
    return process.returncode, output, errors


def leases(server: str) -> list[dict[str, object]]:
    """Returns the leases that belong to one run each."""
    return [lease for lease in leases_of(server) if str(lease["key"]).startswith("run-")]


def gone(server: str) -> None:
    wait_until(lambda: not leases(server))


def exact(server: Server) -> str:
    return f"tcp:{server.tcp}"


def refused_before(tmp_path: Path, server: str, *options: str, **environment: str) -> str:
    """Returns the one line that a refused run prints; asserts that its program did not start."""
    mark = tmp_path / "started"
    done = subprocess.run(
        [rgpu_command(), "run", "--server", server, *options, "--", "touch", str(mark)],
        env={**clients.environment(None), **environment}, cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (NOT_STARTED, "")
    assert not mark.exists()
    assert done.stderr.count("\n") == 1
    return done.stderr
