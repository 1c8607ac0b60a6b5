"""How urgent the loop is to the kernel: hand-overs wait for it, yet it never takes a processor."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NICE = -5
# Of a tick; a loop that is busier than this is busy with signals that nobody needs.
_MOST_BUSY = 0.25


def _schedule(urgent: bool) -> None:
    """Before all programs of normal priority, where that is allowed, or one of them."""
    policy, level = (os.SCHED_RR, 1) if urgent else (os.SCHED_OTHER, 0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(level))


class Priority:
    """On a node whose processors are busy a waking process waits for milliseconds, and the device
    with it: so the loop goes first.  While it uses more than a quarter of a processor it does not.
    """

    def __init__(
        self,
        schedule: Callable[[bool], None] = _schedule,
        used_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self._schedule = schedule
        self._used_ns = used_ns
        self._used = used_ns()
        self._at: int | None = None
        self._urgent = False

    def begin(self) -> None:
        """Called once, in the loop's process."""
        with contextlib.suppress(OSError):
            os.nice(_NICE)

    def tick(self, now_ns: int) -> None:
        """Several times a second."""
        used, before, at = self._used_ns(), self._used, self._at
        self._used, self._at = used, now_ns
        if at is None or now_ns <= at:
            return
        urgent = (used - before) / (now_ns - at) <= _MOST_BUSY
        if urgent != self._urgent:
            self._urgent = urgent
            self._schedule(urgent)
