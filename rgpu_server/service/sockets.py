"""Non-blocking sockets on the event loop: exact reads, refusals that arrive, tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LINGER_SECONDS = 1.0
_LINGER_BYTES = 256 << 10
_TUNNEL_BYTES = 64 << 10
# The place of tcpi_rtt, in microseconds, in Linux's struct tcp_info.
_RTT = struct.Struct("=68xI")


def round_trip_ns(connection: socket.socket) -> int:
    """Returns the kernel's smoothed round trip of a TCP connection; 0: it is no TCP, or unknown."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return 0
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT.size)
        return int(_RTT.unpack(info)[0]) * 1000
    except (OSError, struct.error):
        return 0


async def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Returns `count` bytes; raises EOFError if the peer closes earlier."""
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < count:
        piece = await loop.sock_recv(connection, count - len(data))
        if not piece:
            raise EOFError(f"the peer closed after {len(data)} of {count} bytes")
        data += piece
    return bytes(data)


async def say_and_close(connection: socket.socket, frame: bytes, patient: bool = True) -> None:
    """Sends a last frame and closes so that the peer can still read the frame.

    Closing a socket with unread bytes would reset the connection, and the frame could be lost. So
    this reads and drops what the peer sends, for a bounded time. With patient=False the frame is
    sent if there is room, and nothing is waited for.
    """
    try:
        if not patient:
            with contextlib.suppress(OSError):
                connection.send(frame, socket.MSG_DONTWAIT)
            return
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(_send_all(connection, frame), _LINGER_SECONDS)
            connection.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(_drain(connection), _LINGER_SECONDS)
    finally:
        connection.close()


# A worker that was given the connection shares its flags, and lets it block. So these two pass
# MSG_DONTWAIT: a call that blocks would stop the whole daemon.


async def _send_all(connection: socket.socket, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    left = memoryview(data)
    while left:
        with contextlib.suppress(BlockingIOError):
            left = left[connection.send(left, socket.MSG_DONTWAIT) :]
        if left:
            await _ready(connection, loop.add_writer, loop.remove_writer)


async def _drain(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    left = _LINGER_BYTES
    while left > 0:
        await _ready(connection, loop.add_reader, loop.remove_reader)
        with contextlib.suppress(BlockingIOError):
            piece = connection.recv(65536, socket.MSG_DONTWAIT)
            if not piece:
                return
            left -= len(piece)


async def _ready(
    connection: socket.socket, add: Callable[..., object], remove: Callable[[int], object]
) -> None:
    """Waits until the loop calls what `add` gives it for the connection."""
    ready = asyncio.Event()
    add(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        remove(connection.fileno())


async def tunnel(client: socket.socket, inner: socket.socket, first: bytes) -> None:
    """Carries bytes both ways until one end closes. `first` goes to `inner` before the rest."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(inner, first)
        ways = [
            asyncio.ensure_future(_carry(client, inner)),
            asyncio.ensure_future(_carry(inner, client)),
        ]
        try:
            # HTTP/2 is over when either end closes; the other direction gets time for its last
            # bytes.
            _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if left:
                await asyncio.wait(left, timeout=_LINGER_SECONDS)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    except OSError:
        pass
    finally:
        client.close()
        inner.close()


async def _carry(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, _TUNNEL_BYTES):
            await loop.sock_sendall(target, data)
            # The calls above do not yield while there are bytes and room, so give other tasks a
            # turn.
            await asyncio.sleep(0)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
