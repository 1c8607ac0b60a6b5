"""Descriptors that are watched, and a sleep that ends in time."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
# An eventfd that is edge-triggered need not be read: every write is a new edge.
EDGE = select.EPOLLIN | select.EPOLLET


class Poller:
    """One epoll, and a handler for each descriptor in it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, events: int, handler: Callable[[], None]) -> None:
        """Calls `handler` whenever the descriptor has one of `events` (READ, WRITE, EDGE)."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Waits for other events of a descriptor that is watched."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Forgets a descriptor, which is still open; nothing if it is not watched."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def serve(self, until_ns: int) -> None:
        """Sleeps until something happens, or until then by the machine's monotonic clock, and
        calls the handlers of what happened; a handler may take others off.
        """
        left = (until_ns - time.monotonic_ns()) / 1e9
        if left > 0:
            # epoll alone counts in whole milliseconds.
            select.select([self._epoll], [], [], left)
        for fd, _ in self._epoll.poll(0):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()

    def close(self) -> None:
        """Watches nothing any more."""
        self._epoll.close()
