"""Starts a process beside a program that is not the program's child: it may wait for all of
those.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from rgpu_client.session.folders import held

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

_SECONDS = 30
# Who starts an agent is another program by the time the agent may die of a module that is not
# there.  So a child of the agent waits until that says that the folder is its own (`own_folder`),
# or has gone without a word; it keeps no socket open meanwhile.
_FORK = """
import os, sys
folder, heard, top, command = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
if os.fork():
    os._exit(0)
if not os.fork():
    os.dup2(heard, 0)
    os.closerange(3, top)
    if not os.read(0, 1):
        import shutil
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)
os.close(heard)
os.execv(command[0], command)
"""
# What a program preloads is for the program.
_FOR_THE_PROGRAM = ("LD_PRELOAD", "LD_LIBRARY_PATH")
# Their values may be relative to where the program is started, and agents are elsewhere.
_FILES = (
    "RGPU_TOKEN_FILE", "RGPU_TLS_CA", "RGPU_TLS_CERT", "RGPU_TLS_KEY", "RGPU_AGENT_TEXTFILE",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip


def serve_beside(
    module: str,
    words: Sequence[str],
    listener: socket.socket,
    environment: Mapping[str, str],
    output: int = subprocess.DEVNULL,
) -> None:
    """Runs a Python module in a process of its own session: an agent that serves `listener`, whose
    socket lies in a `private_folder`, as long as this process lives, whatever that executes
    meanwhile.  OSError or SubprocessError.
    """
    folder = os.path.dirname(listener.getsockname())
    with contextlib.ExitStack() as ours:
        lock = held(folder)
        ours.callback(os.close, lock)
        program, (heard, ready) = os.pidfd_open(os.getpid()), os.pipe()
        for descriptor in (program, heard, ready):
            ours.callback(os.close, descriptor)
        kept = (listener.fileno(), program, ready, lock)
        known = [f"--{name}-fd={fd}" for name, fd in zip(_KEPT, kept, strict=True)]
        command = [sys.executable, "-m", module, *known, "--folder", folder, *words]
        watched = [folder, str(heard), str(max(*kept, heard) + 1)]
        _detach([*watched, *command], (*kept, heard), environment, output)


# "folder" stays open as long as the agent lives: so nobody sweeps it (folders.py).
_KEPT = ("listen", "program", "ready", "folder")


def _detach(
    words: Sequence[str], descriptors: tuple[int, ...], environment: Mapping[str, str], output: int
) -> None:
    clean = {k: v for k, v in environment.items() if k not in _FOR_THE_PROGRAM}
    clean.update((name, os.path.abspath(clean[name])) for name in _FILES if clean.get(name))
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", _FORK, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=output,
        env=clean,
        cwd="/",
        pass_fds=descriptors,
        start_new_session=True,
        check=True,
        timeout=_SECONDS,
    )


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """What `serve_beside` tells an agent."""
    for name in _KEPT:
        parser.add_argument(f"--{name}-fd", type=int, required=True)
    parser.add_argument("--folder", required=True)


@contextlib.contextmanager
def own_folder(folder: str, ready: int) -> Iterator[None]:
    """Of an agent: the folder of its socket is its own from here on, and goes with it."""
    try:
        signal.signal(signal.SIGTERM, _leave)
        with contextlib.suppress(OSError):  # who waited for it has been killed
            os.write(ready, b"1")
            os.wait()
        os.close(ready)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
