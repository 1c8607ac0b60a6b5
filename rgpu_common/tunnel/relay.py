"""Carries one connection between a socket and a gRPC stream, with bounded memory.

In each direction, one message at a time is being sent. gRPC's flow control holds the writer back,
and bytes that arrive from the socket meanwhile wait in `LocalEnd` or in the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rgpu_common.errors import ProtocolError
from rgpu_common.tunnel.chunk import HEARTBEAT, PREFIX_BYTES, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_common.tunnel.local import LocalEnd

BEAT_SECONDS: Final = 3.0
SILENCE_SECONDS: Final = 10.0
# When the local end is gone, how long the peer may take to end by itself.
LAST_WORDS_SECONDS: Final = 1.0
_PATROL_SECONDS: Final = 0.5


class Stream(Protocol):
    """The methods of a gRPC call that its client's end has."""

    async def read(self) -> Any:
        """Returns a message, or the mark of the end."""

    async def write(self, message: bytes, /) -> None: ...

    async def done_writing(self) -> None:
        """Tells the peer that no message follows."""


@dataclass(frozen=True, slots=True)
class End:
    """How a call ends.

    end: the value that `read` returns at the end of the messages. lost: the exceptions that `read`
    and `write` raise once the call is over.
    """

    end: object
    lost: tuple[type[Exception], ...]


class PeerSilentError(Exception):
    """The peer has sent nothing for SILENCE_SECONDS."""


class StreamLostError(Exception):
    """The call has ended while it was in use. Its status says why."""


_EXPECTED = (asyncio.CancelledError, StreamLostError, ProtocolError, OSError)


class Relay:
    """Carries one connection. Call `run` once."""

    def __init__(self, stream: Stream, local: LocalEnd, end: End) -> None:
        self._stream = stream
        self._local = local
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._beat: asyncio.Task[None] | None = None
        self._writing = False
        self._closed_way = False
        self._sent_at = self._loop.time()
        self._waiting_since: float | None = None
        self._inwards: asyncio.Task[None] | None = None
        self._silent = False
        # Bytes of the connection that came from the stream, and that were sent to it.
        self.received = 0
        self.sent = 0

    async def run(self, first: bytes) -> None:
        """Carries bytes until both directions, or one of the ends, are closed.

        first: a message to send before all others; b"" for none.

        Raises:
            StreamLostError: the call failed.
            ProtocolError: the peer does not speak `tunnel.proto`.
            PeerSilentError: the peer has sent nothing for SILENCE_SECONDS.
        """
        outwards = asyncio.ensure_future(self._carry_out(first))
        inwards = self._inwards = asyncio.ensure_future(self._carry_in())
        try:
            await asyncio.wait((outwards, inwards), return_when=asyncio.FIRST_COMPLETED)
            if inwards.done():
                self._result(inwards)
                return
            outwards.result()
            await self._wait_for_peer(inwards)
        except OSError:
            return  # the socket is closed, so the call ends as well
        finally:
            for task in (outwards, inwards, self._beat):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(*_EXPECTED):
                        await task

    def check(self, now: float) -> None:
        """Sends a heartbeat if this end has sent nothing for BEAT_SECONDS. Ends the relay if the
        peer has been silent for SILENCE_SECONDS.
        """
        since = self._waiting_since
        if since is not None and now - since >= SILENCE_SECONDS and self._inwards is not None:
            self._silent = True
            self._inwards.cancel()
        if self._beat is not None and self._beat.done():
            # The task that reads the stream reports a failure of the call.
            self._beat.exception()
            self._beat = None
        idle = not self._writing and not self._closed_way and self._beat is None
        if idle and now - self._sent_at >= BEAT_SECONDS:
            self._beat = asyncio.ensure_future(self._write(HEARTBEAT))

    async def _wait_for_peer(self, inwards: asyncio.Task[None]) -> None:
        """The socket has sent its last byte. The peer may send on until either end is closed."""
        gone = self._local.gone()
        await self._finish_beat()
        self._closed_way = True
        await self._stream.done_writing()
        if gone:
            await asyncio.wait((inwards,), timeout=LAST_WORDS_SECONDS)
            return
        while not inwards.done():
            await asyncio.wait((inwards,), timeout=_PATROL_SECONDS)
            if self._local.gone():
                return
        self._result(inwards)

    def _result(self, inwards: asyncio.Task[None]) -> None:
        if self._silent:
            raise PeerSilentError(f"the peer has sent nothing for {SILENCE_SECONDS:g} s")
        inwards.result()

    async def _carry_out(self, first: bytes) -> None:
        message = first or await self._local.take()
        while message:
            if self._beat is not None:
                await self._finish_beat()
            await self._write(message)
            self.sent += len(message) - PREFIX_BYTES
            message = await self._local.take()

    async def _carry_in(self) -> None:
        while True:
            self._waiting_since = self._loop.time()
            try:
                message = await self._stream.read()
            except self._end.lost as error:
                raise StreamLostError(str(error)) from None
            self._waiting_since = None
            if message is self._end.end:
                return
            data, end = decode(message)
            if data:
                self.received += len(data)
                await self._local.put(data)
            if end:
                self._local.finish()

    async def _write(self, message: bytes) -> None:
        self._writing = True
        try:
            await self._stream.write(message)
        except self._end.lost as error:
            raise StreamLostError(str(error)) from None
        finally:
            self._writing = False
            self._sent_at = self._loop.time()

    async def _finish_beat(self) -> None:
        """Waits for a heartbeat that is being sent: only one message may be sent at a time."""
        beat, self._beat = self._beat, None
        if beat is not None:
            await beat


class Patrol:
    """Calls `check` of all relays of a process twice a second."""

    def __init__(self) -> None:
        self._relays: set[Relay] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def over(self, relay: Relay) -> Iterator[None]:
        """Checks `relay` during the block."""
        self._relays.add(relay)
        if self._timer is None:
            self._again()
        try:
            yield
        finally:
            self._relays.discard(relay)

    def __len__(self) -> int:
        return len(self._relays)

    def __iter__(self) -> Iterator[Relay]:
        return iter(self._relays)

    def _again(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._relays:
            self._timer = loop.call_later(_PATROL_SECONDS, self._round)

    def _round(self) -> None:
        now = asyncio.get_running_loop().time()
        for relay in list(self._relays):
            relay.check(now)
        self._again()
