"""A gateway for tests: takes TCP connections to the inner socket of a server, behind a PREFACE."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.wire.preface import Preface, encode_preface


@asynccontextmanager
async def relay(inner: str, preface: Preface) -> AsyncIterator[TcpEndpoint]:
    """Yields where to connect to; every connection is one of `preface`."""

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        with contextlib.suppress(OSError):
            target.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_unix_connection(inner)
        there.write(encode_preface(preface))
        try:
            await asyncio.gather(carry(reader, there), carry(back, writer))
        finally:
            there.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield TcpEndpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
