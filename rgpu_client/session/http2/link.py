"""The connection under a call: a TCP socket, or TLS over one, on the event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECT_SECONDS = 10.0
_READ_BYTES = 256 << 10
# So many pieces go to the system at once.
_PIECES = 16
# What waits is one message, and answers to what the server asks.
_MOST_PIECES = 10_000
_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """What is sent is queued and goes out as the socket takes it; `drain` waits for that."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._fd = connection.fileno()
        self._tls = isinstance(connection, ssl.SSLSocket)
        self._queue: deque[memoryview] = deque()
        self._reading = self._writing = False
        self._drained: asyncio.Future[None] | None = None

    def start(self, received: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """Calls `received` with what comes, and `lost` once with the reason when that ends."""
        self._received, self._lost = received, lost
        self._reading = True
        self._loop.add_reader(self._fd, self._readable)

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
            self._fail("the server asks and does not listen")
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
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Closes the connection, once."""
        if self._fd < 0:
            return
        self.stop_reading()
        self._stop_writing()
        self._fd = -1
        self._connection.close()

    def _readable(self) -> None:
        try:
            data = self._records() if self._tls else self._connection.recv(_READ_BYTES)
        except _AGAIN:
            return
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        if data:
            self._received(data)
        else:
            self._fail("the connection was closed")

    def _records(self) -> bytes:
        """What TLS has: one record a call, and the event loop cannot see those that it holds."""
        data = self._connection.recv(_READ_BYTES)
        records, size = [data], len(data)
        while data and size < _READ_BYTES:
            try:
                data = self._connection.recv(_READ_BYTES)
            except _AGAIN:
                break
            except OSError:
                break  # the next call says it again
            records.append(data)
            size += len(data)
        if size >= _READ_BYTES:
            self._loop.call_soon(self._again)
        return b"".join(records)

    def _again(self) -> None:
        if self._reading:
            self._readable()

    def _flush(self) -> None:
        try:
            while self._queue:
                self._pass_on()
        except _AGAIN:
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
        self._lost(why)


async def connect(host: str, port: int, context: ssl.SSLContext | None) -> Link:
    """Returns a link to a server; OSError (ssl.SSLError among them) with the reason.

    Raises:
        asyncio.TimeoutError: nobody answered within CONNECT_SECONDS.
    """
    return await asyncio.wait_for(_connect(host, port, context), CONNECT_SECONDS)


async def _connect(host: str, port: int, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Link(connection if context is None else await _agree(connection, host, context))
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
    raise failure


async def _agree(connection: socket.socket, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """TLS over a connection; ssl.SSLError if one end does not trust the other."""
    secured = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                await _ready(secured.fileno(), reading=True)
            except ssl.SSLWantWriteError:
                await _ready(secured.fileno(), reading=False)
        if secured.selected_alpn_protocol() != "h2":
            raise ssl.SSLError("the server does not offer HTTP/2")
    except BaseException:
        secured.close()
        raise
    return secured


async def _ready(fd: int, reading: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (
        (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
    )
    add(fd, _wake, ready)
    try:
        await ready
    finally:
        remove(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
