"""A call as its handler sees it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import headers, status
from rgpu_common.http2.frames import Error
from rgpu_common.http2.messages import PREFIX, Messages, TooLongError
from rgpu_common.http2.sending import send_message
from rgpu_common.http2.status import Status
from rgpu_common.tunnel.chunk import MAX_MESSAGE_BYTES
from rgpu_server.http2.stream import STREAM_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from rgpu_server.http2.connection import Connection
    from rgpu_server.http2.link import Link
    from rgpu_server.http2.stream import Stream
    from rgpu_server.http2.windows import Windows

    Handler: TypeAlias = Callable[["Call"], Coroutine[Any, Any, None]]

# For a call that reads long messages whole; a quarter of a window may not be given back yet.
_WIDE_WINDOW = MAX_MESSAGE_BYTES * 3 // 2
_ANSWER: Final = [(":status", "200"), ("content-type", "application/grpc")]
_ANSWER_BLOCK: Final = headers.encode(_ANSWER)
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class CallError(Exception):
    """The call ends with this status."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(details)
        self.status = Status(code, details)


class CallLostError(Exception):
    """The client has gone, or given the call up."""


class Carrier(Protocol):
    """The connection that a call came over (Session).  blocked: calls that wait for room to send,
    by the number of their stream.
    """

    where: str
    origin: str
    certificate: dict[str, Any] | None
    connection: Connection
    link: Link
    windows: Windows
    blocked: dict[int, Call]

    def flush(self) -> None: ...

    def send(self, head: bytes, *pieces: memoryview) -> None: ...

    def admitted(self, call: Call) -> None: ...

    def one_less(self) -> None: ...


class Call:
    """`read`, `write` as in grpc.aio; the end of the messages is None.

    sink: takes what comes instead of `read`, and returns how much of it waits somewhere; it hears
    of the end too.
    """

    def __init__(self, session: Carrier, stream: Stream, fields: dict[str, str]) -> None:
        self._session = session
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self.fields = fields
        self.over = False
        self.admitted = False
        self.task: asyncio.Task[None] | None = None
        self.sink: Callable[[memoryview | None], int] = self._keep
        self._messages = Messages()
        self._kept = 0
        self._failure: CallError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._answered = False
        self._wide = False
        self._extra = 0  # beyond the window that every stream has
        self.timeout = _timeout(fields.get("grpc-timeout"))
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0
        if self.timeout is not None:
            self._ends_at = self._loop.time() + self.timeout
            self._timer = self._loop.call_later(self.timeout, self._expire)

    @property
    def path(self) -> str:
        """The method."""
        return self.fields.get(":path", "")

    @property
    def session(self) -> Carrier:
        """Who calls."""
        return self._session

    @property
    def heard_all(self) -> bool:
        """True if the client has said all."""
        return self._stream.heard_all

    def time_remaining(self) -> float | None:
        """Seconds until the client loses patience; None: it has not said."""
        return None if self.timeout is None else max(0.0, self._ends_at - self._loop.time())

    def admit(self) -> None:
        """The caller has said what it wants: the call makes room for nobody."""
        if not (self.over or self.admitted):
            self.admitted = True
            self._session.admitted(self)

    def widen(self, window: int) -> None:
        """Lets the client send so much that nobody has read yet, or as much of it as other calls
        leave.
        """
        if not self.over:
            missing = window - STREAM_WINDOW - self._extra
            self._extra += self._session.windows.take(missing)
            self._session.connection.widen(self._stream, STREAM_WINDOW + self._extra)
            self._session.flush()

    def holds(self, count: int) -> None:
        """So much of what came waits to be read."""
        if not self.over:
            self._session.connection.holds(self._stream, count)
            self._session.flush()

    async def read(self) -> bytes | memoryview | None:
        """Returns the next message, None after the last.

        Raises:
            CallError: what came is no message.
        """
        while not self._messages.ready:
            if self._failure is not None:
                raise self._failure
            if self.over:
                raise CallLostError("the call is over")
            if self._stream.heard_all:
                return None
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._messages.ready.popleft()
        self._kept -= len(message) + PREFIX.size
        self.holds(self._kept)
        return message

    async def write(self, message: bytes) -> None:
        """Sends a message as the client's windows allow; CallLostError if the call is over."""
        session = self._session
        if not self._answered:
            self._answered = True
            session.connection.say(self._stream, _ANSWER_BLOCK, last=False)
        await send_message(session.link, message, self._have_room, self._send)

    def _send(self, first: bytes, rest: memoryview) -> None:
        session = self._session
        head = session.connection.data_head(self._stream, len(first) + len(rest))
        session.send(head + first, rest)

    async def _have_room(self) -> int:
        """Returns how many bytes a frame may have now, more than stand before a message."""
        while not self.over:
            room = self._session.connection.room(self._stream)
            if room > PREFIX.size:
                return room
            self._session.flush()
            self._room = self._loop.create_future()
            self._session.blocked[self._stream.number] = self
            try:
                await self._room
            finally:
                self._room = None
                self._session.blocked.pop(self._stream.number, None)
        raise CallLostError("the call is over")

    def finish(self, how: Status) -> None:
        """Ends the call with a status, if it has not ended."""
        if self.over:
            return
        connection, stream = self._session.connection, self._stream
        fields = status.trailers(how)
        block = headers.encode(fields if self._answered else [*_ANSWER, *fields])
        connection.say(stream, block, last=True)
        # Nobody reads what the client may still want to say.
        connection.give_up(stream, Error.NO_ERROR)
        self.lost()
        self._session.flush()

    # What the session says

    def data(self, piece: memoryview) -> int:
        """Takes what came; returns how much of it waits."""
        return 0 if self.over else self.sink(piece)

    def ended(self) -> None:
        """The client has said all."""
        self.sink(None)
        _wake(self._reader)

    def has_room(self) -> None:
        """There may be more to send."""
        if self._session.connection.room(self._stream) > PREFIX.size:
            _wake(self._room)

    def lost(self) -> None:
        """The call is over."""
        if not self.over and self.admitted:
            self._session.one_less()
        self.over = True
        self._session.windows.give(self._extra)
        self._extra = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._wide:
            self._wide = False
            self._session.windows.give_wide()
        _wake(self._reader)
        _wake(self._room)

    def _expire(self) -> None:
        task = self.task
        self.finish(Status(status.DEADLINE_EXCEEDED, "the call took longer than the client waits"))
        if task is not None:
            task.cancel()

    def _keep(self, piece: memoryview | None) -> int:
        if piece is None or self._failure is not None:
            return 0
        self._kept += len(piece)
        try:
            # The buffer it came in is used again.
            self._messages.take(memoryview(bytes(piece)))
        except ProtocolError as error:
            self._failure = failure(error)
        if self._failure is None and self._messages.begun > STREAM_WINDOW // 2:
            self._make_room()
        if self._failure is not None or self._messages.ready:
            _wake(self._reader)
        return self._kept

    def _make_room(self) -> None:
        """A long message comes, which is read once it is whole."""
        if not self._wide:
            self._wide = self._session.windows.take_wide()
        if self._wide:
            self._session.connection.widen(self._stream, _WIDE_WINDOW)
        else:
            self._failure = CallError(status.RESOURCE_EXHAUSTED, "too many long messages come")


def failure(error: ProtocolError) -> CallError:
    """How a call ends whose messages are none."""
    if isinstance(error, TooLongError):
        return CallError(status.RESOURCE_EXHAUSTED, str(error))
    return CallError(status.INVALID_ARGUMENT, str(error))


def _timeout(text: str | None) -> float | None:
    found = _TIMEOUT.fullmatch(text or "")
    return int(found[1]) * _SECONDS[found[2]] if found else None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
