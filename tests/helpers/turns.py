"""Lets a test run alone while other processes of the same run wait between two of their tests."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """Two lock files that all processes of one run of pytest share.

    A test that may run beside others holds `running` shared; a test that must be alone holds it
    exclusively.  Everybody takes `door` first: a test that must be alone keeps it while it waits
    for the tests that run, so that no new one starts and its wait ends with the longest of them.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._door = folder / "door"
        self._running = folder / "running"

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Holds the turn of one test; waits for it as long as other tests take."""
        with _locked(self._running) as running:
            with _locked(self._door) as door:
                fcntl.flock(door, fcntl.LOCK_EX)
                fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Opens a lock file; closing it lets go of the lock, whatever ended the test."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
