"""Starts a run in the background, and ends one."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from rgpu_client.background.store import Store, opened, processes_of
from rgpu_client.background.supervisor import KILL, OURS, PASSED_ON
from rgpu_common.errors import RgpuError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import FileIO

    from rgpu_client.background.store import Run

# How long it may take until a program runs before its user is told that it may wait in line.
_PATIENCE_SECONDS = 3.0
# A program that is asked to end has so long for it, and one that is killed.
_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_SUPERVISOR = (
    f"{OURS}from rgpu_client.background.supervisor import main; sys.exit(main(sys.argv[1:]))"
)


def detach(name: str, words: Sequence[str]) -> int:
    """Starts `rgpu run WORDS` in the background, prints its id, and returns the exit code.

    A run that ends before its program has begun has failed: its errors are printed here.
    """
    store = Store(os.environ)
    run = store.new(name, words)
    said = _started(store, run)
    if said == "gone":
        raise RgpuError(
            f"the supervisor of {name} ({run.id}) was killed; `rgpu cancel {run.id}` ends what it "
            "has started"
        )
    if said.startswith("ended "):
        for data in store.printed(run):
            sys.stderr.buffer.write(data)
        return int(said.split()[1])
    print(run.id)
    state = "runs" if said.startswith("started") else "starts, or waits in line,"
    print(
        f"rgpu: {name} {state} in the background: `rgpu logs -f {name}` shows what it prints, "
        f"`rgpu wait {name}` waits for its end, `rgpu cancel {name}` ends it",
        file=sys.stderr,
    )
    return 0


def _started(store: Store, run: Run) -> str:
    """Starts a run's supervisor; returns as `_heard`. RgpuError: it cannot be started."""
    heard, told = os.pipe()
    try:
        # Nobody waits for it: it outlives this process.
        subprocess.Popen(
            [sys.executable, "-c", _SUPERVISOR, run.id, str(told), "--", *run.words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(told,), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise RgpuError(f"the run cannot be started: {error.strerror}") from None
    finally:
        os.close(told)
    with open(heard, "rb", buffering=0) as lines:
        # The first line comes when its record says who its supervisor is.
        if not lines.readline():
            shutil.rmtree(store.folder(run), ignore_errors=True)
            raise RgpuError(
                "the run cannot be started: see whether there is room for its output in "
                f"{store.folder(run).parent}, and for another process"
            )
        return _heard(lines)


def _heard(lines: FileIO) -> str:
    """Returns what the supervisor says next; "": nothing yet, "gone": it has ended."""
    ready, _, _ = select.select([lines], [], [], _PATIENCE_SECONDS)
    return (lines.readline().decode() or "gone") if ready else ""


def end(store: Store, run: Run) -> str:
    """Ends a run and returns what has happened; RgpuError: it cannot be ended.

    Its program is asked first, with SIGTERM, and killed after a while.
    """
    now = store.read(run.id)
    if now is None or now.over or not _signal(now, signal.SIGTERM):
        return f"{run.name} has ended already"
    if not _ends(store, run):
        _signal(store.read(run.id) or now, KILL)
        if not _ends(store, run):
            raise RgpuError(
                f"{run.name} ({run.id}) was killed and has not ended within {_GRACE_SECONDS:g} s: "
                f"a process of its group, {now.pid}, waits for this machine's kernel"
            )
    return f"{run.name} ({run.id}) was ended"


def _ends(store: Store, run: Run) -> bool:
    """Waits for the end of a run; False: it has not come in time."""
    until = time.monotonic() + _GRACE_SECONDS
    while (now := store.read(run.id)) is not None and not now.over:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _signal(run: Run, number: signal.Signals) -> bool:
    """Has a run's supervisor end the program and all that it has started. The supervisor alone
    knows which processes these still are; if it was killed, they are found. False: it has ended.
    """
    try:
        descriptor = opened(run)
        if descriptor is None:
            return _signal_all(run, PASSED_ON[number])
        try:
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        return False
    except OSError as error:
        why = error.strerror
        raise RgpuError(f"{run.name} ({run.id}) cannot be ended: {why}") from None
    return True


def _signal_all(run: Run, number: signal.Signals) -> bool:
    """Sends a signal to all processes of a run. False: there is none."""
    there = processes_of(run)
    for pid in there:
        with contextlib.suppress(OSError):  # it has ended, or is another user's now
            descriptor = os.pidfd_open(pid)
            try:
                # From now on its number cannot become another process's unseen.
                if pid in processes_of(run):
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)
    return bool(there)
