"""The two clocks: a wall clock that never jumps, and the device's own."""

from __future__ import annotations


class Clocks:
    """now: the caller's clock without its jumps.  All times inside the scheduler are on it.
    device_ns: time that the device was held or idle.  Hand-overs do not count; otherwise the tags
        of leases whose requests fill the device would fall behind.
    idle_since: up to when idle time has been counted; None while a lease has the token.
    jumped: the clock has jumped since the last Grant or report.
    """

    __slots__ = ("_offset", "device_ns", "idle_since", "jumped", "now")

    def __init__(self) -> None:
        self.now = 0
        self.device_ns = 0
        self.idle_since: int | None = 0
        self.jumped = False
        self._offset: int | None = None

    def advance(self, caller_ns: int, due: int | None, jump_ns: int) -> int:
        """Takes the caller's time, and returns `now`.  due: when the caller should have come.

        A clock that goes back stands still.  If the caller comes more than jump_ns after due, its
        clock has jumped, or the caller was stopped while the workers went on.  Then only jump_ns of
        that time count.
        """
        if self._offset is None:
            self._offset = -caller_ns
        now = caller_ns + self._offset
        before = self.now
        if now < before:
            now = self._jump(now, before)
        elif due is not None and now > due + jump_ns and now > before + jump_ns:
            now = self._jump(now, max(before, due) + jump_ns)
        if self.idle_since is not None:
            self.device_ns += now - self.idle_since
            self.idle_since = now
        self.now = now
        return now

    def _jump(self, now: int, to: int) -> int:
        """Changes the offset so that the present moment is `to` instead of `now`."""
        self._offset = (self._offset or 0) + to - now
        self.jumped = True
        return to

    def outside(self, inside_ns: int) -> int:
        """A time on the caller's clock."""
        return inside_ns - (self._offset or 0)
