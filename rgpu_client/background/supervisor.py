"""The process beside a run in the background: starts it, keeps what it prints, notes how it ended.

Its arguments are ID FD -- WORDS: WORDS are those of `rgpu run` without --detach. It writes a line
to FD when its record is written, and one when the program has been started, or when it ended before
that. SIGTERM and KILL it passes on to all processes of the run.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from rgpu_client.background.store import Store
from rgpu_client.program import BACKGROUND, STARTED
from rgpu_common.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rgpu_client.background.store import Run

# As much of the output is kept at least, and twice as much at most.
MOST_OUTPUT_BYTES = 32 << 20
_PIECE = 1 << 16
# The signal at which the run is killed.
KILL = signal.SIGUSR1
PASSED_ON = {signal.SIGTERM: signal.SIGTERM, KILL: signal.SIGKILL}
# Begins a process of ours. The working folder is the program's: its modules are not rgpu's.
OURS = "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
_RUN = OURS + "from rgpu_common.command import main; sys.exit(main())"


class Output(Closing):
    """What a run prints, in a file that begins anew when it is full; the one before is kept."""

    def __init__(self, path: Path, older: Path, most: int = MOST_OUTPUT_BYTES) -> None:
        self._path, self._older, self._most = path, older, most
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    def add(self, data: bytes) -> None:
        """Adds what was printed. A full disk loses it, and the run goes on."""
        with contextlib.suppress(OSError):
            if self._size + len(data) > self._most:
                with contextlib.suppress(FileNotFoundError):  # it could not be made before
                    os.replace(self._path, self._older)
                new = self._open()
                os.close(self._file)
                self._file, self._size = new, 0
            self._size += os.write(self._file, data)

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def main(arguments: Sequence[str]) -> int:
    """Runs until the run has ended."""
    run, told, words = arguments[0], int(arguments[1]), arguments[3:]
    # A terminal that is closed, and Ctrl-C in it, are not for this process. The program gets them
    # as they are.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    passing = _Passing()
    store = Store(os.environ)
    known = store.read(run)
    if known is None:
        return 1
    known = known.supervised()
    store.write(known)
    _tell(told, "here\n")
    with Output(store.output(known), store.older(known)) as output:
        known = _run(known, store, output, told, words, passing)
    _note(store, known)
    _tell(told, f"ended {known.status}\n")
    store.clean(time.time())
    return 0


class _Passing:
    """Passes signals on to a run, from the beginning, until its first process has been waited for:
    then its number may be another one's.
    """

    def __init__(self) -> None:
        self._group = 0
        self._early: list[signal.Signals] = []
        for number in PASSED_ON:
            signal.signal(number, self._heard)

    def begin(self, group: int) -> None:
        """From now on they go to this group of processes, also those that came before."""
        self._group = group
        for number in self._early:
            self._send(number)

    def end(self) -> None:
        """From now on they go nowhere."""
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_IGN)

    def _heard(self, number: int, _frame: object) -> None:
        passed = PASSED_ON[signal.Signals(number)]
        if self._group:
            self._send(passed)
        else:
            self._early.append(passed)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):  # they have ended, or are another user's now
            os.killpg(self._group, number)


def _run(
    known: Run, store: Store, output: Output, told: int, words: Sequence[str], passing: _Passing
) -> Run:
    """Runs it, and returns its record."""
    begun, ready = os.pipe()
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, "run", *words],
        stdin=subprocess.DEVNULL, stdout=write, stderr=write, pass_fds=(ready,),
        env={**os.environ, STARTED: str(ready), BACKGROUND: known.id}, start_new_session=True,
    )  # fmt: skip
    passing.begin(process.pid)
    os.close(ready)
    os.close(write)
    _note(store, known := known._replace(pid=process.pid))
    _keep(read, begun, told, process, output)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    passing.end()
    status = process.wait()
    return known._replace(ended=time.time(), status=128 - status if status < 0 else status)


def _note(store: Store, known: Run) -> None:
    """Writes the record. If there is no room for it, the older output makes room."""
    try:
        store.write(known)
    except OSError:
        with contextlib.suppress(OSError):
            store.older(known).unlink(missing_ok=True)
            store.write(known)


def _keep(
    read: int, begun: int, told: int, process: subprocess.Popen[bytes], output: Output
) -> None:
    """Keeps what the run prints until nobody can print any more, or it has ended."""
    there, said = [read, begun], b""
    ended = os.pidfd_open(process.pid)
    while read in there:
        ready, _, _ = select.select([*there, ended], [], [])
        if begun in ready:
            said += (more := os.read(begun, 8))
            if not more:
                there.remove(begun)
                if said == b"+":  # else it ends without having begun
                    _tell(told, "started\n")
        if read in ready:
            data = os.read(read, _PIECE)
            if not data:
                break
            output.add(data)
        elif ended in ready:
            # Its children may hold the pipe open for as long as they like.
            break
    os.close(ended)


def _tell(descriptor: int, line: str) -> None:
    with contextlib.suppress(OSError):  # who started the run may have gone
        os.write(descriptor, line.encode())
