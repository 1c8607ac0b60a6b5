"""Clocks. State machines never read a clock: the code around them tells them the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Gives the time in seconds, from an arbitrary start. The time never goes back."""

    def now(self) -> float: ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock for tests: it stands still until it is moved."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Moves time forward and returns the new time; ValueError if `seconds` is negative."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += seconds
        return self._now
