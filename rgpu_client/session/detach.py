"""Starts an agent beside a program, in a process that is not the program's child.

A program may wait for all of its children, and must not wait for an agent.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from rgpu_client.session.folders import held

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

_SECONDS = 30
# The process that starts an agent soon executes another program, so it cannot clean up after an
# agent that dies early, for instance of a missing module. A child of the agent does so: it waits
# until the agent reports that it owns the folder (`own_folder`), or has ended without a report. The
# child keeps no socket open meanwhile.
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
# An agent must not load the libraries that the user preloads into the program.
_FOR_THE_PROGRAM = ("LD_PRELOAD", "LD_LIBRARY_PATH")
# Their values may be relative to the program's working folder. Agents run in another one.
_FILES = (
    "RGPU_TOKEN_FILE", "RGPU_TLS_CA", "RGPU_TLS_CERT", "RGPU_TLS_KEY", "RGPU_AGENT_TEXTFILE",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip


def serve_beside(
    module: str,
    words: Sequence[str],
    listener: socket.socket,
    environment: Mapping[str, str],
    output: int | None = None,
) -> None:
    """Runs a Python module in a process in a new POSIX session: an agent that serves `listener`.

    The listener's socket lies in a `private_folder`. The agent runs as long as this process lives,
    also after this process executes another program. output: where its stderr goes; None: nowhere.

    Raises:
        OSError, SubprocessError: the agent could not be started.
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


# "folder" stays open as long as the agent lives, so that `_sweep` in folders.py spares the folder.
_KEPT = ("listen", "program", "ready", "folder")


def _detach(
    words: Sequence[str],
    descriptors: tuple[int, ...],
    environment: Mapping[str, str],
    output: int | None,
) -> None:
    import subprocess

    clean = {k: v for k, v in environment.items() if k not in _FOR_THE_PROGRAM}
    clean.update((name, os.path.abspath(clean[name])) for name in _FILES if clean.get(name))
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", _FORK, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if output is None else output,
        env=clean,
        cwd="/",
        pass_fds=descriptors,
        start_new_session=True,
        check=True,
        timeout=_SECONDS,
    )


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options with which `serve_beside` starts an agent."""
    for name in _KEPT:
        parser.add_argument(f"--{name}-fd", type=int, required=True)
    parser.add_argument("--folder", required=True)


@contextlib.contextmanager
def own_folder(folder: str, ready: int) -> Iterator[None]:
    """Within the block this agent owns the folder of its socket. The folder is removed
    afterwards.
    """
    import shutil
    import signal

    def leave(number: int, _: FrameType | None) -> None:
        # Not by SystemExit: Python ignores an exception that interrupts the callback of a weak
        # reference, as imports have them, and the agent would live on.
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    try:
        signal.signal(signal.SIGTERM, leave)
        with contextlib.suppress(OSError):  # the child that waits has been killed
            os.write(ready, b"1")
            os.wait()
        os.close(ready)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
