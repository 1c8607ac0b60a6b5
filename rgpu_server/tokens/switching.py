"""What it takes to give a device from one lease to the next, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.tokens.health import Durations
    from rgpu_server.tokens.seats import Seat

# Hand-overs after an idle device say nothing about this.
_MOST_NS = 5_000_000


class Switching:
    """switches: grants to another lease than the one before.
    typical_ns: from when the device had drained to the next grant, on average; None: not known yet.

    Times are ns of the machine's monotonic clock.
    """

    def __init__(self, gaps: Durations) -> None:
        """gaps: takes how long the device stood still between two leases."""
        self.switches = 0
        self.typical_ns: int | None = None
        self._gaps = gaps
        self._last: Seat | None = None
        self._free_since: int | None = None
        self._drained_at: int | None = None

    def put_down(self, seat: Seat) -> None:
        """The lease has the device no more."""
        self._last = seat

    def free(self, since: int, drained_at: int | None) -> None:
        """The device stands still while it is decided who is next, until `granted` or `decided`.
        drained_at: when the work of the lease before had left it, if it had any.
        """
        self._free_since, self._drained_at = since, drained_at

    def decided(self) -> None:
        """Nobody was next, or the grant has been written."""
        self._free_since = self._drained_at = None

    def granted(self, seat: Seat, now: int) -> None:
        """A grant was decided on at `now`."""
        if self._drained_at is not None:
            self._measure(now - self._drained_at)
        if seat is not self._last:
            self.switches += 1
            if self._free_since is not None:
                self._gaps.add(now - self._free_since)
        self._free_since = None

    def _measure(self, ns: int) -> None:
        if ns > _MOST_NS:
            return
        before = self.typical_ns
        self.typical_ns = ns if before is None else before + (ns - before) // 16
