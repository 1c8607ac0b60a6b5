"""The agent's own HTTP/2: what it reads of servers that are slow, wrong or mean harm."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_client.session.http2.call import WINDOW_BYTES, Call
from rgpu_client.session.http2.link import Link
from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import frames, headers, status
from rgpu_common.http2.frames import Flag, Kind, Setting
from rgpu_common.http2.messages import Messages
from rgpu_common.http2.status import CallFailedError
from rgpu_common.tunnel.chunk import MAX_MESSAGE_BYTES

Server = Callable[[socket.socket], Awaitable[None]]
ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
DONE = [("grpc-status", "0")]


def header_frame(fields: headers.Headers, flags: int = Flag.END_HEADERS) -> bytes:
    return frames.frame(Kind.HEADERS, flags, frames.STREAM, headers.encode(fields))


def data_frame(*messages: bytes, flags: int = 0) -> bytes:
    payload = b"".join(struct.pack(">BI", 0, len(m)) + m for m in messages)
    return frames.frame(Kind.DATA, flags, frames.STREAM, payload)


def trailers(fields: headers.Headers) -> bytes:
    return header_frame(fields, Flag.END_HEADERS | Flag.END_STREAM)


def talk(client: Callable[[Call], Awaitable[None]], *says: bytes, close: bool = False) -> None:
    """Runs a call against a server that says this, whatever it hears."""

    async def serve() -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        call = Call(Link(near), [(":method", "POST")])
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                for piece in says:
                    await loop.sock_sendall(far, piece)
            if close:
                far.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(client(call), 20)
        finally:
            call.cancel()
            far.close()

    asyncio.run(serve())


async def read_all(call: Call) -> None:
    while await call.read() is not None:
        pass


def ends_with(code: int, words: str, *says: bytes, close: bool = False) -> None:
    """The call fails so when the server says this."""

    async def client(call: Call) -> None:
        with pytest.raises(CallFailedError, match=words) as caught:
            await read_all(call)
        assert caught.value.status.code == code
        with pytest.raises(CallFailedError):
            await call.write(b"more")

    talk(client, *says, close=close)


def test_messages_come_cut_anywhere() -> None:
    said = header_frame(ANSWER) + data_frame(b"one", b"", b"x" * 70000) + data_frame(b"two")

    async def client(call: Call) -> None:
        assert [bytes(await call.read() or b"") for _ in range(4)] == [
            b"one", b"", b"x" * 70000, b"two",
        ]  # fmt: skip
        assert await call.read() is None

    talk(client, said, trailers(DONE))
    talk(client, *(said[i : i + 977] for i in range(0, len(said), 977)), trailers(DONE))


def test_statuses() -> None:
    answer = header_frame(ANSWER)
    unavailable = [("grpc-status", "14"), ("grpc-message", "going%20away%0a")]
    ends_with(14, "going away ", answer, trailers(unavailable))
    ends_with(16, "no", trailers([*ANSWER, ("grpc-status", "16"), ("grpc-message", "no")]))
    ends_with(2, "no gRPC", trailers(ANSWER))
    ends_with(2, "no gRPC", answer, trailers([("grpc-status", "x" * 50)]))
    ends_with(12, "404", header_frame([(":status", "404"), ("content-type", "text/html")]))
    ends_with(14, "502", header_frame([(":status", "502"), ("content-type", "text/html")]))
    ends_with(14, "closed", answer, close=True)
    ends_with(14, "reset with code 2", answer, frames.reset(2))
    ends_with(8, "reset with code 11", answer, frames.reset(11))
    ends_with(14, "takes no calls", frames.frame(Kind.GOAWAY, 0, 0, bytes(8)))
    early = header_frame([(":status", "103")])
    ends_with(14, "closed", early, answer, close=True)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks no HTTP/2"),
        (b"\xff" * 40, "speaks no HTTP/2"),
        (data_frame(b"before the answer"), "does not belong"),
        (header_frame(ANSWER) + frames.head(Kind.DATA, 0, 3, 4) + b"xxxx", "does not belong"),
        (header_frame(ANSWER) + data_frame(b"x", flags=Flag.PADDED), "does not belong"),
        (header_frame(ANSWER) + data_frame(b"x", flags=Flag.END_STREAM), "without a status"),
        (
            header_frame(ANSWER) + frames.frame(Kind.DATA, 0, 1, struct.pack(">BI", 1, 3) + b"abc"),
            "not agreed",
        ),
        (
            header_frame(ANSWER)
            + frames.frame(Kind.DATA, 0, 1, struct.pack(">BI", 0, MAX_MESSAGE_BYTES + 1)),
            "not agreed",
        ),
        (frames.frame(Kind.HEADERS, Flag.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), "header"),
        (frames.frame(Kind.HEADERS, Flag.END_HEADERS | Flag.PADDED, 1, b"\x09x"), "padding"),
        (frames.frame(Kind.HEADERS, Flag.END_HEADERS, 1, b"\xbe"), "not agreed"),
        (
            frames.frame(Kind.HEADERS, 0, 1, b"")
            + 2 * frames.frame(Kind.CONTINUATION, 0, 1, bytes(headers.MAX_BLOCK_BYTES)),
            "too many headers",
        ),
        (frames.frame(Kind.SETTINGS, 0, 0, b"12345"), "wrong length"),
        (frames.frame(Kind.RST_STREAM, 0, 1, b"1"), "too short"),
        (frames.frame(Kind.PUSH_PROMISE, 0, 1, bytes(8)), "not asked for"),
    ],
)
def test_what_is_no_answer(says: bytes, words: str) -> None:
    ends_with(status.INTERNAL, words, says)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_whatever_comes_is_read_or_refused(pieces: list[bytes]) -> None:
    async def client(call: Call) -> None:
        with contextlib.suppress(CallFailedError):
            await read_all(call)

    talk(client, header_frame(ANSWER), *pieces, close=True)


@given(st.binary(max_size=200))
def test_header_blocks_are_read_or_refused(block: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        for name, value in headers.decode(block):
            assert isinstance(name, str)
            assert isinstance(value, str)


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        # RFC 7541, C.4.1 and C.6.1, without what they keep in a table.
        ("828684018cf1e3c2e5f23a6ba0ab90f4ff", [
            (":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com"),
        ]),
        ("488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff", [
            (":status", "302"), ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ]),
        ("2088", [(":status", "200")]),
    ],
)  # fmt: skip
def test_header_blocks(block: str, fields: headers.Headers) -> None:
    assert headers.decode(bytes.fromhex(block)) == fields


@given(st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300)), max_size=8))
def test_our_blocks_are_read_back(fields: headers.Headers) -> None:
    read = headers.decode(headers.encode(fields))
    assert [(n.encode("latin-1"), v.encode("latin-1")) for n, v in read] == [
        (n.encode(), v.encode()) for n, v in fields
    ]


@given(st.lists(st.binary(max_size=50)), st.integers(1, 20))
def test_messages_are_put_together(messages: list[bytes], size: int) -> None:
    stream = b"".join(struct.pack(">BI", 0, len(m)) + m for m in messages)
    reader = Messages()
    for at in range(0, len(stream), size):
        reader.take(memoryview(stream)[at : at + size])
    assert [bytes(m) for m in reader.ready] == messages


class Peer:
    """A server that does what a test says."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    async def say(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._connection, data)

    async def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = await self._loop.sock_recv(self._connection, count - len(data))
            assert piece
            data += piece
        return data

    async def frame(self) -> tuple[frames.Frame, bytes]:
        head = frames.parse_head(await self.exactly(frames.HEAD_BYTES), 0)
        return head, await self.exactly(head.left)

    async def data(self) -> bytes:
        """The payload of the next DATA frame."""
        while True:
            head, payload = await self.frame()
            if head.kind == Kind.DATA:
                return payload


def with_peer(work: Callable[[Call, Peer], Awaitable[None]]) -> None:
    async def run() -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        call = Call(Link(near), [(":method", "POST"), (":path", "/x")])
        peer = Peer(far)
        assert await peer.exactly(len(frames.PREFACE)) == frames.PREFACE
        try:
            await asyncio.wait_for(work(call, peer), 20)
        finally:
            call.cancel()
            far.close()

    asyncio.run(run())


def test_nothing_is_sent_beyond_the_servers_windows() -> None:
    async def work(call: Call, peer: Peer) -> None:
        await peer.say(frames.settings({Setting.INITIAL_WINDOW_SIZE: 1000}))
        # Our side must have heard of it before it writes.
        while (await peer.frame())[0].flags != Flag.ACK:
            pass
        writing = asyncio.ensure_future(call.write(bytes(range(250)) * 10))
        got = await peer.data()
        assert len(got) == 1000
        assert not writing.done()
        await peer.say(frames.window_update(frames.STREAM, 700))
        got += await peer.data()
        assert len(got) == 1700
        await peer.say(frames.window_update(frames.STREAM, 10_000))
        got += await peer.data()
        await writing
        assert got == struct.pack(">BI", 0, 2500) + bytes(range(250)) * 10

    with_peer(work)


def test_a_writer_that_waits_learns_that_the_call_is_over() -> None:
    async def work(call: Call, peer: Peer) -> None:
        writing = asyncio.ensure_future(call.write(bytes(MAX_MESSAGE_BYTES)))
        await peer.data()
        await peer.say(frames.reset(7))
        with pytest.raises(CallFailedError):
            await writing

    with_peer(work)


def test_the_server_gets_its_window_back_for_what_was_read() -> None:
    async def work(call: Call, peer: Peer) -> None:
        await peer.say(header_frame(ANSWER))
        piece = bytes(WINDOW_BYTES // 8)
        for _ in range(3):
            await peer.say(data_frame(piece))
            assert await call.read() == piece
        given = dict.fromkeys((0, frames.STREAM), 0)
        while not given[frames.STREAM]:
            head, payload = await peer.frame()
            if head.kind == Kind.WINDOW_UPDATE:
                given[head.stream] = frames.parse_number(payload)
        assert given[frames.STREAM] >= WINDOW_BYTES // 4

    with_peer(work)


def test_pings_are_answered() -> None:
    async def work(call: Call, peer: Peer) -> None:
        await peer.say(frames.frame(Kind.PING, 0, 0, b"12345678"))
        while True:
            head, payload = await peer.frame()
            if head.kind == Kind.PING:
                assert (head.flags, payload) == (Flag.ACK, b"12345678")
                return

    with_peer(work)


def test_a_server_that_asks_and_does_not_listen_is_given_up() -> None:
    async def work(call: Call, peer: Peer) -> None:
        pings = frames.frame(Kind.PING, 0, 0, b"12345678") * 1000
        with contextlib.suppress(OSError):
            while call.status is None:
                await peer.say(pings)
                await asyncio.sleep(0)
        with pytest.raises(CallFailedError, match="does not listen"):
            await call.read()

    with_peer(work)
