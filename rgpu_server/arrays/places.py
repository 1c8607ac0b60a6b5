"""The places at which the sessions of a tenant compile CUDA C++."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from rgpu_server.arrays.places_file import PlacesFile

if TYPE_CHECKING:
    from collections.abc import Iterator


_LOOK_SECONDS: Final = 0.5


class Places:
    """Takes one place at a time, in one thread at a time.

    A place is a byte of a file that the tenant's workers share. Who has locked the byte has the
    place, so the system frees it where a worker ends.

    - Nothing ends a wait for a lock before its time, so a thread waits. It may still wait after its
      caller has given up: the next caller then takes what it gets.
    - Beyond the tenant's burst of processor time only the first place is there.
    - Without the wait, by asking again and again, a session that compiles one source after another
      would leave no moment in which another session could have its place.
    """

    def __init__(self, file: int) -> None:
        """file: as `AssignFds.places` has it."""
        self._file = file
        self._shared = PlacesFile(file)
        self._changed = threading.Condition()
        self._waits = False  # a thread waits for the place `_at`
        self._wanted = False  # somebody waits for that thread
        self._at = 0
        self._error: OSError | None = None

    @contextlib.contextmanager
    def place(self, seconds: float) -> Iterator[None]:
        """Waits for a place, and keeps it.

        Raises:
            RuntimeError: none became free within so many seconds.
            OSError: the system refuses to lock.
        """
        until = time.monotonic() + seconds
        # The burst may have ended while the place was waited for.
        while (at := self._take(until - time.monotonic(), seconds)) >= self._count():
            self._give(at)
        try:
            yield
        finally:
            self._give(at)

    def _count(self) -> int:
        return 1 if self._shared.over() else self._shared.places

    def _give(self, at: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, at)

    def _take(self, left: float, seconds: float) -> int:
        count = self._count()
        with self._changed:
            if not self._waits:
                for at in range(count):
                    if self._lock_now(at):
                        return at
                # Those that wait are spread over the places, so none waits for all the others.
                self._at = os.getpid() % count
                threading.Thread(target=self._wait, name="place", daemon=True).start()
                self._waits = True
            self._wanted = True
            found = self._wait_for_thread(left)
            self._wanted = False
            if found:
                return 0
            if self._waits:
                raise RuntimeError(
                    f"the kernel waited {seconds:g} s for other compilations of the same tenant, "
                    f"of which {self._count()} run at a time: compile less at once, or ask the "
                    "operator to set emulated.compiler_processes higher"
                )
            if self._error is not None:
                raise self._error
            return self._at

    def _lock_now(self, at: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _wait_for_thread(self, left: float) -> bool:
        """Waits until the thread has its place. Returns True if it has the first one without it:
        the burst may end while the thread waits for another place, and then only the first is
        there.
        """
        until = time.monotonic() + left
        while self._waits and (rest := until - time.monotonic()) > 0:
            self._changed.wait_for(lambda: not self._waits, min(rest, _LOOK_SECONDS))
            if self._waits and self._at >= self._count() and self._lock_now(0):
                return True
        return False

    def _wait(self) -> None:
        error = None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, self._at)
        except OSError as refused:
            error = refused
        with self._changed:
            self._waits, self._error = False, error
            if not self._wanted and error is None:
                self._give(self._at)
            self._changed.notify()
