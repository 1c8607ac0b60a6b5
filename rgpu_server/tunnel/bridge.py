"""The API behind the same port: calls go to the daemon as they came, each client's over a
connection of its own, so that the daemon knows for whom the gateway speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from typing import TYPE_CHECKING

import grpc

from rgpu_common.http2 import status
from rgpu_common.wire.preface import encode_preface
from rgpu_server.http2.call import CallError
from rgpu_server.service.callers import is_own
from rgpu_server.service.sockets import tunnel
from rgpu_server.tunnel.servicer import FIRST_SECONDS

if TYPE_CHECKING:
    from rgpu_common.wire.preface import Preface
    from rgpu_server.http2.call import Call
    from rgpu_server.tunnel.callers import Callers
    from rgpu_server.tunnel.door import Door

_PREFIX = "/rgpu.v1."
_TUNNELS = "/rgpu.v1.TunnelService/"
_MAX_CLIENTS = 64
_MAX_SECONDS = 60.0
_BACKLOG = 64
# What a client may say about itself; the rest of the metadata belongs to HTTP/2 and to proxies.
_PASSED = ("authorization",)


class ApiHandler:
    """Passes the unary calls of the API on."""

    def __init__(self, door: Door, callers: Callers) -> None:
        self._door = door
        self._callers = callers
        self._clients: dict[tuple[str, str], _Client] = {}

    @staticmethod
    def answers(path: str) -> bool:
        """True of every method of the API, whatever this release knows of it."""
        return path.startswith(_PREFIX) and not path.startswith(_TUNNELS)

    async def answer(self, call: Call) -> None:
        """Answers a call; CallError."""
        request = await _request(call)
        call.admit()
        answer = await self._pass_on(call, request)
        try:
            await asyncio.wait_for(call.write(answer), _MAX_SECONDS)
        except asyncio.TimeoutError:
            raise CallError(status.DEADLINE_EXCEEDED, "nobody reads the answer") from None

    async def close(self) -> None:
        """Ends all connections to the daemon."""
        for client in list(self._clients.values()):
            await client.close()
        self._clients.clear()

    async def _pass_on(self, call: Call, request: bytes) -> bytes:
        metadata = [(key, call.fields[key]) for key in _PASSED if key in call.fields]
        left = call.time_remaining()
        timeout = _MAX_SECONDS if left is None else min(left, _MAX_SECONDS)
        preface = self._callers.preface(call)
        name = preface.peer.rpartition(":")[0], preface.tenant
        client = self._client(name, preface)
        client.calls += 1
        try:
            await self._make_room()
            answer: bytes = await client.channel.unary_unary(call.path)(
                request, metadata=metadata, timeout=timeout
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED and client.calls == 1:
                # A stranger's place is free at once, so that strangers push out nobody.
                await self._end(name, client)
            raise CallError(error.code().value[0], error.details() or "") from None
        finally:
            client.calls -= 1
        return answer

    def _client(self, name: tuple[str, str], preface: Preface) -> _Client:
        """Returns the client's connection to the daemon, which is made for its first call."""
        client = self._clients.pop(name, None)
        if client is not None:
            self._clients[name] = client
            return client
        client = _Client(self._door, preface)
        self._clients[name] = client
        return client

    async def _make_room(self) -> None:
        """Ends the connection that has been idle for longest; if all have calls, the oldest."""
        while len(self._clients) > _MAX_CLIENTS:
            there = list(self._clients.items())
            await self._end(*next((one for one in there if one[1].calls == 0), there[0]))

    async def _end(self, name: tuple[str, str], client: _Client) -> None:
        if self._clients.get(name) is client:
            del self._clients[name]
        await client.close()


async def _request(call: Call) -> bytes:
    """The message of a call, which has a place here from its first byte on."""
    try:
        request = await asyncio.wait_for(call.read(), FIRST_SECONDS)
    except asyncio.TimeoutError:
        raise CallError(status.DEADLINE_EXCEEDED, "the call said nothing") from None
    if request is None:
        raise CallError(status.INVALID_ARGUMENT, "the call came without a request")
    return bytes(request)


class _Client:
    """A client's way to the API: a gRPC channel whose connections begin with a PREFACE.  It
    connects to a socket of ours, whose name nobody guesses.  calls: how many are under way.
    """

    def __init__(self, door: Door, preface: Preface) -> None:
        self.calls = 0
        self._door = door
        self._first = encode_preface(preface)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        # No file: a gateway has no folder of its own.
        name = f"rgpu-{secrets.token_hex(16)}"
        self._listener.bind(f"\0{name}")
        self._listener.listen(_BACKLOG)
        self._carriers: set[asyncio.Task[None]] = set()
        self._acceptor = asyncio.ensure_future(self._accept())
        self.channel = grpc.aio.insecure_channel(f"unix-abstract:{name}")

    async def close(self) -> None:
        await self.channel.close()
        for task in (self._acceptor, *self._carriers):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            if not is_own(connection):
                connection.close()
                continue
            connection.setblocking(False)
            task = asyncio.ensure_future(self._carry(connection))
            self._carriers.add(task)
            task.add_done_callback(self._carriers.discard)

    async def _carry(self, connection: socket.socket) -> None:
        inner = await self._door.connect()
        if inner is None:
            connection.close()
            return
        await tunnel(connection, inner, self._first)
