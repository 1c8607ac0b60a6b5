"""Starts a process beside a program that is not the program's child: it may wait for all of
those.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

_SECONDS = 30
_FORK = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
# What a program preloads is for the program.
_FOR_THE_PROGRAM = ("LD_PRELOAD", "LD_LIBRARY_PATH")
# Their values may be relative to where the program is started, and agents are elsewhere.
_FILES = (
    "RGPU_TOKEN_FILE", "RGPU_TLS_CA", "RGPU_TLS_CERT", "RGPU_TLS_KEY", "RGPU_AGENT_TEXTFILE",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip


def detach(
    module: str,
    words: Sequence[str],
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    output: int = subprocess.DEVNULL,
) -> None:
    """Runs a Python module in a process of its own session; OSError or SubprocessError."""
    clean = {k: v for k, v in environment.items() if k not in _FOR_THE_PROGRAM}
    clean.update((name, os.path.abspath(clean[name])) for name in _FILES if clean.get(name))
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


def serve_beside(
    module: str,
    words: Sequence[str],
    listener: socket.socket,
    environment: Mapping[str, str],
    output: int = subprocess.DEVNULL,
) -> None:
    """`detach` for an agent that serves `listener`, whose socket lies in a `private_folder`, as
    long as this process lives, whatever that executes meanwhile.
    """
    program = os.pidfd_open(os.getpid())
    try:
        fds = (listener.fileno(), program)
        known = ["--listen-fd", str(fds[0]), "--program-fd", str(fds[1])]
        known += ["--folder", os.path.dirname(listener.getsockname())]
        detach(module, [*known, *words], fds, environment, output)
    finally:
        os.close(program)


@contextlib.contextmanager
def private_folder(prefix: str, environment: Mapping[str, str]) -> Iterator[str]:
    """A folder of this user's for the socket of an agent; gone if the block fails."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=runtime_folder(environment))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def runtime_folder(environment: Mapping[str, str]) -> str | None:
    """Returns where private folders with sockets belong; None: where temporary files are."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    return folder if folder and os.access(folder, os.W_OK | os.X_OK) else None
