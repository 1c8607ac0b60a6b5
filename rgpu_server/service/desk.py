"""Opens sessions: takes HELLO, ATTACH and RESUME, and gives each client a worker or a refusal."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import secrets
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rgpu_common import release
from rgpu_common.arrays.seams import Seam
from rgpu_common.clusters import MAX_NAME
from rgpu_common.sharing import SharePolicy
from rgpu_common.texts import file_of_program
from rgpu_common.wire.attach import decode_attach
from rgpu_common.wire.fields import WishKey
from rgpu_common.wire.frame import WIRE_MAJOR, WireError
from rgpu_common.wire.handshake import SECRET_BYTES
from rgpu_common.wire.hello import Hello, decode_hello, put_hello
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.resume import TRY_AGAIN, Lane, decode_resume
from rgpu_common.wire.status import (
    CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUDA_ERROR_UNKNOWN,
)
from rgpu_server.core.events import (
    ClaimRequested,
    ClientDied,
    ClientLeft,
    Event,
    SessionRequested,
)
from rgpu_server.core.model import PPM, Code, LeaseKey, Refusal, Wish
from rgpu_server.service.claims import ClaimDesk, claim_of
from rgpu_server.service.farewells import ENDED, Farewells
from rgpu_server.service.processes import ClientProcesses
from rgpu_server.service.sockets import round_trip_ns, say_and_close
from rgpu_server.service.who import Who, container_of, who

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.service.callers import Caller

# So many refused clients are given time to read why; beyond it connections close at once.
MAX_LEAVING = 64
# How long an ATTACH to a worker that is ending waits for that end, so that its client is told why.
# The driver library waits kAnswerMs (control_lane.cc), which is longer.
_END_SECONDS = 4.0
_NO_USE = (
    "there is no such session, or its secret is wrong or already used; start the program again"
)
# Refusals that are the server's fault, not the lease's: the client can do nothing about them.
_SERVER_FAULTS = (Code.NO_WORKER,)


@dataclass(slots=True)
class Visitor:
    """A client that sent HELLO, until its session is over.

    connection: its command lane; None once the worker has taken it over.
    late: its control lane that came when the worker was ending, or that came again, and waits to be
        told why.
    shares_memory: the client and its worker share memory for commands; a wish until it is open.
    seam: the array library that executes its operations; "" for one of the driver's calls.
    """

    session: int
    hello: Hello
    head: bytes = field(repr=False)
    caller: Caller
    tenant: str
    connection: socket.socket | None
    late: socket.socket | None = None
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES), repr=False)
    attached: bool = False
    handed_over: bool = False
    watched: bool = False
    shares_memory: bool = False
    seam: str = ""
    round_trip_ns: int = 0  # of its connection when it was open; 0: not known

    @property
    def peer(self) -> str:
        return self.caller.peer

    @property
    def transport(self) -> str:
        """The transport of its commands: that of the connection, or shared memory beside it."""
        return "shm" if self.shares_memory else self.caller.transport


class Desk:
    """Holds the visitors. `authenticator` decides which callers are admitted. `feed` passes events
    to the node, `pass_control` a control lane to a worker, `pass_resume` a new connection with
    its RESUME to a worker. `has_lease` tells whether there is an active lease of a key.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        feed: Callable[[Event], None],
        pass_control: Callable[[int, socket.socket], bool],
        pass_resume: Callable[[int, socket.socket, bytes], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        has_lease: Callable[[LeaseKey], bool] = lambda _: True,
    ) -> None:
        self._has_lease = has_lease
        self._authenticator = authenticator
        self._feed = feed
        self._pass_control = pass_control
        self._pass_resume = pass_resume
        self._spawn = spawn
        self._numbers = itertools.count(1)
        self._visitors: dict[int, Visitor] = {}
        self._leaving = 0
        self.claims = ClaimDesk(feed, self._refuse_claim)
        self._farewells = Farewells()
        self._processes = ClientProcesses(lambda session: feed(ClientDied(session)))
        # Connections refused because their RESUME names an unknown session or has a wrong secret.
        self.resumes_refused = 0

    def adopt(
        self, session: int, tenant: str, caller: Caller, hello: Hello, secret: bytes | None
    ) -> None:
        """Takes over the client of a session that an earlier daemon opened.

        Whether the worker has the control lane is not known: the earlier daemon may have ended with
        an ATTACH that it had not passed on. So one more ATTACH goes to the worker, which takes no
        second control lane.
        """
        visitor = Visitor(session, hello, b"", caller, tenant, None, handed_over=True)
        if secret is not None:
            visitor.secret = secret
        self._visitors[session] = visitor
        self._numbers = itertools.count(max(session + 1, next(self._numbers)))

    def get(self, session: int) -> Visitor | None:
        """Returns the visitor of a session, or None."""
        return self._visitors.get(session)

    def hello(self, connection: socket.socket, head: bytes, caller: Caller) -> None:
        """Takes over a connection that sent HELLO: refuses it, or asks the node for a session."""
        try:
            hello = decode_hello(head)
        except WireError as error:
            self.turn_away(connection, CUDA_ERROR_UNKNOWN, f"the HELLO does not decode: {error}")
            return
        if hello.major != WIRE_MAJOR:
            self.turn_away(connection, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, _version_sentence(hello))
            return
        if hello.resume_session:
            sentence = "sessions are resumed by RESUME and not by HELLO; install the same release"
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, sentence)
            return
        found = self._who(hello, caller)
        if isinstance(found, Refusal):
            self._keep_out(connection, caller, found)
            return
        if hello.access_token:
            # The worker runs the tenant's code and does not need the access token.
            hello = hello._replace(access_token="")
            head = put_hello(hello)
        try:
            wish = _wish(hello)
        except ValueError as error:
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, str(error))
            return
        seam = _seam(hello)
        if seam is None:
            sentence = "the server does not know the array library that the client asks for"
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, sentence)
            return
        session = next(self._numbers)
        visitor = Visitor(session, hello, head, caller, found.tenant, connection, seam=seam)
        visitor.shares_memory = caller.transport == "unix" and (WishKey.SHM, 1) in hello.wishes
        self._take(visitor, connection, wish, found)

    def _take(self, visitor: Visitor, connection: socket.socket, wish: Wish, whose: Who) -> None:
        """Asks the node for a session or, if the HELLO claims one, for a lease."""
        session, hello = visitor.session, visitor.hello
        container = container_of(visitor.peer, hello.container)
        origin = visitor.caller.origin
        asked = session, visitor.tenant, hello.lease_key, container, wish, origin
        claims, own, wait = claim_of(hello)
        if claims:
            if whose.bound:
                wait = 0.0  # in line it would get a new lease once its own has ended
            claim = ClaimRequested(
                *asked, own, wait, whose.proved, whose.operator, hello.program[:MAX_NAME]
            )
            self.claims.take(connection, claim)
            return
        self._visitors[session] = visitor
        if visitor.caller.transport == "unix" and (WishKey.RESUMABLE, 1) in hello.wishes:
            self._processes.watch(session, connection, hello.pid)
        name = file_of_program(hello.program)[:MAX_NAME]
        self._feed(SessionRequested(*asked, visitor.seam, whose.operator, name))
        if self._visitors.get(session) is visitor and not visitor.handed_over:
            self._watch(visitor)

    def attach(self, connection: socket.socket, head: bytes, caller: Caller) -> None:
        """Takes over a connection that sent ATTACH: a session's control lane, if the secret is
        right.
        """
        try:
            attach = decode_attach(head)
        except WireError as error:
            self.turn_away(connection, CUDA_ERROR_UNKNOWN, f"the ATTACH does not decode: {error}")
            return
        visitor = self._visitors.get(attach.session)
        expected = visitor.secret if visitor is not None else bytes(SECRET_BYTES)
        right = hmac.compare_digest(attach.secret, expected)
        if visitor is None and self._farewells.knows(attach.session, attach.secret):
            sentence = self._farewells.sentence(attach.session, attach.secret)
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, sentence)
            return
        if visitor is None or not right:
            self._keep_out(connection, caller, Refusal(Code.NOT_IDENTIFIED, _NO_USE), "lane")
            return
        if visitor.late is not None:
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, _NO_USE)
            return
        again, visitor.attached = visitor.attached, True
        if not again and self._pass_control(attach.session, connection):
            connection.close()
            return
        # The worker is ending. If it was sent an ATTACH before, it has taken that one, or dies
        # without having read it.
        visitor.late = connection
        otherwise = _NO_USE if again else ""
        loop = asyncio.get_running_loop()
        loop.call_later(_END_SECONDS, self._answer_late, visitor, otherwise)

    def resume(self, connection: socket.socket, head: bytes, caller: Caller) -> None:
        """Takes over a connection that sent RESUME: a new one for a lane of a living session, if
        the secret is right. The session's worker answers.
        """
        try:
            resume = decode_resume(head)
        except WireError as error:
            self.turn_away(connection, CUDA_ERROR_UNKNOWN, f"the RESUME does not decode: {error}")
            return
        visitor = self._visitors.get(resume.session)
        expected = visitor.secret if visitor is not None else bytes(SECRET_BYTES)
        right = hmac.compare_digest(resume.secret, expected)
        if visitor is not None and not right:
            self.resumes_refused += 1
            self._keep_out(connection, caller, Refusal(Code.NOT_IDENTIFIED, ENDED), "lane")
            return
        if visitor is None or not visitor.handed_over:
            self.resumes_refused += 1
            sentence = self._farewells.sentence(resume.session, resume.secret)
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, sentence)
            return
        if resume.lane is Lane.CONTROL:
            visitor.attached = True
        if self._pass_resume(resume.session, connection, head):
            connection.close()
        else:
            # The worker is ending. When it has ended, the client is told why.
            self.turn_away(connection, TRY_AGAIN, ENDED)

    def hand_over(self, visitor: Visitor) -> None:
        """Notes that the worker answers the client from now on. Our copy of the connection is kept
        until `opened`, in case the worker dies before.
        """
        self._unwatch(visitor)
        visitor.handed_over = True

    def opened(self, session: int, shares_memory: bool | None = None) -> str:
        """Closes our copy of the connection: the worker has welcomed or refused its client. Returns
        the transport of the session's commands; "": nobody knows it.

        shares_memory: whether client and worker share memory; None: the worker did not say.
        """
        visitor = self._visitors.get(session)
        if visitor is not None and shares_memory is not None:
            visitor.shares_memory = shares_memory
        if visitor is not None and visitor.connection is not None:
            self._unwatch(visitor)
            visitor.round_trip_ns = round_trip_ns(visitor.connection)
            visitor.connection.close()
            visitor.connection = None
        return "" if visitor is None else visitor.transport

    def refuse(self, session: int, refusal: Refusal) -> None:
        """Answers HELLO with REFUSED, unless the worker has answered already."""
        self._processes.forget(session)
        visitor = self._visitors.pop(session, None)
        if visitor is None:
            return
        if visitor.handed_over:
            # The worker may have welcomed the client, whose control lane is on its way.
            self._farewells.add(session, visitor.tenant, visitor.secret, refusal.sentence)
            self._answer_late(visitor)
        if visitor.connection is not None:
            self._unwatch(visitor)
            self.turn_away(visitor.connection, cuda_result(refusal.code), refusal.sentence)

    def note_why(self, session: int, why: str) -> None:
        """Notes why the server is about to end a session, for its client."""
        if session in self._visitors:
            self._farewells.note(session, why)

    def forget(self, session: int, why: str = "") -> Visitor | None:
        """Forgets a session that is over, but for the reason; returns its visitor."""
        self.opened(session)
        self._processes.forget(session)
        visitor = self._visitors.pop(session, None)
        if visitor is not None:
            self._farewells.add(session, visitor.tenant, visitor.secret, why)
            self._answer_late(visitor)
        return visitor

    def _answer_late(self, visitor: Visitor, otherwise: str = "") -> None:
        """Tells the control lane that came too late why its session has ended, as far as known.

        otherwise: what it is told while the session goes on.
        """
        connection, visitor.late = visitor.late, None
        if connection is not None:
            sentence = self._farewells.sentence(visitor.session, visitor.secret)
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, otherwise or sentence)

    def close(self) -> None:
        """Closes our copies of all connections; sessions with a worker go on."""
        for session, visitor in list(self._visitors.items()):
            if visitor.late is not None:
                visitor.late.close()
                visitor.late = None
            self.forget(session)
        self._processes.close()
        self.claims.close()

    def _refuse_claim(self, connection: socket.socket, refusal: Refusal) -> None:
        self.turn_away(connection, cuda_result(refusal.code), refusal.sentence)

    def _who(self, hello: Hello, caller: Caller) -> Who | Refusal:
        identity = self._authenticator.admit(caller, hello.access_token)
        return identity if isinstance(identity, Refusal) else who(identity, hello, self._has_lease)

    def _keep_out(
        self, connection: socket.socket, caller: Caller, refusal: Refusal, what: str = "session"
    ) -> None:
        if self._authenticator.answers(caller, what, refusal):
            self.turn_away(connection, CUDA_ERROR_DEVICE_UNAVAILABLE, refusal.sentence)
        else:
            connection.close()

    def turn_away(self, connection: socket.socket, status: int, sentence: str) -> None:
        """Answers REFUSED and closes. With many such clients at once, each has less time for it."""
        patient = self._leaving < MAX_LEAVING
        self._spawn(self._say_and_close(connection, encode_refused(status, sentence), patient))

    async def _say_and_close(self, connection: socket.socket, frame: bytes, patient: bool) -> None:
        self._leaving += 1
        try:
            await say_and_close(connection, frame, patient)
        finally:
            self._leaving -= 1

    def _watch(self, visitor: Visitor) -> None:
        """Notices when the client goes, while nothing else reads its connection."""
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
    """Returns the CUresult that is sent for a refusal."""
    return CUDA_ERROR_UNKNOWN if code in _SERVER_FAULTS else CUDA_ERROR_DEVICE_UNAVAILABLE


def _seam(hello: Hello) -> str | None:
    """Returns the array library that a HELLO wishes for, "" for none; None: it is not known."""
    wished = next((wish.value for wish in hello.wishes if wish.key == WishKey.SEAM), 0)
    if not wished:
        return ""
    return Seam(wished).word if wished in set(Seam) else None


def _wish(hello: Hello) -> Wish:
    """Returns the HELLO's wish; raises ValueError with a sentence for an invalid value."""
    said = {wish.key: wish.value for wish in hello.wishes}
    memory_ppm = said.get(WishKey.MEMORY_PPM, 0)
    if memory_ppm > PPM:
        raise ValueError("a lease cannot have more than 100% of a device's memory")
    policy = said.get(WishKey.POLICY)
    if policy is not None and policy not in set(SharePolicy):
        raise ValueError(f"the server does not know the policy {policy} that the client asks for")
    return Wish(
        None if hello.device < 0 else hello.device,
        hello.memory_bytes,
        hello.share_request_ppm,
        hello.share_limit_ppm,
        memory_ppm,
        None if policy is None else SharePolicy(policy),
        said.get(WishKey.PRIORITY),
        said.get(WishKey.WEIGHT),
    )


def _version_sentence(hello: Hello) -> str:
    return (
        f"the client speaks wire version {hello.major}.{hello.minor} and the server (rgpu "
        f"{release()}) speaks {WIRE_MAJOR}; install the same release of rgpu-cuda on both"
    )
