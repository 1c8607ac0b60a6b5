"""The local end of a tunnel: a socket on this machine."""

from __future__ import annotations

import asyncio
import mmap
import select
import socket

from rgpu_common.readiness import Readiness
from rgpu_common.tunnel.chunk import MAX_DATA_BYTES, PREFIX_BYTES, write_prefix

_BUFFER_BYTES = 1 << 20
# After a read of this size, the writer is probably not finished: one more read saves a message.
_STREAMING_BYTES = 64 << 10


class LocalEnd:
    """A connected, non-blocking stream socket.

    Bytes are read as they arrive, at most MAX_DATA_BYTES ahead. Everything that arrives while a
    message is being sent therefore travels in the next message. The bytes are received behind the
    message's prefix, and copied once, into the message.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._fd = connection.fileno()
        connection.setblocking(False)
        # As much as the system allows: a full buffer costs a wake-up at both ends.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        # An anonymous mapping, because pages that are never written take no memory.
        self._view = memoryview(mmap.mmap(-1, PREFIX_BYTES + MAX_DATA_BYTES))
        self._held = 0
        self._ended = False
        self._input = Readiness(self._fd, self._readable)
        self._taker: asyncio.Future[None] | None = None
        self._putter: asyncio.Future[None] | None = None
        self._input.start()

    async def take(self) -> bytes:
        """Returns the bytes that have arrived, as a message. b"": the socket's peer has ended."""
        while not self._held and not self._ended:
            self._taker = self._loop.create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        if not self._held:
            return b""
        write_prefix(self._view, self._held)
        message = bytes(self._view[: PREFIX_BYTES + self._held])
        self._held = 0
        if not self._ended:
            self._input.start()
        return message

    async def put(self, data: memoryview | bytes) -> None:
        """Writes all of `data` to the socket. OSError: the socket is closed."""
        left = memoryview(data)[self.send(data) :]
        while left:
            await self._writable()
            left = left[self.send(left) :]

    def send(self, data: memoryview | bytes) -> int:
        """Writes as much of `data` as the socket takes now. OSError: the socket is closed."""
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return 0

    def finish(self) -> None:
        """Ends the writing direction of the socket."""
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def gone(self) -> bool:
        """Returns whether the socket is closed both ways, so that its peer reads no more."""
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, 0)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Closes the socket. Bytes that were written before are still delivered."""
        if self._fd < 0:
            return
        self._input.stop()
        self._loop.remove_writer(self._fd)
        self._fd = -1
        self._connection.close()
        self._end()

    async def _writable(self) -> None:
        if self._fd < 0:
            raise BrokenPipeError("the connection is closed")
        self._putter = self._loop.create_future()
        self._loop.add_writer(self._fd, self._wake_putter)
        try:
            await self._putter
        finally:
            self._putter = None
            if self._fd >= 0:
                self._loop.remove_writer(self._fd)

    def _wake_putter(self) -> None:
        if self._putter is not None and not self._putter.done():
            self._putter.set_result(None)

    def _readable(self) -> None:
        while (count := self._receive()) > 0:
            self._held += count
            if self._held >= MAX_DATA_BYTES:
                self._input.stop()
            if count < _STREAMING_BYTES or not self._input.active:
                break
        if count == 0:
            self._end()
        elif self._held:
            self._wake_taker()

    def _receive(self) -> int:
        """Returns how many bytes arrived. 0: no more will come. -1: none have arrived now."""
        try:
            return self._connection.recv_into(self._view[PREFIX_BYTES + self._held :])
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            return 0

    def _end(self) -> None:
        self._ended = True
        self._input.stop()
        self._wake_taker()
        self._wake_putter()

    def _wake_taker(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)
