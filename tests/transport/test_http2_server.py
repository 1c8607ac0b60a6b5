"""The gateway's HTTP/2 server before real gRPC clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from helpers import pki

from rgpu_common.http2 import status
from rgpu_common.tunnel.chunk import MAX_MESSAGE_BYTES
from rgpu_server.http2.call import Call, CallError
from rgpu_server.http2.certificates import Certificates, Files
from rgpu_server.http2.server import Server

Channel = grpc.aio.Channel
MIB = 1 << 20
# Characters that a header may not have, and that its coding uses.
SENTENCE = 'äöü 100 % of "it"\nis gone'


class Handlers:
    """What the tests' methods do."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.go_on = asyncio.Event()
        self.ended: list[str] = []

    def find(self, path: str) -> Callable[[Call], Awaitable[None]] | None:
        return getattr(self, path.removeprefix("/t/"), None)

    async def echo(self, call: Call) -> None:
        while (message := await call.read()) is not None:
            await call.write(bytes(message))

    async def fail(self, call: Call) -> None:
        raise CallError(status.INVALID_ARGUMENT, SENTENCE)

    async def break_(self, call: Call) -> None:
        raise ZeroDivisionError

    async def pour(self, call: Call) -> None:
        call.admit()
        await call.read()
        for _ in range(8):
            await call.write(bytes(MAX_MESSAGE_BYTES))

    async def take(self, call: Call) -> None:
        call.admit()
        call.widen(MIB)
        await self.wait(call)

    async def wait(self, call: Call) -> None:
        self.calls.append(call)
        try:
            await self.go_on.wait()
        finally:
            self.ended.append(call.path)


@contextlib.asynccontextmanager
async def serving(
    certificates: Certificates | None = None, **places: int
) -> AsyncIterator[tuple[Server, Handlers, str]]:
    handlers = Handlers()
    server = Server(handlers.find, **places)  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    server.listen(listener, certificates)
    try:
        yield server, handlers, f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await server.close()


def with_channel(
    work: Callable[[Channel, Server, Handlers], Awaitable[None]], **places: int
) -> None:
    async def run() -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        async with (
            serving(**places) as (server, handlers, target),
            grpc.aio.insecure_channel(target, options=options) as channel,
        ):
            await asyncio.wait_for(work(channel, server, handlers), 60)

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async def look() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 20)


async def code_of(call: grpc.aio.Call) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details()


def test_messages_go_both_ways() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        call = channel.stream_stream("/t/echo")()
        for size in (0, 1, 5, 16379, 16380, 70_000, MAX_MESSAGE_BYTES):
            message = os.urandom(size)
            await call.write(message)
            assert await call.read() == message
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        assert await channel.unary_unary("/t/echo")(b"one") == b"one"

    with_channel(work)


def test_many_calls_share_a_connection() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        async def one(number: int) -> None:
            message = bytes((number % 256,)) * (number * 97)
            metadata = (("authorization", f"Bearer {number}"), ("x-same", "y" * 50))
            answer = await channel.unary_unary("/t/echo")(message, metadata=metadata)
            assert answer == message

        await asyncio.gather(*(one(number) for number in range(500)))

    with_channel(work)


def test_what_clients_say_of_themselves() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        token = os.urandom(600).hex()
        # The second time the client names what it said before.
        for _ in range(3):
            call = channel.stream_stream("/t/wait")(
                metadata=(("authorization", token),), timeout=30
            )
            await until(lambda: bool(handlers.calls))
            seen = handlers.calls.pop()
            assert seen.fields["authorization"] == token
            assert seen.path == "/t/wait"
            assert 20 < (seen.time_remaining() or 0) <= 31
            assert seen.session.where.startswith("127.0.0.1:")
            call.cancel()

    with_channel(work)


def test_how_calls_end() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        begin = channel.stream_stream
        code, details = await code_of(begin("/t/fail")())
        assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, SENTENCE)
        assert (await code_of(begin("/t/break_")()))[0] is grpc.StatusCode.INTERNAL
        assert (await code_of(begin("/t/none")()))[0] is grpc.StatusCode.UNIMPLEMENTED
        call = begin("/t/echo")()
        await call.write(bytes(MAX_MESSAGE_BYTES + 1))
        assert (await code_of(call))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        packed = begin("/t/echo")(compression=grpc.Compression.Gzip)
        await packed.write(bytes(1000))
        assert (await code_of(packed))[0] is grpc.StatusCode.INVALID_ARGUMENT

    with_channel(work)


def test_a_call_that_is_given_up() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        call = channel.stream_stream("/t/wait")()
        await until(lambda: bool(handlers.calls))
        call.cancel()
        await until(lambda: bool(handlers.ended))
        late = channel.stream_stream("/t/wait")(timeout=0.2)
        assert (await code_of(late))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: len(handlers.ended) == 2)

    with_channel(work)


def test_a_stream_that_is_not_read_does_not_stop_others() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        # One sends what nobody reads, one never reads its answers.
        sender = channel.stream_stream("/t/wait")()
        sending = asyncio.ensure_future(sender.write(bytes(MAX_MESSAGE_BYTES)))
        deaf = channel.stream_stream("/t/pour")()
        await deaf.write(b"x")
        for _ in range(50):
            message = os.urandom(100_000)
            assert await channel.unary_unary("/t/echo")(message) == message
        sending.cancel()
        count = 0
        while count < 8:
            assert len(await deaf.read()) == MAX_MESSAGE_BYTES
            count += 1

    with_channel(work)


def test_who_leaves_finishes_its_calls() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        call = channel.stream_stream("/t/echo")()
        await call.write(b"x")
        assert await call.read() == b"x"
        server.leave()
        await call.write(b"y")
        assert await call.read() == b"y"
        late = channel.unary_unary("/t/echo")(b"z", timeout=20)
        assert (await code_of(late))[0] is grpc.StatusCode.UNAVAILABLE
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK

    with_channel(work)


def test_who_has_said_nothing_makes_room() -> None:
    async def work(channel: Channel, server: Server, handlers: Handlers) -> None:
        calls = []
        for number in range(3):
            calls.append(channel.stream_stream("/t/wait")())
            await until(lambda number=number: len(handlers.calls) > number)  # type: ignore[misc]
        handlers.calls[0].admit()
        assert await channel.unary_unary("/t/echo")(b"x") == b"x"
        await until(lambda: len(handlers.ended) == 1)
        assert (await code_of(calls[1]))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.refused["too_many"] == 1
        handlers.calls[2].admit()
        last = channel.stream_stream("/t/wait")()
        await until(lambda: len(handlers.calls) == 4)
        handlers.calls[3].admit()
        full = channel.unary_unary("/t/echo")(b"x")
        assert (await code_of(full))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        last.cancel()

    with_channel(work, calls=3)


def tls(required: bool = False) -> Certificates:
    folder = pki.folder()
    authority = str(folder / "ca.pem")
    return Certificates(
        Files(str(folder / "server.pem"), str(folder / "server.key"), authority, required)
    )


@pytest.mark.parametrize("name", ["", "alice"])
def test_over_tls(name: str) -> None:
    folder = pki.folder()
    pair = [(folder / f"{name}.{kind}").read_bytes() if name else None for kind in ("key", "pem")]
    trust = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)

    async def run() -> None:
        async with (
            serving(tls()) as (_, handlers, target),
            grpc.aio.secure_channel(target, trust) as channel,
        ):
            message = os.urandom(MAX_MESSAGE_BYTES)
            assert await channel.unary_unary("/t/echo")(message, timeout=30) == message
            waiting = channel.stream_stream("/t/wait")()
            await until(lambda: bool(handlers.calls))
            certificate = handlers.calls[0].session.certificate
            subject = (certificate or {}).get("subject", ())
            assert [v for part in subject for _, v in part] == ([name] if name else [])
            waiting.cancel()

    asyncio.run(run())


def test_a_certificate_is_required() -> None:
    trust = grpc.ssl_channel_credentials((pki.folder() / "ca.pem").read_bytes())

    async def run() -> None:
        async with serving(tls(required=True)) as (server, _, target):
            async with grpc.aio.secure_channel(target, trust) as channel:
                call = channel.unary_unary("/t/echo")(b"x", timeout=20)
                assert (await code_of(call))[0] is grpc.StatusCode.UNAVAILABLE
            assert server.refused["certificate"] >= 1

    asyncio.run(run())
