"""The desk at which sessions are opened: HELLO and ATTACH in, a worker or a refusal out."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import logging
import secrets
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rgpu_common import release
from rgpu_common.wire.frame import WIRE_MAJOR, WireError
from rgpu_common.wire.handshake import (
    CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUDA_ERROR_UNKNOWN,
    SECRET_BYTES,
    Hello,
    decode_attach,
    decode_hello,
    encode_refused,
)
from rgpu_server.core.events import ClientLeft, Event, SessionRequested
from rgpu_server.core.model import Code, Refusal, Wish
from rgpu_server.service.sockets import say_and_close

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = logging.getLogger("rgpu.session")

DEFAULT_TENANT = "default"
# Refused clients that are waited for until they have read why; more are closed at once.
MAX_LEAVING = 64
# What the client may have done about it is nothing: the server's fault, not the lease's.
_SERVER_FAULTS = (Code.NO_WORKER,)


@dataclass(slots=True)
class Visitor:
    """A client that said HELLO, until its session is over.

    connection: its command lane, here only until the worker has taken it over.
    """

    session: int
    hello: Hello
    head: bytes
    peer: str
    tenant: str
    connection: socket.socket | None
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES))
    attached: bool = False
    handed_over: bool = False
    watched: bool = False


class Desk:
    """Holds the visitors.  `feed` hands events to the node, `pass_control` a lane to a worker."""

    def __init__(
        self,
        feed: Callable[[Event], None],
        pass_control: Callable[[int, socket.socket], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._feed = feed
        self._pass_control = pass_control
        self._spawn = spawn
        self._numbers = itertools.count(1)
        self._visitors: dict[int, Visitor] = {}
        self._leaving = 0

    def get(self, session: int) -> Visitor | None:
        """Returns who opened a session, or None."""
        return self._visitors.get(session)

    def hello(self, connection: socket.socket, head: bytes, peer: str) -> None:
        """Takes over a connection that said HELLO; everything else follows from the node's
        answer.
        """
        try:
            hello = decode_hello(head)
        except WireError as error:
            self.turn_away(connection, CUDA_ERROR_UNKNOWN, f"the greeting makes no sense: {error}")
            return
        if hello.major != WIRE_MAJOR:
            self.turn_away(connection, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, _version_sentence(hello))
            return
        if hello.resume_session:
            sentence = "this server cannot resume sessions; start the program again"
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, sentence)
            return
        session = next(self._numbers)
        tenant = hello.tenant or DEFAULT_TENANT
        self._visitors[session] = Visitor(session, hello, head, peer, tenant, connection)
        # A container is told by where it connects from as well as by what it says.
        container = f"{peer}/{hello.container}" if hello.container else peer
        self._feed(SessionRequested(session, tenant, hello.lease_key, container, _wish(hello)))
        visitor = self._visitors.get(session)
        if visitor is not None and not visitor.handed_over:
            self._watch(visitor)

    def attach(self, connection: socket.socket, head: bytes) -> None:
        """Takes over a connection that said ATTACH: a session's control lane, if the secret is
        right.
        """
        try:
            attach = decode_attach(head)
        except WireError as error:
            self.turn_away(connection, CUDA_ERROR_UNKNOWN, f"the ATTACH makes no sense: {error}")
            return
        visitor = self._visitors.get(attach.session)
        expected = visitor.secret if visitor is not None else bytes(SECRET_BYTES)
        right = hmac.compare_digest(attach.secret, expected)
        if visitor is None or not right or visitor.attached:
            self.turn_away(
                connection,
                CUDA_ERROR_DEVICE_UNAVAILABLE,
                "there is no such session, or its secret is wrong or already used; start the "
                "program again",
            )
            return
        visitor.attached = True
        if self._pass_control(attach.session, connection):
            connection.close()
        else:
            self.turn_away(
                connection, CUDA_ERROR_DEVICE_UNAVAILABLE, "the session's worker is ending"
            )

    def hand_over(self, visitor: Visitor) -> None:
        """The worker answers from now on; our copy is kept until `opened` in case it dies
        before.
        """
        self._unwatch(visitor)
        visitor.handed_over = True

    def opened(self, session: int) -> None:
        """The worker has welcomed or refused its client: our copy of the connection is closed."""
        visitor = self._visitors.get(session)
        if visitor is not None and visitor.connection is not None:
            self._unwatch(visitor)
            visitor.connection.close()
            visitor.connection = None

    def refuse(self, session: int, refusal: Refusal) -> None:
        """Answers HELLO with REFUSED, unless the worker has answered already."""
        visitor = self._visitors.pop(session, None)
        if visitor is None:
            return
        log.info("session %d of %s refused: %s", session, visitor.tenant, refusal.sentence)
        if visitor.connection is not None:
            self._unwatch(visitor)
            self.turn_away(visitor.connection, cuda_result(refusal.code), refusal.sentence)

    def forget(self, session: int) -> Visitor | None:
        """The session is over; returns who it was."""
        self.opened(session)
        return self._visitors.pop(session, None)

    def close(self) -> None:
        """Drops our copies of all connections; sessions with a worker go on."""
        for session in list(self._visitors):
            self.forget(session)

    def turn_away(self, connection: socket.socket, status: int, sentence: str) -> None:
        """Answers REFUSED and closes; a flood of strangers gets less time to read it."""
        patient = self._leaving < MAX_LEAVING
        self._spawn(self._say_and_close(connection, encode_refused(status, sentence), patient))

    async def _say_and_close(self, connection: socket.socket, frame: bytes, patient: bool) -> None:
        self._leaving += 1
        try:
            await say_and_close(connection, frame, patient)
        finally:
            self._leaving -= 1

    def _watch(self, visitor: Visitor) -> None:
        """While nobody reads the connection: notices when its client goes."""
        assert visitor.connection is not None
        visitor.watched = True
        loop = asyncio.get_running_loop()
        loop.add_reader(visitor.connection.fileno(), self._stirs, visitor)

    def _unwatch(self, visitor: Visitor) -> None:
        if visitor.watched and visitor.connection is not None:
            asyncio.get_running_loop().remove_reader(visitor.connection.fileno())
        visitor.watched = False

    def _stirs(self, visitor: Visitor) -> None:
        connection = visitor.connection
        if connection is None:
            return
        try:
            gone = not connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            gone = True
        self._unwatch(visitor)
        if gone:
            self._feed(ClientLeft(visitor.session))


def cuda_result(code: Code) -> int:
    """Returns the CUresult that a refusal has on the wire."""
    return CUDA_ERROR_UNKNOWN if code in _SERVER_FAULTS else CUDA_ERROR_DEVICE_UNAVAILABLE


def _wish(hello: Hello) -> Wish:
    return Wish(
        None if hello.device < 0 else hello.device,
        hello.memory_bytes,
        hello.share_request_ppm,
        hello.share_limit_ppm,
    )


def _version_sentence(hello: Hello) -> str:
    return (
        f"the client speaks wire version {hello.major}.{hello.minor} and the server (rgpu "
        f"{release()}) "
        f"speaks {WIRE_MAJOR}; install the same release of rgpu-cuda on both"
    )


def peer_name(connection: socket.socket, address: object) -> str:
    """Returns where a connection comes from: an IP address, or "local" for this machine."""
    if connection.family == socket.AF_UNIX:
        return "local"
    host = "unknown"
    with contextlib.suppress(TypeError, IndexError):
        host = str(address[0])  # type: ignore[index]
    host = host.removeprefix("::ffff:")
    return "local" if host.startswith("127.") or host == "::1" else host
