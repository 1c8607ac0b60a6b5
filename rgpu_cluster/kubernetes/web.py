"""A small HTTPS server that answers JSON with JSON, for what Kubernetes asks by HTTP.

h11 reads and writes the protocol; it is there already, because the Kubernetes client needs it.
Every length and every wait is bounded (`Limits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any

import h11
from msgspec import Struct

from rgpu_cluster.core.errors import PlacementError
from rgpu_common.http1 import next_event
from rgpu_common.tasks import end

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

log = logging.getLogger("rgpu.kubernetes.web")

HEALTH = "/healthz"


class Limits(Struct, frozen=True):
    """What callers may use.

    body_bytes, head_bytes: of one question. callers: connections at one time; later ones are closed
    at once. idle_seconds: how long a connection may be silent. ask_seconds: how long a question may
    take to come in. answer_seconds: how long a handler may take.
    """

    body_bytes: int = 4 << 20
    head_bytes: int = 16 << 10
    callers: int = 64
    idle_seconds: float = 90.0
    ask_seconds: float = 10.0
    answer_seconds: float = 8.0


class AskedWrongError(Exception):
    """A question that is answered with an HTTP error. status: its code."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Server:
    """Answers POST at each path of `routes` by its handler: JSON in, JSON out.

    A handler that raises PlacementError has refused the question as it is: status 400.
    """

    def __init__(
        self, routes: Mapping[str, Callable[[Any], Awaitable[Any]]], limits: Limits | None = None
    ) -> None:
        self._routes = routes
        self._limits = limits or Limits()
        self._server: asyncio.Server | None = None
        # The longest present first.
        self._callers: dict[asyncio.Task[None], _Caller] = {}

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listens; returns the port. tls: None only for loopback addresses."""
        self._server = await asyncio.start_server(
            self._accept,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=self._limits.ask_seconds if tls else None,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Closes all connections; what is being answered is dropped."""
        if self._server is not None:
            self._server.close()
        await end(self._callers)

    def _makes_room(self) -> bool:
        """Returns whether there is room for one more. Else the caller that has been there longest
        without a question has to go.
        """
        if len(self._callers) < self._limits.callers:
            return True
        for task, caller in self._callers.items():
            if not caller.busy:
                del self._callers[task]
                caller.leave()
                task.cancel()
                return True
        return False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if self._makes_room():
                caller = _Caller(reader, writer, self._routes, self._limits)
                self._callers[task] = caller
                await caller.serve()
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # The caller has gone, is too slow, or we close.
        finally:
            self._callers.pop(task, None)
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)


class _Caller:
    """One connection. busy: its question is being answered."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        routes: Mapping[str, Callable[[Any], Awaitable[Any]]],
        limits: Limits,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._routes, self._limits = routes, limits
        self.busy = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)

    def leave(self) -> None:
        """Ends the connection, so that the task that serves it ends also if it misses that it was
        cancelled (`rgpu_common.tasks`).
        """
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Answers questions until the caller closes, or one is so wrong that the rest is lost."""
        limits = self._limits
        while True:
            try:
                request = await asyncio.wait_for(self._event(), limits.idle_seconds)
                if not isinstance(request, h11.Request):
                    return
                asked = await asyncio.wait_for(self._read(request), limits.ask_seconds)
                self.busy = True
                status, answer = await self._answer(request, asked)
            except AskedWrongError as error:
                status, answer = error.status, {"message": str(error)}
            except h11.RemoteProtocolError as error:
                status, answer = error.error_status_hint, {"message": "this is no HTTP/1.1 request"}
            await asyncio.wait_for(self._send(status, answer), limits.ask_seconds)
            self.busy = False
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _event(self) -> Any:
        """Returns the next event of the protocol."""
        return await next_event(self._http, self._reader, self._welcome)

    async def _welcome(self) -> None:
        await self._write(h11.InformationalResponse(status_code=100, headers=[]))

    async def _read(self, request: h11.Request) -> bytes:
        """Returns the body."""
        most = self._limits.body_bytes
        said = dict(request.headers).get(b"content-length", b"0")
        if int(said) > most:
            raise AskedWrongError(413, f"a question has at most {most} bytes, and not {int(said)}")
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._event()
            if not isinstance(event, h11.Data):
                if isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                raise AskedWrongError(400, "the question is not complete")
            size += len(event.data)
            if size > most:
                raise AskedWrongError(413, f"a question has at most {most} bytes")
            parts.append(bytes(event.data))

    async def _answer(self, request: h11.Request, body: bytes) -> tuple[int, Any]:
        path = request.target.decode("ascii", "replace").partition("?")[0]
        if request.method == b"GET" and path == HEALTH:
            return 200, {"status": "ok"}
        handler = self._routes.get(path)
        if handler is None:
            return 404, {"message": f"there is nothing at {path[:100]}"}
        if request.method != b"POST":
            return 405, {"message": "this path takes POST"}
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return 400, {"message": "the body is not JSON"}
        try:
            return 200, await asyncio.wait_for(handler(asked), self._limits.answer_seconds)
        except PlacementError as error:
            return 400, {"message": str(error)}
        except asyncio.TimeoutError:
            return 504, {
                "message": f"no answer within {self._limits.answer_seconds:g} s; try again"
            }
        except Exception:
            log.exception("a question at %s was not answered", path)
            return 500, {"message": "an error of rgpu, which its log describes"}

    async def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer, separators=(",", ":")).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if self._http.their_state is not h11.DONE:
            headers.append(("connection", "close"))
        await self._write(
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )

    async def _write(self, *events: Any) -> None:
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
