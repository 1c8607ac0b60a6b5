"""The sending half of a connection on the event loop, TCP or TLS over it."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final

from rgpu_common.http2.messages import PREFIX
from rgpu_common.readiness import Readiness

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

# So many pieces go to the system at once.
_PIECES = 16
# What waits is a message of each stream, and answers to what the peer asks.
_MOST_PIECES = 10_000
AGAIN: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


# A message that is copied rather than sent in pieces.
_SMALL_BYTES = 16 << 10


async def send_message(
    link: Sender,
    message: bytes,
    room: Callable[[], Awaitable[int]],
    send: Callable[[bytes, memoryview], None],
) -> None:
    """Sends a message of gRPC in as many frames as the peer's windows make of it.

    room: waits until a frame may have more than a prefix, and returns how many bytes.  send: makes
    a frame of two pieces and hands it to `link`.
    """
    first = PREFIX.pack(0, len(message))
    if len(first) + len(message) <= min(await room(), _SMALL_BYTES):
        send(first + message, memoryview(b""))
        if link.waiting:
            await link.drain()
        return
    view = memoryview(message)
    while first or view:
        size = min(len(view), await room() - len(first))
        send(first, view[:size])
        view, first = view[size:], b""
        await link.drain()


class Sender(ABC):
    """What is sent is queued and goes out as the socket takes it; `drain` waits for that.

    Who reads from the socket derives from this, and starts `_input`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._fd = connection.fileno()
        self._tls = isinstance(connection, ssl.SSLSocket)
        self._queue: deque[memoryview] = deque()
        self._input = Readiness(self._fd, self._readable)
        self._writing = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> bool:
        """True if not everything is sent yet."""
        return bool(self._queue)

    def send(self, *pieces: bytes | memoryview) -> None:
        """Sends, or queues what the socket does not take now."""
        if self._fd < 0:
            return
        self._queue.extend(memoryview(piece) for piece in pieces if piece)
        if len(self._queue) > _MOST_PIECES:
            self._fail("the peer asks and does not listen")
        elif not self._writing:
            self._flush()

    async def drain(self) -> None:
        """Returns when all is sent, or the connection is lost."""
        while self._queue:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def stop_reading(self) -> None:
        """Hears no more."""
        self._input.stop()

    def close(self) -> None:
        """Closes the connection, once."""
        if self._fd < 0:
            return
        self.stop_reading()
        self._stop_writing()
        self._fd = -1
        self._connection.close()

    def _flush(self) -> None:
        try:
            while self._queue:
                self._pass_on()
        except AGAIN:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._flush)
            return
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._stop_writing()

    def _pass_on(self) -> None:
        queue = self._queue
        if self._tls or len(queue) == 1:
            sent = self._connection.send(queue[0])
        else:
            sent = self._connection.sendmsg([queue[i] for i in range(min(len(queue), _PIECES))])
        while queue and sent >= len(queue[0]):
            sent -= len(queue.popleft())
        if sent:
            queue[0] = queue[0][sent:]

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._queue.clear()
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _fail(self, why: str) -> None:
        self.stop_reading()
        self._stop_writing()
        self._was_lost(why)

    @abstractmethod
    def _readable(self) -> None:
        """There is something to read, or an end; called while `_input` is started."""

    @abstractmethod
    def _was_lost(self, why: str) -> None:
        """The connection has ended by itself."""
