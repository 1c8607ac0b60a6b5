"""A client's connection and the calls on it."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from rgpu_common.http2 import status
from rgpu_common.http2.frames import Error
from rgpu_common.http2.status import Status
from rgpu_server.http2 import requests
from rgpu_server.http2.allowance import ConnectionFailedError
from rgpu_server.http2.call import Call, CallError, CallLostError
from rgpu_server.http2.connection import Connection
from rgpu_server.http2.link import Link

if TYPE_CHECKING:
    import socket
    from collections import Counter

    from rgpu_common.http2.headers import Headers
    from rgpu_server.http2.call import Handler
    from rgpu_server.http2.stream import Stream
    from rgpu_server.http2.windows import Windows

log = logging.getLogger("rgpu.tunnel")

# Who has said nothing by then goes; who has no calls for so long makes room; silence is asked
# whether anybody is there, and answers by then.
SILENT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 60.0
PING_SECONDS: Final = 5.0


class Places(Protocol):
    """Who has places for connections and for calls (Server).  refused: how often, by reason."""

    refused: Counter[str]
    windows: Windows

    def handler(self, call: Call) -> Handler | Status: ...

    def admitted(self, call: Call, session: Session) -> None: ...

    def done(self, call: Call) -> None: ...

    def idle(self, session: Session) -> None: ...

    def left(self, session: Session) -> None: ...


class Session:
    """where: the client's address.  origin: what counts as one where places are few.  certificate:
    the client's, as `ssl` describes it; None: there is none.
    """

    def __init__(self, places: Places, connection: socket.socket, where: str, origin: str) -> None:
        self.windows = places.windows
        self._places = places
        self.origin = origin
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self.where = where
        self.certificate: dict[str, Any] | None = None
        self.connection = Connection(self, now)
        self.link = Link(connection, self)
        self.blocked: dict[int, Call] = {}
        self.closed = False
        self._admitted = 0
        self.idle_since = now
        self._began = self._heard = now
        self._pinged = 0.0
        self._pending = b""

    def flush(self) -> None:
        """Sends what the connection has to say."""
        out = self.connection.out
        if out and not self.closed:
            said = bytes(out)
            out.clear()
            self.link.send(said)

    def send(self, head: bytes, *pieces: memoryview) -> None:
        """Sends a frame, after what there is to say before it."""
        out = self.connection.out
        if out:
            head = bytes(out) + head
            out.clear()
        self.link.send(head, *pieces)

    def admitted(self, call: Call) -> None:
        """A call has said what it wants: it makes room for nobody, nor does the connection."""
        self._admitted += 1
        self._places.admitted(call, self)

    def one_less(self) -> None:
        """Such a call is over."""
        self._admitted -= 1
        if not self._admitted and not self.closed:
            self._places.idle(self)

    def leave(self) -> None:
        """Takes no more calls; ends with the last."""
        self.connection.leave()
        self.flush()
        self._close_if_done()

    def close(self) -> None:
        """Ends the connection, and its calls with it."""
        if self.closed:
            return
        self.flush()
        self.closed = True
        for stream in list(self.connection.streams.values()):
            self.reset(stream, Error.CANCEL)
        self.connection.streams.clear()
        self.link.close()
        self._places.left(self)

    def check(self, now: float) -> None:
        """Looks for the peer's signs of life."""
        if not self.connection.begun:
            if now - self._began >= SILENT_SECONDS:
                self._places.refused["late"] += 1
                self.close()
            return
        if not self.connection.streams and now - self.idle_since >= IDLE_SECONDS:
            self.leave()
            return
        if self._pinged > self._heard:
            if now - self._pinged >= PING_SECONDS:
                log.info("%s: nothing came for %g s", self.where, now - self._heard)
                self.close()
        elif now - self._heard >= PING_SECONDS and not self._pending:
            self._pinged = now
            self.connection.ping()
            self.flush()

    # What the link says

    def agreed(self, certificate: dict[str, Any] | None) -> None:
        """The connection is ready."""
        self.certificate = certificate

    def received(self, data: memoryview) -> None:
        """Bytes came."""
        now = self._heard = self._loop.time()
        try:
            taken = self.connection.receive(data, now)
        except ConnectionFailedError as error:
            log.info("%s: %s", self.where, error)
            if not self.connection.begun:
                self._places.refused["handshake"] += 1
            self.close()
            return
        if taken < len(data) and not self.closed:
            # It is another's turn.
            self._pending = bytes(data[taken:])
            self.link.stop_reading()
            self._loop.call_soon(self._go_on)
        self.flush()

    def lost(self, why: str, refusal: str) -> None:
        """The connection has ended."""
        if refusal:
            self._places.refused[refusal] += 1
            log.info("%s: %s", self.where, why)
        self.close()

    def _go_on(self) -> None:
        if self.closed:
            return
        data, self._pending = memoryview(self._pending), b""
        self.received(data)
        if not self._pending and not self.closed:
            self.link.resume()
            self._loop.call_soon(self.link.more)

    # What the connection says

    def opened(self, stream: Stream, fields: Headers) -> None:
        """A call begins."""
        request = requests.check(fields)
        if isinstance(request, Error):
            self.connection.give_up(stream, request)
            return
        if isinstance(request, bytes):
            self.connection.say(stream, request, last=True)
            self.connection.give_up(stream, Error.NO_ERROR)
            return
        call = stream.user = Call(self, stream, request)
        handler = self._places.handler(call)
        if isinstance(handler, Status):
            call.finish(handler)
            return
        # The handler sees what comes from now on, not only once its task runs.
        call.task = asyncio.ensure_future(handler(call))
        call.task.add_done_callback(functools.partial(self._done, call))

    def _done(self, call: Call, task: asyncio.Task[None]) -> None:
        call.task = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, CallError):
            call.finish(error.status)
        elif task.cancelled() or isinstance(error, CallLostError):
            call.finish(Status(status.CANCELLED, "the call was given up"))
        elif error is not None:
            log.error("%s", call.path, exc_info=error)
            call.finish(Status(status.INTERNAL, "the gateway failed"))
        else:
            call.finish(Status(status.OK, ""))
        self._places.done(call)
        self._close_if_done()

    def data(self, stream: Stream, piece: memoryview) -> None:
        """A call brings something."""
        self.connection.holds(stream, stream.user.data(piece))

    def ended(self, stream: Stream) -> None:
        """A client has said all of a call."""
        stream.user.ended()

    def reset(self, stream: Stream, code: int) -> None:
        """A call is over."""
        call: Call = stream.user
        call.lost()
        if call.task is not None:
            call.task.cancel()

    def room(self, stream: Stream | None) -> None:
        """There is more room to send."""
        if stream is None:
            for call in list(self.blocked.values()):
                call.has_room()
        elif stream.number in self.blocked:
            self.blocked[stream.number].has_room()

    def _close_if_done(self) -> None:
        if not self.connection.streams:
            self.idle_since = self._loop.time()
            if self.connection.leaving:
                self.close()
