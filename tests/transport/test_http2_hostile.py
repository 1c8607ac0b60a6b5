"""Sockets that mean harm, or say nothing, before the gateway's HTTP/2 server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable

import grpc
import pytest

from rgpu_common.http2 import frames, headers
from rgpu_common.http2.frames import Error, Flag, Kind, Setting
from rgpu_server.http2 import allowance, session
from rgpu_server.http2.server import Server
from transport.test_http2_server import Handlers, serving, tls, until

HELLO = frames.PREFACE + frames.settings({})


def request(path: str, stream: int = 1) -> bytes:
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", path),
        ("content-type", "application/grpc"),
    ]  # fmt: skip
    return frames.frame(Kind.HEADERS, Flag.END_HEADERS, stream, headers.encode(fields))


def message(data: bytes, stream: int = 1) -> bytes:
    payload = b"\0" + len(data).to_bytes(4, "big") + data
    return frames.frame(Kind.DATA, 0, stream, payload)


class Raw:
    """A client that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, *pieces: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(b"".join(pieces))
            await self._writer.drain()

    async def frame(self) -> tuple[frames.Frame, bytes]:
        head = frames.parse_head(await self._reader.readexactly(frames.HEAD_BYTES), 0)
        return head, await self._reader.readexactly(head.left)

    async def hears(self, kind: Kind, stream: int | None = None) -> tuple[frames.Frame, bytes]:
        """The next frame of this kind."""
        while True:
            head, payload = await self.frame()
            if head.kind == kind and stream in (None, head.stream):
                return head, payload

    async def ends(self) -> None:
        """Returns once the server has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass

    def close(self) -> None:
        self._writer.close()


# Opens a connection; of the machine's own address that it is given.
Dial = Callable[..., Awaitable[Raw]]
Work = Callable[[Dial, Server, Handlers], Awaitable[None]]


def with_raw(work: Work, **places: int) -> None:
    """Runs `work` against a server that still serves afterwards."""

    async def run() -> None:
        opened: list[Raw] = []
        async with serving(**places) as (server, handlers, target):
            host, _, port = target.rpartition(":")

            async def dial(mine: str = "127.0.0.1") -> Raw:
                opened.append(
                    Raw(*await asyncio.open_connection(host, int(port), local_addr=(mine, 0)))
                )
                return opened[-1]

            await asyncio.wait_for(work(dial, server, handlers), 60)
            async with grpc.aio.insecure_channel(target) as channel:
                assert await channel.unary_unary("/t/echo")(b"still", timeout=20) == b"still"
            for raw in opened:
                raw.close()

    asyncio.run(run())


def test_another_protocol() -> None:
    async def work(dial: Callable[[], Awaitable[Raw]], server: Server, _: Handlers) -> None:
        raw = await dial()
        await raw.say(b"GET / HTTP/1.1\r\n\r\n")
        await raw.ends()
        assert server.refused["handshake"] == 1

    with_raw(work)


def test_who_says_nothing_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SILENT_SECONDS", 0.1)

    async def work(dial: Callable[[], Awaitable[Raw]], server: Server, _: Handlers) -> None:
        silent, slow = await dial(), await dial()
        await slow.say(HELLO[:20])
        await silent.ends()
        await slow.ends()
        assert server.refused["late"] == 2

    with_raw(work)


def test_who_has_no_calls_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "IDLE_SECONDS", 0.1)

    async def work(dial: Callable[[], Awaitable[Raw]], server: Server, _: Handlers) -> None:
        idle, busy = await dial(), await dial()
        await busy.say(HELLO, request("/t/wait"))
        await idle.say(HELLO)
        await idle.hears(Kind.GOAWAY)
        await idle.ends()
        await busy.say(frames.frame(Kind.PING, 0, 0, bytes(8)))
        await busy.hears(Kind.PING)

    with_raw(work)


def test_who_is_silent_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PING_SECONDS", 0.1)

    async def work(dial: Callable[[], Awaitable[Raw]], _: Server, handlers: Handlers) -> None:
        alive, dead = await dial(), await dial()
        for raw in (alive, dead):
            await raw.say(HELLO, request("/t/wait"))
        for _ in range(3):
            _, payload = await alive.hears(Kind.PING)
            await alive.say(frames.frame(Kind.PING, Flag.ACK, 0, payload))
        await dead.ends()
        await until(lambda: len(handlers.ended) == 1)

    with_raw(work)


def test_who_has_no_business_makes_room() -> None:
    async def work(dial: Callable[[], Awaitable[Raw]], server: Server, handlers: Handlers) -> None:
        busy = await dial()
        await busy.say(HELLO, request("/t/wait"))
        await until(lambda: bool(handlers.calls))
        handlers.calls[0].admit()
        first, second = await dial(), await dial()
        await second.say(HELLO, request("/t/wait"))
        third = await dial()
        await third.say(HELLO)
        await third.hears(Kind.SETTINGS)
        await first.ends()
        assert server.refused["too_many"] == 1
        await busy.say(frames.frame(Kind.PING, 0, 0, bytes(8)))
        await busy.hears(Kind.PING)
        third.close()

    with_raw(work, connections=3)


@pytest.mark.parametrize(
    "flood",
    [
        frames.frame(Kind.PING, 0, 0, bytes(8)),
        frames.settings({Setting.INITIAL_WINDOW_SIZE: 70_000}),
        frames.frame(Kind.DATA, 0, 1, b""),
        frames.window_update(0, 1),
    ],
)
def test_floods(flood: bytes) -> None:
    async def work(dial: Callable[[], Awaitable[Raw]], _: Server, handlers: Handlers) -> None:
        raw = await dial()
        await raw.say(HELLO, request("/t/wait"), flood * 2 * int(allowance.MOST))
        _, payload = await raw.hears(Kind.GOAWAY)
        assert frames.parse_number(payload, 4) == Error.ENHANCE_YOUR_CALM
        await raw.ends()
        await until(lambda: len(handlers.ended) == len(handlers.calls))

    with_raw(work)


def test_rapid_resets() -> None:
    async def work(dial: Callable[[], Awaitable[Raw]], _: Server, handlers: Handlers) -> None:
        raw = await dial()
        streams = range(1, 2 * int(allowance.MOST), 2)
        await raw.say(HELLO, *(request("/t/wait", n) + frames.reset(8, n) for n in streams))
        await raw.hears(Kind.GOAWAY)
        await raw.ends()
        await until(lambda: len(handlers.ended) == len(handlers.calls))

    with_raw(work)


def test_answers_that_nobody_reads() -> None:
    async def work(dial: Callable[[], Awaitable[Raw]], server: Server, handlers: Handlers) -> None:
        raw = await dial()
        # Its windows are wide open, and its socket is full.
        wide = frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW})
        await raw.say(frames.PREFACE, wide, frames.window_update(0, 1 << 30))
        for stream in range(1, 100, 2):
            await raw.say(request("/t/pour", stream), message(b"x", stream))
        other = await dial()
        await other.say(HELLO, request("/t/echo"), message(b"there"))
        assert (await other.hears(Kind.DATA))[1] == b"\0\0\0\0\x05there"

    with_raw(work)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ([(":method", "GET"), (":scheme", "http"), (":path", "/")], "405"),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/")], "415"),
        (
            [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("content-type", "a/b")],
            "415",
        ),
        ([(":method", "POST"), (":path", "/")], ""),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/"), (":status", "200")], ""),
        ([("x", "y"), (":method", "POST"), (":scheme", "http"), (":path", "/")], ""),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/"), ("Upper", "x")], ""),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/"), ("upgrade", "x")], ""),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/"), ("x", "a\r\nb")], ""),
    ],
)
def test_what_is_no_grpc(fields: headers.Headers, answer: str) -> None:
    """It is answered in HTTP, or given up."""

    async def work(dial: Callable[[], Awaitable[Raw]], _: Server, handlers: Handlers) -> None:
        raw = await dial()
        block = headers.encode(fields)
        last = Flag.END_HEADERS | Flag.END_STREAM
        await raw.say(HELLO, frames.frame(Kind.HEADERS, last, 1, block))
        if answer:
            _, payload = await raw.hears(Kind.HEADERS)
            assert (":status", answer) in headers.decode(payload)
        else:
            _, payload = await raw.hears(Kind.RST_STREAM)
            assert frames.parse_number(payload) == Error.PROTOCOL
        await raw.say(request("/t/echo", 3), message(b"on", 3))
        await raw.hears(Kind.DATA, 3)

    with_raw(work)


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_handshakes_that_fail() -> None:
    def stranger(target: str, context: ssl.SSLContext | None, first: bytes = b"") -> None:
        """Stays until it is sent away."""
        host, _, port = target.rpartition(":")
        one = socket.create_connection((host, int(port)), 20)
        with contextlib.suppress(OSError):
            if context is not None:
                one = context.wrap_socket(one)
            one.sendall(first)
            while one.recv(4096):
                pass
        one.close()

    async def run() -> None:
        async with serving(tls()) as (server, _, target):
            await asyncio.to_thread(stranger, target, None, b"GET / HTTP/1.1\r\n\r\n")
            assert server.refused["not_tls"] == 1
            old = client_context()
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            await asyncio.to_thread(stranger, target, old)
            assert server.refused["handshake"] == 1
            # Without ALPN it is no HTTP/2.
            await asyncio.to_thread(stranger, target, client_context(), HELLO)
            assert server.refused["handshake"] == 2

    asyncio.run(run())
