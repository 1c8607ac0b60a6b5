"""The `rgpu` command for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# For servers of tests that do not test isolation. These tests also run in containers that give
# processes no network namespace. A machine that has all measures still isolates the processes.
WEAK_ISOLATION = "--allow-weak-isolation=network-namespace,landlock,own-user"
_SECONDS = 60


def rgpu_command() -> str:
    """Returns the path of the `rgpu` beside the running Python."""
    return str(Path(sys.executable).parent / "rgpu")


def run_rgpu(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `rgpu` to its end, for at most a minute, with this process's environment and more."""
    return run_rgpu_in(dict(os.environ), *arguments, **environment)


def run_rgpu_plain(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Like `run_rgpu`, but this process's own settings of rgpu do not count."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("RGPU_")}
    return run_rgpu_in(clean, *arguments, **environment)


def run_rgpu_in(
    environment: dict[str, str], *arguments: str, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Like `run_rgpu`, with exactly this environment and `extra`."""
    return subprocess.run(
        [rgpu_command(), *arguments],
        env={**environment, **extra},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


@contextmanager
def running(said: str, *words: str) -> Iterator[str]:
    """Runs a command that says `said` once it works. It ends with success at SIGTERM.

    Yields:
        Its first line.
    """
    # A file, because a full pipe would stop a command that logs much.
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
        [rgpu_command(), *words], stdout=subprocess.PIPE, stderr=errors, text=True, cwd="/"
    ) as process:  # fmt: skip

        def told() -> str:
            errors.seek(0)
            return errors.read()

        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert said in line, line or told()
            yield line
            process.terminate()
            assert process.wait(_SECONDS) == 0, told()
            assert "Traceback" not in told()
        finally:
            process.kill()
