"""`TunnelService`: each call is one connection to the daemon's inner socket."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc

from rgpu_common.errors import ProtocolError
from rgpu_common.tunnel.chunk import END, OPEN, decode
from rgpu_common.tunnel.local import LocalEnd
from rgpu_common.tunnel.relay import End, Patrol, PeerSilentError, Relay, StreamLostError
from rgpu_common.wire.preface import encode_preface

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context

    from rgpu_common.wire.preface import Preface
    from rgpu_server.tunnel.callers import Callers

log = logging.getLogger("rgpu.tunnel")

FIRST_SECONDS = 10.0
_END = End(True, grpc.aio.EOF, (grpc.aio.BaseError, asyncio.InvalidStateError))


class TunnelHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers `Open`.  inner: the path of the daemon's inner socket."""

    def __init__(self, inner: str, callers: Callers) -> None:
        self._inner = inner
        self._callers = callers
        self._patrol = Patrol()
        # Of tunnels that have ended, and by reason of those that did not come about.
        self._received = self._sent = 0
        self._refused: Counter[str] = Counter()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Returns the handler of `Open`, which sees messages as they are on the wire."""
        if details.method != OPEN:
            return None
        return grpc.stream_stream_rpc_method_handler(self._open)

    def __len__(self) -> int:
        """How many tunnels are open."""
        return len(self._patrol)

    def figures(self) -> str:
        """Returns what the daemon is told: `NAME=NUMBER ...` (gateway/figures.py)."""
        words = {
            "open": len(self._patrol),
            "received": self._received + sum(relay.received for relay in self._patrol),
            "sent": self._sent + sum(relay.sent for relay in self._patrol),
            **self._refused,
        }
        return " ".join(f"{name}={number}" for name, number in words.items())

    async def _open(self, _: Any, context: Context) -> None:
        preface = self._callers.preface(context)
        first = await self._first(context)
        if not first:
            return
        connection = await connect_inner(self._inner)
        if connection is None:
            self._refused["no_server"] += 1
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "the server behind this gateway does not answer; is it being restarted?",
            )
            raise AssertionError("abort does not return")
        local = LocalEnd(connection)
        try:
            await self._carry(context, preface, local, first)
        finally:
            local.close()

    async def _carry(
        self, context: Context, preface: Preface, local: LocalEnd, first: memoryview | bytes
    ) -> None:
        relay = Relay(_Answer(context), local, _END)
        relay.received = len(first)
        try:
            await local.put(encode_preface(preface))
            await local.put(first)
            with self._patrol.over(relay):
                try:
                    await relay.run(b"")
                finally:
                    self._received += relay.received
                    self._sent += relay.sent
        except ProtocolError as error:
            log.warning("tunnel of %s: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except PeerSilentError as error:
            log.info("tunnel of %s: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except (StreamLostError, OSError) as error:
            log.debug("tunnel of %s: %s", context.peer(), error)

    async def _first(self, context: Context) -> memoryview | bytes:
        """The first bytes; until they are here the daemon hears nothing of the call."""
        try:
            return await asyncio.wait_for(_first_data(context), FIRST_SECONDS)
        except asyncio.TimeoutError:
            self._refused["late"] += 1
            code, sentence = grpc.StatusCode.DEADLINE_EXCEEDED, "the tunnel said nothing"
        except ProtocolError as error:
            self._refused["handshake"] += 1
            code, sentence = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        await context.abort(code, sentence)
        raise AssertionError("abort does not return")


class _Answer:
    """The server's half of a call."""

    def __init__(self, context: Context) -> None:
        self.read = context.read
        self.write = context.write

    async def done_writing(self) -> None:
        """A server's half cannot be closed by itself: a message says it."""
        await self.write(END)


async def _first_data(context: Context) -> memoryview | bytes:
    """The first bytes; b"" if the call ends without any."""
    while (message := await context.read()) is not grpc.aio.EOF:
        data, _ = decode(message)
        if data:
            return data
    return b""


async def connect_inner(path: str) -> socket.socket | None:
    """Returns a connection to the daemon's inner socket, or None."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, path)
    except OSError as error:
        log.warning("the server's inner socket: %s", error)
        connection.close()
        return None
    return connection
