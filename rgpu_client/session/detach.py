"""Starts a process beside a program that is not the program's child: it may wait for all of
those.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS = 30
_FORK = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
# What a program preloads is for the program.
_FOR_THE_PROGRAM = ("LD_PRELOAD", "LD_LIBRARY_PATH")


def detach(
    module: str,
    words: Sequence[str],
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    output: int = subprocess.DEVNULL,
) -> None:
    """Runs a Python module in a process of its own session; OSError or SubprocessError."""
    clean = {k: v for k, v in environment.items() if k not in _FOR_THE_PROGRAM}
    command = [sys.executable, "-m", module, *words]
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", _FORK, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=output,
        env=clean,
        cwd="/",
        pass_fds=tuple(descriptors),
        start_new_session=True,
        check=True,
        timeout=_SECONDS,
    )


def runtime_folder(environment: Mapping[str, str]) -> str | None:
    """Returns where private folders with sockets belong; None: where temporary files are."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    return folder if folder and os.access(folder, os.W_OK | os.X_OK) else None
