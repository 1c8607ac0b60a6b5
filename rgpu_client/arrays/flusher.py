"""Sends operations and frees that nothing follows."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

from rgpu_common.errors import RgpuError

_FLUSH_SECONDS = 0.001
# Nobody wakes the flusher for what is freed: a garbage collector must take no lock.
_LOOK_SECONDS = 0.1
# The flusher sleeps after it has found nothing so often.
_IDLE_LOOKS = 64


class Flushed(Protocol):
    """What has operations and frees to send.

    waiting: how many wait, and how many operations there were ever.
    """

    @property
    def waiting(self) -> tuple[int, int]: ...

    def flush(self) -> None: ...


class Flusher:
    """Sends operations and frees that nothing follows. A thread that looks every millisecond while
    the program issues, and ten times a second while it does not.
    """

    def __init__(self, issuer: Flushed) -> None:
        self._issuer = weakref.ref(issuer)
        self._asleep = True
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def notice(self) -> None:
        """The first operation waits to be sent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rgpu-flush", daemon=True)
            self._thread.start()
        if self._asleep:
            self._asleep = False
            self._woken.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._woken.set()

    def _run(self) -> None:
        seen, idle = (0, 0), 0
        while not self._stopped:
            if idle > _IDLE_LOOKS:
                self._woken.clear()
                self._asleep = True
                if self._woken.wait(_LOOK_SECONDS):
                    idle = 0
            time.sleep(_FLUSH_SECONDS)
            issuer = self._issuer()
            if issuer is None:
                return
            now = issuer.waiting
            idle = idle + 1 if now == seen else 0
            if now[0] and now == seen:
                self._flush(issuer)
            seen = now

    def _flush(self, issuer: Flushed) -> None:
        try:
            issuer.flush()
        except RgpuError:
            # The program gets it with its next operation.
            self._stopped = True
