"""`rgpu attach` and `rgpu wait`, and what `rgpu logs` shows of runs in the background."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from rgpu_client.background.store import Store
from rgpu_common.command import INTERRUPTED, OK, Command
from rgpu_common.errors import NOT_STARTED, NotThereError, RgpuError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from rgpu_client.background.store import Run

_LOOK_SECONDS = 0.1
_PIECE = 1 << 16


def sought_run(store: Store, name: str) -> Run | None:
    """Returns the run of this name, and says which it is if others have the name; None: there is
    none. UsageError: several may be meant.
    """
    run = store.find(name)
    if run is not None and run.name == name and (count := store.namesakes(run)) > 1:
        which = "the newest" if run.over else "the one that still runs"
        print(f"rgpu: {run.id} is {which} of {count} runs called {name!r}", file=sys.stderr)
    return run


def found_run(store: Store, name: str) -> Run:
    """As `sought_run`; NotThereError where there is none."""
    run = sought_run(store, name)
    if run is None:
        raise NotThereError(
            f"no run in the background of this machine is called {name!r}; `rgpu ps --all` shows "
            "which there are"
        )
    return run


def show(store: Store, run: Run, *, follow: bool, new: bool = False) -> int:
    """Prints what a run has printed. Returns OK, or after it was followed to its end its exit code.

    new: only what it prints from now on.
    """
    for data in _pieces(store, run, follow=follow, new=new):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return _status(store, run) if follow else OK


def _pieces(store: Store, run: Run, *, follow: bool, new: bool) -> Iterator[bytes]:
    """Yields what the run prints, over the change from one file to the next."""
    if not new and store.older(run).exists():
        with open(_opened(store.older(run)), "rb") as older:
            yield older.read()
    file = _opened(store.output(run))
    if new:
        os.lseek(file, 0, os.SEEK_END)
    try:
        while True:
            # Asked before the last look, because it may print something meanwhile.
            over = not follow or _is_over(store, run)
            later = _later(store, run, file)
            while data := os.read(file, _PIECE):
                yield data
            if later is not None:
                os.close(file)
                file = later
                continue
            if over:
                return
            time.sleep(_LOOK_SECONDS)
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    """Opens a file; RgpuError: it cannot be read."""
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise RgpuError(f"{path} cannot be read: {error.strerror}") from None


def _later(store: Store, run: Run, file: int) -> int | None:
    """Returns the file that is printed to now, if that is another one: the other was full."""
    try:
        now = os.open(store.output(run), os.O_RDONLY)
    except OSError:  # it is being replaced, or was removed
        return None
    if os.path.sameopenfile(now, file):
        os.close(now)
        return None
    return now


def _is_over(store: Store, run: Run) -> bool:
    now = store.read(run.id)
    return now is None or now.over


def _status(store: Store, run: Run, *, aloud: bool = False) -> int:
    """Returns the exit code of a run that is over. aloud: says it, too."""
    now = store.read(run.id)
    if now is None or now.lost:
        print(
            f"rgpu: nobody knows how {run.name} ended: its supervisor was killed", file=sys.stderr
        )
        return NOT_STARTED
    if aloud:
        print(f"rgpu: {run.name} ({run.id}) {now.state}", file=sys.stderr)
    return now.status


def _configure_attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the run's name or id, or how its id begins")


def _attach(arguments: argparse.Namespace) -> int:
    store = Store(os.environ)
    run = found_run(store, arguments.name)
    try:
        return show(store, run, follow=True, new=not run.ended)
    except KeyboardInterrupt:
        print(f"\nrgpu: {run.name} goes on; `rgpu cancel {run.name}` ends it", file=sys.stderr)
        return INTERRUPTED


def _configure_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="names or ids of runs")


def _wait(arguments: argparse.Namespace) -> int:
    store = Store(os.environ)
    runs = [found_run(store, name) for name in arguments.names]
    status = OK
    for run in runs:
        while not _is_over(store, run):
            time.sleep(_LOOK_SECONDS)
        status = _status(store, run, aloud=len(runs) > 1) or status
    return status


attach = Command(
    "attach", "show what a run in the background prints, until it ends", _configure_attach, _attach
)
wait = Command("wait", "wait until runs in the background have ended", _configure_wait, _wait)
