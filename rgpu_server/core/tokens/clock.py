"""The two clocks: a wall clock that never jumps, and the device's own."""

from __future__ import annotations


class Clocks:
    """now: the caller's clock with its jumps taken out; all times inside are on it.
    device_ns: time that the device was held or idle.  Hand-overs do not count, so that the tags of
    leases whose requests fill the device do not fall behind.
    """

    __slots__ = ("_offset", "device_ns", "idle_since", "jumped", "now")

    def __init__(self) -> None:
        self.now = 0
        self.device_ns = 0
        self.idle_since: int | None = 0
        self.jumped = False
        self._offset: int | None = None

    def advance(self, caller_ns: int, due: int | None, jump_ns: int) -> int:
        """Takes the caller's time; due is when the caller should have come at the latest.

        A clock that went back stands still.  One that is more than jump_ns past due has jumped, or
        the caller was stopped while the workers went on: only jump_ns of it count.
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
        """Takes `now` for `to` from here on."""
        self._offset = (self._offset or 0) + to - now
        self.jumped = True
        return to

    def outside(self, inside_ns: int) -> int:
        """A time on the caller's clock."""
        return inside_ns - (self._offset or 0)
