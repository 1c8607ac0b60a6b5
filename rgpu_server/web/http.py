"""HTTP/1.1 on one connection: questions in, answers and streams of answers out.

h11 reads and writes the protocol. Every length and every wait is bounded (`Limits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from msgspec import Struct, field

from rgpu_common.errors import MissingPartError
from rgpu_common.http1 import next_event
from rgpu_common.installing import install_words

try:
    import h11
except ImportError:
    raise MissingPartError(f"the page needs the package h11: {install_words('server')}") from None

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

JSON = "application/json"
# What every answer says, also to a question that is none: scripts and styles of the page alone, no
# frames, no other sites.
SAFE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Limits(Struct, frozen=True):
    """What a browser may use. A write that nobody reads for so long ends the connection."""

    body_bytes: int = 16 << 10
    head_bytes: int = 16 << 10
    idle_seconds: float = 60.0
    ask_seconds: float = 10.0
    write_seconds: float = 10.0


class Question(Struct, frozen=True):
    """What a browser asks. headers: by their names in lower case; of two with one name the last."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Mapping[str, Any]:
        """Returns the body, an object of JSON; raises ValueError."""
        found = json.loads(self.body)
        if not isinstance(found, dict):
            raise ValueError("the body is no object")
        return found


class Answer(Struct):
    """stream: pieces that follow the body, as long as somebody reads."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


def told(status: int, sentence: str) -> Answer:
    """Returns an answer that is one sentence."""
    return Answer(status, json.dumps({"message": sentence}).encode())


class Line:
    """One connection. streaming: it has been answered by a stream, which goes on."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: Limits,
        answer: Callable[[Question], Awaitable[Answer]],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._limits = limits
        self._answer = answer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)

    async def serve(self) -> None:
        """Answers questions until the browser closes, or one is so wrong that the rest is lost."""
        while True:
            request = None
            try:
                request = await asyncio.wait_for(self._event(), self._limits.idle_seconds)
                if not isinstance(request, h11.Request):
                    return
                body = await asyncio.wait_for(self._body(request), self._limits.ask_seconds)
                answer = await self._answer(_question(request, body))
            except h11.RemoteProtocolError as error:
                answer = told(error.error_status_hint, f"this is no question of HTTP: {error}")
            await self._send(answer, head_only=request is not None and request.method == b"HEAD")
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _event(self) -> Any:
        """Returns the next event of the protocol."""
        return await next_event(self._http, self._reader, self._welcome)

    async def _welcome(self) -> None:
        await self._write(h11.InformationalResponse(status_code=100, headers=[]))

    async def _body(self, request: Any) -> bytes:
        parts: list[bytes] = []
        left = self._limits.body_bytes
        while True:
            event = await self._event()
            if isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the question is not complete")
            left -= len(event.data)
            if left < 0:
                raise h11.RemoteProtocolError("the body is too long", error_status_hint=413)
            parts.append(bytes(event.data))

    async def _send(self, answer: Answer, head_only: bool) -> None:
        headers = {**SAFE_HEADERS, "content-type": answer.kind, **answer.headers}
        if answer.stream is None:
            headers["content-length"] = str(len(answer.body))
        if answer.stream is not None or self._http.their_state is not h11.DONE:
            headers["connection"] = "close"
        await self._write(h11.Response(status_code=answer.status, headers=list(headers.items())))
        if answer.body and not head_only:
            await self._write(h11.Data(data=answer.body))
        if answer.stream is not None and not head_only:
            async with contextlib.aclosing(answer.stream) as pieces:
                async for piece in pieces:
                    await self._write(h11.Data(data=piece))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: Any) -> None:
        self._writer.write(self._http.send(event) or b"")
        await asyncio.wait_for(self._writer.drain(), self._limits.write_seconds)


def _question(request: Any, body: bytes) -> Question:
    path, _, query = request.target.decode("ascii", "replace").partition("?")
    headers = {name.decode("ascii"): text.decode("latin-1") for name, text in request.headers}
    try:
        asked = dict(parse_qsl(query, max_num_fields=16))
    except ValueError:
        raise h11.RemoteProtocolError("the query has too many fields") from None
    return Question(request.method.decode("ascii"), path, asked, headers, body)
