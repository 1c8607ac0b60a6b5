"""Listens for browsers, and bounds how many there are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rgpu_common.crowds import of_largest_crowd
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint, UnixEndpoint, cannot_listen
from rgpu_common.unix import bind_unix
from rgpu_server.service.callers import caller_of
from rgpu_server.service.frontdoor import bind_tcp
from rgpu_server.web.http import Limits, Line, Question

if TYPE_CHECKING:
    import socket

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.identity.settings import Tls
    from rgpu_server.service.callers import Caller
    from rgpu_server.web.http import Answer
    from rgpu_server.web.site import Site

log = logging.getLogger("rgpu.web")

_MAX_CONNECTIONS = 96
_BACKLOG = 64
_CLOSE_SECONDS = 3.0
_CLOSE_STEP_SECONDS = 0.2
_ACCEPT_PAUSE_SECONDS = 0.1
_READER_BYTES = 1 << 16


class _Guest(Struct):
    """A connection. origin: the user or network that it counts for. writer: there is none
    before TLS is agreed on.
    """

    origin: str
    writer: asyncio.StreamWriter | None = None

    def leave(self, task: asyncio.Task[None]) -> None:
        """Ends the connection and the task that serves it."""
        if self.writer is not None:
            self.writer.transport.abort()
        task.cancel()


class WebServer:
    """Serves a site until it is closed."""

    def __init__(self, site: Site, tls: Tls, limits: Limits | None = None) -> None:
        self._site = site
        self._tls = tls
        self._limits = limits or Limits()
        self._context: ssl.SSLContext | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._path = ""
        # Connections that are open; the one that came first stands first.
        self._guests: dict[asyncio.Task[None], _Guest] = {}

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listens; returns the endpoint with its real port. ServerError: it cannot be bound."""
        if isinstance(endpoint, TlsEndpoint):
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._load()
        try:
            listener = self._bind(endpoint)
        except OSError as error:
            raise cannot_listen(endpoint, error) from None
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listener = listener
        self._accepting = asyncio.ensure_future(self._accept(listener))
        if isinstance(endpoint, TcpEndpoint):
            return endpoint.at(endpoint.host, listener.getsockname()[1])
        return endpoint

    def _bind(self, endpoint: Endpoint) -> socket.socket:
        if isinstance(endpoint, UnixEndpoint):
            listener = bind_unix(endpoint.path)
            # Every user of the machine may come, as to 127.0.0.1; the kernel tells which one it is.
            os.chmod(endpoint.path, 0o666)
            self._path = endpoint.path
        else:
            assert isinstance(endpoint, TcpEndpoint)
            listener = bind_tcp(endpoint)
        return listener

    def reload(self) -> bool:
        """Reads the certificate again; False: there is none."""
        if self._context is None:
            return False
        try:
            self._load()
        except (OSError, ValueError) as error:
            log.error("the page keeps its certificate: the new one cannot be read: %s", error)
        return True

    def _load(self) -> None:
        assert self._context is not None
        self._tls.check()
        self._context.load_cert_chain(self._tls.certificate, self._tls.key)

    async def close(self) -> None:
        """Closes all connections."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        if self._listener is not None:
            self._listener.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        # A task may miss a cancellation that comes with the end of what it waits for.
        while self._guests and time.monotonic() < deadline:
            for task, guest in list(self._guests.items()):
                guest.leave(task)
            await asyncio.wait(list(self._guests), timeout=_CLOSE_STEP_SECONDS)
        await self._site.close()
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _make_room(self, newcomer: str) -> None:
        """Where all places are taken, the network with the most connections loses its oldest one,
        so that one network cannot keep others from looking.
        """
        if len(self._guests) >= _MAX_CONNECTIONS:
            origins = ((task, guest.origin) for task, guest in self._guests.items())
            leaves = of_largest_crowd(origins, newcomer)
            if leaves is not None:
                self._guests.pop(leaves).leave(leaves)

    async def _accept(self, listener: socket.socket) -> None:
        """Accepts connections itself: those that have not agreed on TLS yet count as well."""
        while True:
            try:
                connection, address = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:
                # No descriptors are left, or the browser has gone: go on accepting.
                log.warning("the page: accept: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            caller = caller_of(connection, address)
            if self._context is not None:
                caller = replace(caller, transport="tls")
            self._make_room(caller.origin)
            guest = _Guest(caller.origin)
            task = asyncio.ensure_future(self._serve(connection, caller, guest))
            self._guests[task] = guest
            task.add_done_callback(partial(self._gone, connection))
            # sock_accept does not yield while connections are waiting; earlier ones get a turn.
            await asyncio.sleep(0)

    def _gone(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._guests.pop(task, None)
        connection.close()  # of a task that was cancelled before it began
        if not task.cancelled() and task.exception() is not None:
            log.error("a question of a browser was not answered", exc_info=task.exception())

    async def _serve(self, connection: socket.socket, caller: Caller, guest: _Guest) -> None:
        try:
            reader, writer = await self._connected(connection, guest)
        except (OSError, asyncio.TimeoutError):
            return  # It does not speak TLS, or not in time.

        async def answer(question: Question) -> Answer:
            return await self._site.answer(question, caller)

        try:
            await Line(reader, writer, self._limits, answer).serve()
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # The browser has gone, is too slow or has to go, or the server closes.
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), _CLOSE_STEP_SECONDS)

    async def _connected(
        self, connection: socket.socket, guest: _Guest
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Returns the connection as streams, after its TLS handshake if TLS is spoken."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=self._limits.ask_seconds if self._context else None,
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        guest.writer = writer
        return reader, writer
