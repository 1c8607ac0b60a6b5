"""How fast the token of a device goes round: distributions, for metrics."""

from __future__ import annotations

from bisect import bisect_left

# Upper bounds of the classes; one more class has none.
BOUNDS_NS = (
    10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 25_000_000, 100_000_000
)  # fmt: skip


class Durations:
    """counts: how many fell into each class.  total_ns: their sum."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, ns: int) -> None:
        """Counts one."""
        self.counts[bisect_left(BOUNDS_NS, ns)] += 1
        self.total_ns += ns


class Health:
    """decisions: handling of one event, with the pages written.  handovers: how long a device that
    was wanted stood still between two leases.  fenced: leases that had to be made to leave it.
    """

    __slots__ = ("decisions", "fenced", "handovers")

    def __init__(self) -> None:
        self.decisions = Durations()
        self.handovers = Durations()
        self.fenced = 0
