"""Prometheus metrics and health on a small HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from rgpu_common.crowds import of_largest_crowd
from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.errors import MissingPartError, ServerError
from rgpu_common.installing import install_words
from rgpu_server.core.identity import Identity, Proof
from rgpu_server.core.model import Code, Refusal
from rgpu_server.service.callers import Caller, caller_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.identity.authenticator import Authenticator

_REQUEST_SECONDS = 5.0
_REQUEST_BYTES = 8192
_MAX_CONNECTIONS = 64
# Making pages takes at most this part of the process's time, after a burst of so many seconds:
# sessions open in the same process.
_PART, _BURST_SECONDS = 0.1, 0.5


class Rested:
    """A page that may take long to make. Where it is asked for too often, everybody gets the page
    that was made last.

    clock: of the time that passes. worked: of the time that this thread has worked, because a busy
    machine makes the page no more expensive.
    """

    def __init__(
        self,
        make: Callable[[], bytes],
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._make = make
        self._clock = clock
        self._worked = worked
        self._page = b""
        self._left, self._at = _BURST_SECONDS, clock()

    def get(self) -> bytes:
        """Returns a new page, or the last one while the time for new pages is used up."""
        now = self._clock()
        self._left = min(self._left + _PART * (now - self._at), _BURST_SECONDS)
        self._at = now
        if self._left > 0 or not self._page:
            began = self._worked()
            self._page = self._make()
            self._left -= self._worked() - began
        return self._page


class Metrics:
    """Serves `/metrics` and `/health` until it is closed.

    collector: has a method `collect`, as prometheus_client wants it. health: returns the status and
    the text of `/health`.
    """

    def __init__(
        self, collector: Any, authenticator: Authenticator, health: Callable[[], tuple[int, str]]
    ) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingPartError(
                f"metrics need the package prometheus-client: {install_words('server')}"
            ) from None
        registry = prometheus_client.CollectorRegistry()
        registry.register(collector)
        self._page = Rested(lambda: prometheus_client.generate_latest(registry))
        self._authenticator = authenticator
        self._health = health
        self._server: asyncio.Server | None = None
        # Connections that are open, each with its origin; the one that came first stands first.
        self._guests: dict[asyncio.StreamWriter, str] = {}

    async def start(self, endpoint: TcpEndpoint) -> TcpEndpoint:
        """Listens and returns the endpoint with its real port; ServerError if it is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, endpoint.host, endpoint.port)
        except OSError as error:
            number = error.errno or 0  # below 0: of the name service
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ServerError(f"cannot serve metrics on {endpoint}: {reason}") from None
        return TcpEndpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = caller_of(writer.get_extra_info("socket"), writer.get_extra_info("peername"))
        self._make_room(caller.origin)
        self._guests[writer] = caller.origin
        try:
            with contextlib.suppress(
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
                asyncio.TimeoutError,
                OSError,
            ):
                request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_SECONDS)
                writer.write(self._answer(request[:_REQUEST_BYTES], caller))
                await asyncio.wait_for(writer.drain(), _REQUEST_SECONDS)
        finally:
            self._guests.pop(writer, None)
            writer.close()

    def _make_room(self, newcomer: str) -> None:
        """Where all places are taken, the network with the most connections loses its oldest one,
        so that one network cannot keep others from reading.
        """
        if len(self._guests) >= _MAX_CONNECTIONS:
            leaves = of_largest_crowd(self._guests.items(), newcomer)
            if leaves is not None:
                del self._guests[leaves]
                leaves.transport.abort()

    def _answer(self, request: bytes, caller: Caller) -> bytes:
        """Returns the whole answer; to HEAD that is the head of what GET would get."""
        method, _, rest = request.partition(b" ")
        if method == b"HEAD":
            head, blank, _ = self._answer_get(rest, request, caller).partition(b"\r\n\r\n")
            return head + blank
        if method == b"GET":
            return self._answer_get(rest, request, caller)
        return _http(405, "text/plain", b"only GET and HEAD are served\n", "Allow: GET, HEAD\r\n")

    def _answer_get(self, rest: bytes, request: bytes, caller: Caller) -> bytes:
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path == b"/metrics":
            if not self._may_read(request, caller):
                challenge = "WWW-Authenticate: Bearer\r\n"
                text = b"show the access token of an operator\n"
                return _http(401, "text/plain", text, challenge)
            return _http(200, "text/plain; version=0.0.4", self._page.get())
        if path in (b"/health", b"/healthz"):
            status, said = self._health()
            return _http(status, "text/plain", said.encode())
        return _http(404, "text/plain", b"there are /metrics and /health\n")

    def _may_read(self, request: bytes, caller: Caller) -> bool:
        """The figures of all tenants are for operators, and for callers that need no proof."""
        found = self._authenticator.admit(caller, _bearer(request))
        if isinstance(found, Identity) and not (found.operator or found.proof is Proof.PLACE):
            found = Refusal(Code.NOT_ALLOWED, "")
        if isinstance(found, Refusal):
            self._authenticator.answers(caller, "metrics", found)
            return False
        return True


def _bearer(request: bytes) -> str:
    for line in request.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        kind, _, access_token = value.strip().partition(b" ")
        if name.lower() == b"authorization" and kind.lower() == b"bearer":
            return access_token.strip().decode("ascii", "replace")
    return ""


def _http(status: int, kind: str, body: bytes, more: str = "") -> bytes:
    reason = {
        200: "OK",
        401: "Unauthorized",
        404: "Not Found",
        405: "Method Not Allowed",
        503: "Service Unavailable",
    }[status]
    head = (
        f"HTTP/1.1 {status} {reason}\r\n{more}Content-Type: {kind}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
