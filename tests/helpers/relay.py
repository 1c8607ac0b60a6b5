"""A gateway for tests: brings connections to a server's door, each with a PREFACE."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rgpu_common.endpoints import TcpEndpoint, UnixEndpoint
from rgpu_common.wire.preface import Preface, encode_preface

# The address that a test gives for a connection that comes from a gateway.
INSIDE = UnixEndpoint("a gateway's way")


async def enter(server: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection of a gateway to a daemon in this process."""
    here, there = socket.socketpair()
    server.daemon.door.enter_inside(there)
    return await asyncio.open_unix_connection(sock=here)


@asynccontextmanager
async def relay(server: Any, preface: Preface) -> AsyncIterator[TcpEndpoint]:
    """Yields an address; every connection to it reaches the server with `preface`."""

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        with contextlib.suppress(OSError):
            target.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await enter(server)
        there.write(encode_preface(preface))
        try:
            await asyncio.gather(carry(reader, there), carry(back, writer))
        finally:
            there.close()
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield TcpEndpoint("127.0.0.1", listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
