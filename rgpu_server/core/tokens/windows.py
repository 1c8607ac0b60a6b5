"""How much device time fell into the last seconds.  For reports only: no decision reads it."""

from __future__ import annotations

from collections import deque

SECOND = 1_000_000_000
SPAN_NS = 10 * SECOND
GRAIN_NS = 500_000


class IntervalWindow:
    """Intervals of device time over the last ten seconds.

    Intervals that begin within GRAIN_NS of each other are kept as one, so a second holds at most
    2,000 intervals.  Only the interval that a window's edge cuts is inexact, by at most a grain.
    """

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        # (start, end, busy), oldest first.
        self._intervals: deque[tuple[int, int, int]] = deque()

    def add(self, start_ns: int, end_ns: int, busy_ns: int) -> None:
        """Adds an interval that does not begin before the last one, with busy_ns within it."""
        intervals = self._intervals
        if intervals and start_ns - intervals[-1][0] < GRAIN_NS:
            start_ns, _, before = intervals.pop()
            busy_ns += before
        intervals.append((start_ns, end_ns, busy_ns))
        while intervals[0][1] < end_ns - SPAN_NS:
            intervals.popleft()

    def busy(self, now_ns: int, span_ns: int) -> int:
        """Device time within the last span_ns, which is at most ten seconds."""
        edge = now_ns - span_ns
        total = 0
        for start, end, busy in reversed(self._intervals):
            if end <= edge:
                break
            inside = end - max(start, edge)
            total += busy if inside >= end - start else busy * inside // (end - start)
        return total

    def __len__(self) -> int:
        return len(self._intervals)
