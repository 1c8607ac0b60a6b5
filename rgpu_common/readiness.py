"""Hearing that a socket can be read, also where uvloop says it once and then no more."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Readiness:
    """From `start` to `stop`: calls `readable` whenever there is something to read, or an end.

    `readable` need not read everything.  Stop before the descriptor is closed.

    libuv ends the poll of a socket that is in error, and uvloop has called its reader once by then:
    what the peer said before it reset the connection is read, and that it is gone is never heard.
    """

    def __init__(self, fd: int, readable: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._readable = readable
        self._active = False
        # Errors and ends are told unasked.
        self._ends = select.poll()
        self._ends.register(fd, 0)

    @property
    def active(self) -> bool:
        """True between `start` and `stop`."""
        return self._active

    def start(self) -> None:
        """Begins, if it has not."""
        if not self._active:
            self._active = True
            self._loop.add_reader(self._fd, self._stirs)

    def stop(self) -> None:
        """Ends, if it has begun."""
        if self._active:
            self._active = False
            self._loop.remove_reader(self._fd)

    def _stirs(self) -> None:
        self._readable()
        if self._active and self._ends.poll(0):
            # Not at once: uvloop still has to forget what it has just called.
            self._loop.call_soon(self._again)

    def _again(self) -> None:
        if self._active:
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._stirs)
