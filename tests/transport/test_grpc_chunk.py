"""The messages of a tunnel, and what its two local ends do with bytes."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_common.errors import ProtocolError
from rgpu_common.tunnel.chunk import END, HEARTBEAT, MAX_DATA_BYTES, PREFIX_BYTES, decode, encode
from rgpu_common.tunnel.local import LocalEnd
from rgpu_common.v1.tunnel_pb2 import Chunk


@pytest.mark.parametrize("length", [1, 127, 128, 16383, 16384, MAX_DATA_BYTES - 1, MAX_DATA_BYTES])
def test_our_messages_are_chunks(length: int) -> None:
    data = bytes(range(256)) * (length // 256 + 1)
    message = encode(data[:length])
    assert Chunk.FromString(message) == Chunk(data=data[:length])
    assert len(message) == length + PREFIX_BYTES
    assert decode(message) == (data[:length], False)


@given(st.binary(max_size=300), st.booleans())
def test_the_message_class_writes_what_we_read(data: bytes, end: bool) -> None:
    found, ended = decode(Chunk(data=data, end=end).SerializeToString())
    assert (bytes(found), ended) == (data, end)


@given(st.binary(max_size=300))
def test_what_is_no_chunk_is_refused(message: bytes) -> None:
    """A message is refused, or decoded to the same data as by the message class."""
    try:
        data, end = decode(message)
    except ProtocolError:
        return
    chunk = Chunk.FromString(message)
    assert (bytes(data), end) == (chunk.data, chunk.end)


def test_heartbeats_and_ends() -> None:
    assert decode(HEARTBEAT) == (b"", False)
    assert decode(END) == (b"", True)


def test_what_is_written_meanwhile_travels_together() -> None:
    async def carry() -> None:
        near, far = socket.socketpair()
        end = LocalEnd(near)
        for number in range(100):
            far.sendall(bytes([number]))
        data, _ = decode(await end.take())
        assert bytes(data) == bytes(range(100))
        far.close()
        assert await end.take() == b""
        assert end.gone()
        end.close()

    asyncio.run(carry())


def test_the_socket_waits_when_nobody_takes() -> None:
    async def carry() -> None:
        near, far = socket.socketpair()
        far.setblocking(False)
        end = LocalEnd(near)
        sent = 0
        # Both buffers and one message, and not more.
        for _ in range(10_000):
            await asyncio.sleep(0)
            try:
                sent += far.send(b"x" * 65536)
            except BlockingIOError:
                continue
        assert MAX_DATA_BYTES <= sent < 4 * MAX_DATA_BYTES
        got = 0
        while got < sent:
            data, _ = decode(await end.take())
            assert 0 < len(data) <= MAX_DATA_BYTES
            got += len(data)
        end.close()
        far.close()

    asyncio.run(carry())


def test_put_waits_for_a_slow_reader_and_notices_its_end() -> None:
    async def carry() -> None:
        near, far = socket.socketpair()
        end = LocalEnd(near)
        data = bytes(3 * MAX_DATA_BYTES)
        put = asyncio.ensure_future(end.put(data))
        await asyncio.sleep(0)
        assert not put.done()
        loop = asyncio.get_running_loop()
        far.setblocking(False)
        got = 0
        while got < len(data):
            got += len(await loop.sock_recv(far, 65536))
        await put
        stuck = asyncio.ensure_future(end.put(data))
        await asyncio.sleep(0)
        far.close()
        with pytest.raises(OSError, match=r"."):
            await asyncio.wait_for(stuck, 10)
        end.close()

    asyncio.run(carry())
