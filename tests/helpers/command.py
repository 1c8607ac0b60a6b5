"""The `rgpu` command for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# For servers of tests that do not test isolation. These tests also run in containers that give
# processes no network namespace. A machine that has all measures still isolates the processes.
WEAK_ISOLATION = "--allow-weak-isolation=network-namespace,landlock,own-user"


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
        timeout=60,
        check=False,
    )
