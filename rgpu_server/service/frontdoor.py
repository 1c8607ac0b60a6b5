"""Accepts all connections. The first bytes show whether it is an API call or a session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rgpu_common.crowds import of_largest_crowd
from rgpu_common.endpoints import Endpoint, TcpEndpoint, UnixEndpoint, cannot_listen
from rgpu_common.tasks import end
from rgpu_common.unix import bind_unix
from rgpu_common.wire.frame import HEADER_BYTES, Kind, WireError, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.preface import decode_preface
from rgpu_common.wire.status import CUDA_ERROR_UNKNOWN
from rgpu_server.service.callers import caller_of, carried_by
from rgpu_server.service.places import Places
from rgpu_server.service.sockets import receive_exactly, tunnel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_server.config import Limits
    from rgpu_server.service.callers import Caller
    from rgpu_server.service.desk import Desk
    from rgpu_server.service.onlookers import Onlookers
    from rgpu_server.service.probes import Probes

log = logging.getLogger("rgpu.door")

_HTTP2 = b"PRI "
_BACKLOG = 512
_ACCEPT_PAUSE_SECONDS = 0.05
_ACCEPTS_PER_TURN = 8
_PREFACE_BYTES = 1024
_FIRST_WORDS = (
    Handshake.HELLO,
    Handshake.ATTACH,
    Handshake.RESUME,
    Handshake.PROBE,
    Handshake.OBSERVE,
)


class DoorCounters(Struct):
    """Counts of connections, for the metrics: accepted, refused, dropped and late ones."""

    connections: int = 0
    refused: int = 0
    dropped: int = 0
    late: int = 0
    by_transport: Counter[str] = msgspec.field(default_factory=Counter)


class _Guest(Struct):
    """A connection that has not sent its first frame. origin: "" until a gateway has named it."""

    task: asyncio.Task[None]
    origin: str


@dataclass(frozen=True, slots=True)
class _First:
    """The first frame of a connection that is not the API's."""

    opcode: Handshake
    head: bytes = field(repr=False)


class FrontDoor:
    """Accepts connections on all endpoints and passes each to the part that serves it."""

    def __init__(
        self, desk: Desk, onlookers: Onlookers, probes: Probes, api_path: str, limits: Limits
    ) -> None:
        self._desk = desk
        self._onlookers = onlookers
        self._probes = probes
        self._api_path = api_path
        self._limits = limits
        self._listeners: list[socket.socket] = []
        self._paths: list[tuple[str, int]] = []
        self._acceptors: list[asyncio.Task[None]] = []
        self._guests: set[asyncio.Task[None]] = set()
        # The longest present first.
        self._greeting: dict[int, _Guest] = {}
        self.callers = Places(limits.control_connections)
        self.counters = DoorCounters()

    def listen(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Binds all endpoints and returns them with their real ports. Raises ServerError naming the
        endpoint that fails.
        """
        return [self._bind(endpoint) for endpoint in endpoints]

    def take(self, listener: socket.socket, path: str) -> Endpoint:
        """Takes over a Unix socket that listens at `path`; returns its endpoint."""
        self._paths.append((path, os.stat(path).st_ino))
        listener.setblocking(False)
        self._listeners.append(listener)
        return UnixEndpoint(path)

    def start(self) -> None:
        """Starts to accept connections."""
        self._acceptors = [asyncio.ensure_future(self._accept(s)) for s in self._listeners]

    async def stop(self) -> None:
        """Stops accepting and drops connections that wait for their first frame; sessions go on."""
        await end([*self._acceptors, *self._guests])
        await self._onlookers.stop()
        for listener in self._listeners:
            listener.close()
        for path, inode in self._paths:
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == inode:
                    os.unlink(path)
        self._listeners, self._paths = [], []

    def _bind(self, endpoint: Endpoint) -> Endpoint:
        try:
            return self._bind_one(endpoint)
        except OSError as error:
            raise cannot_listen(endpoint, error) from None

    def _bind_one(self, endpoint: Endpoint) -> Endpoint:
        if isinstance(endpoint, UnixEndpoint):
            listener = _bind_unix(endpoint.path)
            self._paths.append((endpoint.path, os.stat(endpoint.path).st_ino))
            bound: Endpoint = endpoint
        else:
            listener = bind_tcp(endpoint)
            bound = TcpEndpoint(endpoint.host, listener.getsockname()[1])
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listeners.append(listener)
        return bound

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            for _ in range(_ACCEPTS_PER_TURN):
                await self._accept_one(listener)
            # sock_accept does not yield while connections are waiting, so give earlier ones a turn.
            await asyncio.sleep(0)

    async def _accept_one(self, listener: socket.socket) -> None:
        try:
            connection, address = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            # No descriptors are left, or the peer has gone: go on accepting.
            log.warning("accept: %s", error)
            await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
            return
        self._take(connection, caller_of(connection, address))

    def enter_inside(self, connection: socket.socket) -> None:
        """Takes a client from a gateway; the first frame (PREFACE) says for whom the gateway
        speaks.
        """
        self._take(connection, None)

    def _take(self, connection: socket.socket, caller: Caller | None) -> None:
        self.counters.connections += 1
        number = self.counters.connections
        origin = "" if caller is None else caller.origin
        self._make_room_for(origin)
        task = asyncio.ensure_future(self._greet(number, connection, caller))
        self._greeting[number] = _Guest(task, origin)
        self._guests.add(task)
        task.add_done_callback(self._guests.discard)

    def _make_room_for(self, origin: str) -> None:
        """Drops a connection if there are too many: a client sends its first frame at once, so the
        one that has been silent longest goes.
        """
        if len(self._greeting) < self._limits.handshakes:
            return
        there = ((number, guest.origin) for number, guest in self._greeting.items())
        leaves = of_largest_crowd(there, origin)
        if leaves is not None:
            self.counters.dropped += 1
            self._greeting.pop(leaves).task.cancel()

    async def _greet(self, number: int, connection: socket.socket, caller: Caller | None) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            known, first = await asyncio.wait_for(
                self._meet(number, connection, caller), self._limits.handshake_seconds
            )
        except asyncio.TimeoutError:  # first: from Python 3.11 on a TimeoutError is an OSError
            self.counters.late += 1
            connection.close()
            return
        except (OSError, EOFError):
            connection.close()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        except WireError as error:
            self._turn_away(connection, f"this port serves rgpu: {error}")
            return
        finally:
            self._greeting.pop(number, None)
        self.counters.by_transport[known.transport] += 1
        # From here on another part owns the connection.
        if first is None:
            await self._serve_api(connection, known)
        elif first.opcode is Handshake.HELLO:
            self._desk.hello(connection, first.head, known)
        elif first.opcode is Handshake.RESUME:
            self._desk.resume(connection, first.head, known)
        elif first.opcode is Handshake.ATTACH:
            self._desk.attach(connection, first.head, known)
        elif first.opcode is Handshake.OBSERVE:
            self._onlookers.take(connection, first.head, known)
        elif sentence := self._probes.take(connection, first.head, known.origin):
            self._turn_away(connection, sentence)

    async def _meet(
        self, number: int, connection: socket.socket, caller: Caller | None
    ) -> tuple[Caller, _First | None]:
        """Returns the caller (read from the PREFACE if None) and the first frame. Raises like
        `_first`.
        """
        if caller is None:
            caller = await _preface(connection)
            guest = self._greeting.get(number)
            if guest is not None:
                guest.origin = caller.origin
        return caller, await _first(connection)

    def _turn_away(self, connection: socket.socket, sentence: str) -> None:
        self.counters.refused += 1
        self._desk.turn_away(connection, CUDA_ERROR_UNKNOWN, sentence)

    async def _serve_api(self, connection: socket.socket, caller: Caller) -> None:
        # The tunnel's end has an unguessable name, by which the API finds the caller.
        name = f"rgpu-{secrets.token_hex(16)}"
        address = f"unix-abstract:{name}"
        task = asyncio.current_task()
        assert task is not None
        self.callers.take(address, caller, partial(self._make_room, task))
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._limits.handshake_seconds, self._check_known, address, task)
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.bind(f"\0{name}")
            inner.setblocking(False)
            await loop.sock_connect(inner, self._api_path)
            await tunnel(connection, inner, _HTTP2)
        except OSError as error:
            log.warning("the API does not answer: %s", error)
        finally:
            late.cancel()
            self.callers.free(address)
            inner.close()
            connection.close()

    def _make_room(self, guest: asyncio.Task[None]) -> None:
        self.counters.dropped += 1
        guest.cancel()

    def _check_known(self, address: str, guest: asyncio.Task[None]) -> None:
        """Drops an API connection on which no call was admitted in time."""
        if not self.callers.knows(address):
            self.counters.late += 1
            guest.cancel()


async def _preface(connection: socket.socket) -> Caller:
    """Reads the PREFACE of a gateway; raises like `_first`."""
    header = parse_header(await receive_exactly(connection, HEADER_BYTES))
    if (header.kind, header.opcode) != (Kind.HANDSHAKE, Handshake.PREFACE):
        raise WireError("a gateway must begin with PREFACE")
    if header.bulk_bytes or header.payload_bytes > _PREFACE_BYTES:
        raise WireError("the PREFACE is too long")
    return carried_by(decode_preface(await receive_exactly(connection, header.payload_bytes)))


async def _first(connection: socket.socket) -> _First | None:
    """Reads the first frame; None: the connection is for the API.

    Raises:
        WireError: the bytes are not a frame that a client may begin with.
        EOFError, OSError: the client closed the connection.
    """
    first = await receive_exactly(connection, len(_HTTP2))
    if first == _HTTP2:
        return None
    rest = await receive_exactly(connection, HEADER_BYTES - len(first))
    header = parse_header(first + rest)
    if header.kind is not Kind.HANDSHAKE or header.bulk_bytes:
        raise WireError("the first frame is not a handshake")
    if header.opcode not in _FIRST_WORDS:
        raise WireError(f"a client must not begin with handshake message {header.opcode}")
    head = await receive_exactly(connection, header.payload_bytes)
    return _First(Handshake(header.opcode), head)


def bind_tcp(endpoint: TcpEndpoint) -> socket.socket:
    """Returns a socket that is bound but does not listen yet; raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _bind_unix(path: str) -> socket.socket:
    listener = bind_unix(path)
    try:
        os.chmod(path, 0o600)
    except OSError:
        listener.close()
        raise
    return listener
