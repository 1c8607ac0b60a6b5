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
        latest = None if due is None else max(self.now, due) + jump_ns
        if now < self.now or (latest is not None and now > latest):
            target = self.now if now < self.now or latest is None else latest
            self._offset += target - now
            self.jumped = True
            now = target
        if self.idle_since is not None:
            self.device_ns += now - self.idle_since
            self.idle_since = now
        self.now = now
        return now

    def outside(self, inside_ns: int) -> int:
        """A time on the caller's clock."""
        return inside_ns - (self._offset or 0)
