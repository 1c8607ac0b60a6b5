"""The connection under a call: a TCP socket, or TLS over one, on the event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Final

from rgpu_common.http2.sending import AGAIN, Sender

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECT_SECONDS: Final = 10.0
_READ_BYTES = 256 << 10


class Link(Sender):
    """Both halves."""

    def start(self, received: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """Calls `received` with what comes, and `lost` once with the reason when that ends."""
        self._received, self._lost = received, lost
        self._input.start()

    def _was_lost(self, why: str) -> None:
        self._lost(why)

    def _readable(self) -> None:
        try:
            data = self._records() if self._tls else self._connection.recv(_READ_BYTES)
        except AGAIN:
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
            except AGAIN:
                break
            except OSError:
                break  # the next call says it again
            records.append(data)
            size += len(data)
        if size >= _READ_BYTES:
            self._loop.call_soon(self._again)
        return b"".join(records)

    def _again(self) -> None:
        if self._input.active:
            self._readable()


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
