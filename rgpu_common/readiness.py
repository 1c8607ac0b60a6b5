"""Reports that a socket can be read, also after an error, which uvloop reports only once."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Readiness:
    """Between `start` and `stop`, calls `readable` whenever the socket has bytes, or has ended.

    `readable` need not read everything. Call `stop` before the descriptor is closed.

    libuv stops polling a socket that is in error, after uvloop has called its reader once. The
    reader would then get the bytes that the peer sent before it reset the connection, but would
    never learn of the reset.
    """

    def __init__(self, fd: int, readable: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._readable = readable
        self._active = False
        # poll() always reports errors and hang-ups, even with an empty set of events.
        self._ends = select.poll()
        self._ends.register(fd, 0)

    @property
    def active(self) -> bool:
        """True between `start` and `stop`."""
        return self._active

    def start(self) -> None:
        """Starts the calls. Does nothing if they have been started already."""
        if not self._active:
            self._active = True
            self._loop.add_reader(self._fd, self._stirs)

    def stop(self) -> None:
        """Stops the calls. Does nothing if they have not been started."""
        if self._active:
            self._active = False
            self._loop.remove_reader(self._fd)

    def _stirs(self) -> None:
        self._readable()
        if self._active and self._ends.poll(0):
            # Not at once: uvloop first has to finish the call that it is making now.
            self._loop.call_soon(self._again)

    def _again(self) -> None:
        if self._active:
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._stirs)
