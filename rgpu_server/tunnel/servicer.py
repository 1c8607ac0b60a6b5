"""`TunnelService`: each call is one connection to the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import status
from rgpu_common.tunnel.chunk import END, PREFIX_BYTES
from rgpu_common.tunnel.local import LocalEnd
from rgpu_common.tunnel.relay import End, Patrol, PeerSilentError, Relay, StreamLostError
from rgpu_common.wire.preface import encode_preface
from rgpu_server.http2.call import Call, CallError, CallLostError, failure
from rgpu_server.tunnel.inflow import Inflow

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rgpu_common.wire.preface import Preface
    from rgpu_server.tunnel.callers import Callers
    from rgpu_server.tunnel.door import Door

log = logging.getLogger("rgpu.tunnel")

FIRST_SECONDS: Final = 10.0
# What a client whose tunnel stands may send that the worker has not read yet, where not very many
# others have as much.
_WINDOW_BYTES = 4 << 20
_END = End(True, None, (CallLostError,))


class TunnelHandler:
    """Answers `Open`.  door: the way to the daemon."""

    def __init__(self, door: Door, callers: Callers) -> None:
        self._door = door
        self._callers = callers
        self._patrol = Patrol()
        self._none = asyncio.Event()
        self._none.set()
        # Of tunnels that have ended, and by reason of those that did not come about.
        self._received = self._sent = 0
        self._refused: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many tunnels are open."""
        return len(self._patrol)

    async def none_left(self) -> None:
        """Waits until no tunnel is open."""
        await self._none.wait()

    def figures(self, others: Counter[str]) -> str:
        """Returns what the daemon is told: `NAME=NUMBER ...` (gateway/figures.py).

        others: who was refused before there was a call.
        """
        words = {
            "open": len(self._patrol),
            "received": self._received + sum(relay.received for relay in self._patrol),
            "sent": self._sent + sum(relay.sent for relay in self._patrol),
            **(self._refused + others),
        }
        return " ".join(f"{name}={number}" for name, number in words.items())

    def open(self, call: Call) -> Coroutine[Any, Any, None]:
        """Carries a call until it ends; CallError."""
        return self._open(call, Inflow(call))

    async def _open(self, call: Call, inflow: Inflow) -> None:
        preface = self._callers.preface(call)
        if not await self._first(inflow):
            return
        connection = await self._door.connect()
        if connection is None:
            self._refused["no_server"] += 1
            raise CallError(
                status.UNAVAILABLE,
                "the server behind this gateway does not answer; is it being restarted?",
            )
        local = LocalEnd(connection)
        try:
            await self._carry(call, preface, local, inflow)
        finally:
            local.close()

    async def _carry(self, call: Call, preface: Preface, local: LocalEnd, inflow: Inflow) -> None:
        relay = _Relay(_Answer(call), local, inflow)
        where = call.session.where
        try:
            await local.put(encode_preface(preface))
            inflow.connect(local)
            self._none.clear()
            with self._patrol.over(relay):
                try:
                    await relay.run(b"")
                finally:
                    self._received += relay.received
                    self._sent += relay.sent
        except ProtocolError as error:
            log.warning("tunnel of %s: %s", where, error)
            raise failure(error) from None
        except PeerSilentError as error:
            log.info("tunnel of %s: %s", where, error)
            raise CallError(status.DEADLINE_EXCEEDED, str(error)) from None
        except (StreamLostError, OSError) as error:
            log.debug("tunnel of %s: %s", where, error)
        finally:
            if not len(self._patrol):
                self._none.set()

    async def _first(self, inflow: Inflow) -> bool:
        """The first bytes; until they are here the daemon hears nothing of the call."""
        try:
            return await asyncio.wait_for(inflow.first(), FIRST_SECONDS)
        except asyncio.TimeoutError:
            self._refused["late"] += 1
            raise CallError(status.DEADLINE_EXCEEDED, "the tunnel said nothing") from None
        except ProtocolError as error:
            self._refused["handshake"] += 1
            raise failure(error) from None


class _Relay(Relay):
    """What comes is handed on where it comes; only what goes is carried."""

    def __init__(self, answer: _Answer, local: LocalEnd, inflow: Inflow) -> None:
        super().__init__(answer, local, _END)
        self._inflow = inflow

    @property
    def received(self) -> int:
        return self._inflow.received

    async def _carry_in(self) -> None:
        await self._inflow.finished()

    def _silent_since(self) -> float | None:
        return None if self._inflow.waiting else self._inflow.heard_at


class _Answer:
    """The server's half of a call.  Its first message says that the daemon knows the caller: only
    then the call keeps its place against newcomers, and gets its window.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.read = call.read

    async def write(self, message: bytes, /) -> None:
        """Sends a message; CallLostError if the call is over."""
        if not self._call.admitted and len(message) > PREFIX_BYTES:
            self._call.admit()
            self._call.widen(_WINDOW_BYTES)
        await self._call.write(message)

    async def done_writing(self) -> None:
        """A server's half cannot be closed by itself: a message says it."""
        await self.write(END)
