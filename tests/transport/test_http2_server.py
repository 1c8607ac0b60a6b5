"""The gateway of `grpc:` before real gRPC clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import grpc
import pytest
from helpers import pki
from helpers.agent import GRPC
from helpers.builder import FLAGS, ROOT
from helpers.ends import ended
from helpers.gateway import Gateway, receive
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.tunnel.chunk import END, HEARTBEAT, MAX_DATA_BYTES, OPEN, decode, encode
from rgpu_common.v1.device_pb2 import ListDevicesRequest, ListDevicesResponse
from rgpu_server.workers.binary import gateway_path

Channel = grpc.aio.Channel
LIST_DEVICES = "/rgpu.v1.DeviceService/ListDevices"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


def with_channel(gateway: Gateway, work: Callable[[Channel], Awaitable[None]]) -> None:
    async def run() -> None:
        async with grpc.aio.insecure_channel(gateway.target) as channel:
            await asyncio.wait_for(work(channel), 60)

    asyncio.run(run())


async def opened(
    gateway: Gateway, channel: Channel
) -> tuple[grpc.aio.StreamStreamCall, socket.socket]:
    """A tunnel, and the daemon's end of it."""
    call = channel.stream_stream(OPEN)()
    await call.write(encode(b"x"))
    inner, _ = await asyncio.to_thread(gateway.accept)
    assert await asyncio.to_thread(receive, inner, 1) == b"x"
    return call, inner


async def read(call: grpc.aio.StreamStreamCall, count: int) -> bytes:
    """So many bytes of a tunnel."""
    data = b""
    while len(data) < count:
        data += bytes(decode(await call.read())[0])
    return data


def test_messages_of_every_size(gateway: Gateway) -> None:
    async def work(channel: Channel) -> None:
        call, inner = await opened(gateway, channel)
        for size in (1, 5, 127, 128, 16379, 16384, 70_000, MAX_DATA_BYTES):
            data = os.urandom(size)
            await call.write(encode(data))
            await call.write(HEARTBEAT)
            assert await asyncio.to_thread(receive, inner, size) == data
            await asyncio.to_thread(inner.sendall, data)
            assert await read(call, size) == data
        await call.write(END)
        assert await asyncio.to_thread(inner.recv, 1) == b""
        inner.close()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    with_channel(gateway, work)


def test_tunnels_share_a_connection_and_do_not_stop_each_other(gateway: Gateway) -> None:
    async def work(channel: Channel) -> None:
        slow, unread = await opened(gateway, channel)
        sending = asyncio.ensure_future(flood(slow))
        deaf, source = await opened(gateway, channel)
        pouring = asyncio.ensure_future(asyncio.to_thread(source.sendall, bytes(8 << 20)))
        call, inner = await opened(gateway, channel)
        for _ in range(50):
            data = os.urandom(100_000)
            await call.write(encode(data))
            assert await asyncio.to_thread(receive, inner, len(data)) == data
            await asyncio.to_thread(inner.sendall, data)
            assert await read(call, len(data)) == data
        sending.cancel()
        assert await read(deaf, 8 << 20) == bytes(8 << 20)
        await pouring
        for one in (unread, source, inner):
            one.close()

    with_channel(gateway, work)


async def flood(call: grpc.aio.StreamStreamCall) -> None:
    """Writes as long as it is not cancelled."""
    with contextlib.suppress(asyncio.CancelledError, asyncio.InvalidStateError):
        while True:
            await call.write(encode(bytes(1 << 20)))


def test_how_calls_end(gateway: Gateway) -> None:
    async def work(channel: Channel) -> None:
        none = channel.stream_stream("/other/Open")()
        assert await none.code() is grpc.StatusCode.UNIMPLEMENTED
        packed = channel.stream_stream(OPEN)(compression=grpc.Compression.Gzip)
        await packed.write(bytes(1000))
        assert await packed.code() is grpc.StatusCode.INVALID_ARGUMENT
        call, inner = await opened(gateway, channel)
        call.cancel()
        with inner:
            assert await asyncio.to_thread(inner.recv, 1) == b""
        late = channel.stream_stream(OPEN)(timeout=0.2)
        assert await late.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    with_channel(gateway, work)


def test_a_call_that_says_nothing() -> None:
    with Gateway("--first-ms", "100") as gateway:

        async def work(channel: Channel) -> None:
            call = channel.stream_stream(OPEN)()
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert await call.details() == "the client sent no data in time"

        with_channel(gateway, work)


def test_who_leaves_finishes_its_calls() -> None:
    with Gateway() as gateway:

        async def work(channel: Channel) -> None:
            call, inner = await opened(gateway, channel)
            gateway.end_daemon()
            await call.write(encode(b"y"))
            assert await asyncio.to_thread(receive, inner, 1) == b"y"
            late = channel.stream_stream(OPEN)(timeout=60)
            assert await late.code() is grpc.StatusCode.UNAVAILABLE
            inner.close()
            while await call.read() is not grpc.aio.EOF:
                pass
            assert await call.code() is grpc.StatusCode.OK

        with_channel(gateway, work)
        ended(gateway.process)


def test_many_calls_of_the_api_share_a_connection() -> None:
    with Server(*GRPC) as server:

        async def run() -> None:
            async with grpc.aio.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
                ask = channel.unary_unary(
                    LIST_DEVICES,
                    request_serializer=ListDevicesRequest.SerializeToString,
                    response_deserializer=ListDevicesResponse.FromString,
                )
                metadata = (("authorization", "Bearer " + "t" * 600), ("x-same", "y" * 50))
                calls = [
                    ask(ListDevicesRequest(), timeout=60, metadata=metadata) for _ in range(300)
                ]
                for answer in await asyncio.gather(*calls):
                    assert len(answer.devices) == 1
                other = channel.unary_unary("/rgpu.v1.DeviceService/Other")(b"", timeout=60)
                assert await other.code() is grpc.StatusCode.UNIMPLEMENTED

        asyncio.run(run())


def test_nobody_behind_the_gateway() -> None:
    with Gateway() as gateway:
        gateway.close_door()
        with grpc.insecure_channel(gateway.target) as channel:
            for call in (channel.unary_unary(LIST_DEVICES), channel.unary_unary(OPEN)):
                with pytest.raises(grpc.RpcError, match="does not answer") as caught:
                    call(encode(b"x"), timeout=60)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("name", ["", "alice"])
def test_over_tls(name: str) -> None:
    folder = pki.folder()
    pair = [(folder / f"{name}.{kind}").read_bytes() if name else None for kind in ("key", "pem")]
    trust = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    with Gateway(scheme="grpcs") as gateway, grpc.secure_channel(gateway.target, trust) as channel:
        data = os.urandom(MAX_DATA_BYTES)
        answers = channel.stream_stream(OPEN)(iter([encode(data)]), timeout=30)
        inner, preface = gateway.accept()
        with inner:
            assert (preface.tenant, preface.authenticated) == (name, bool(name))
            assert receive(inner, len(data)) == data
            inner.sendall(data)
            inner.shutdown(socket.SHUT_WR)
            assert b"".join(bytes(decode(answer)[0]) for answer in answers) == data


def test_a_certificate_is_required() -> None:
    trust = grpc.ssl_channel_credentials((pki.folder() / "ca.pem").read_bytes())
    with (
        Gateway("--require-client-certificate", scheme="grpcs") as gateway,
        grpc.secure_channel(gateway.target, trust) as channel,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(OPEN)(b"", timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        wait_until(lambda: gateway.refused("certificate") >= 1)


@needs("nghttp2-headers")
def test_declarations_are_those_of_the_headers() -> None:
    source = ROOT / "tests" / "transport" / "nghttp2_layout.cc"
    command = [os.environ.get("CXX", "c++"), *FLAGS, f"-I{ROOT}", "-fsyntax-only", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("library", "why"), [("/nowhere.so", "cannot open"), ("", "older than")])
def test_a_library_that_is_missing_or_too_old(tmp_path: Path, library: str, why: str) -> None:
    """The limits against floods that a new one has are asked for by name."""
    if not library:
        library = str(tmp_path / "old.so")
        source = tmp_path / "old.c"
        source.write_text("int nghttp2_session_callbacks_new(void **to) { return -1; }\n")
        subprocess.run(["gcc", "-shared", "-o", library, str(source)], check=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        fds = {"--control-fd": theirs, "--door-fd": theirs, "--grpc-fd": listener}
        words = [word for name, one in fds.items() for word in (name, str(one.fileno()))]
        done = subprocess.run(
            [gateway_path(), *words],
            env={"RGPU_LIBNGHTTP2": library},
            pass_fds=[one.fileno() for one in fds.values()],
            check=False,
            timeout=30,
        )
        assert done.returncode == 1
        kind, _, sentence = ours.recv(4096).decode().partition("\t")
    assert kind == "error"
    assert why in sentence
    assert "libnghttp2-14" in sentence
