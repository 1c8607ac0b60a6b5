"""The messages of a tunnel that are handed on before they are whole."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_common.errors import ProtocolError
from rgpu_common.http2.messages import TooLongError
from rgpu_common.tunnel.chunk import END, HEARTBEAT, MAX_MESSAGE_BYTES, encode
from rgpu_common.tunnel.pieces import Pieces
from rgpu_common.v1.tunnel_pb2 import Chunk


class Target:
    def __init__(self) -> None:
        self.bytes = b""
        self.ends: list[int] = []

    def data(self, piece: memoryview) -> None:
        assert piece
        self.bytes += piece

    def said_all(self) -> None:
        self.ends.append(len(self.bytes))


def framed(*messages: bytes) -> bytes:
    return b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages)


# A field that this release does not know.
UNKNOWN = b"\x7a\x02xy"
MESSAGES = st.one_of(
    st.binary(min_size=1, max_size=400).map(encode),
    st.builds(
        lambda data, end: Chunk(data=data, end=end).SerializeToString(),
        st.binary(max_size=300),
        st.booleans(),
    ),
    st.binary(max_size=9).map(lambda data: UNKNOWN + Chunk(data=data).SerializeToString()),
    st.just(HEARTBEAT),
    st.just(END),
)


@given(st.lists(MESSAGES, max_size=6), st.integers(1, 40))
def test_they_may_come_cut_anywhere(messages: list[bytes], size: int) -> None:
    target, stream = Target(), framed(*messages)
    pieces = Pieces(target)
    for at in range(0, len(stream), size):
        pieces.take(memoryview(stream)[at : at + size])
    chunks = [Chunk.FromString(message) for message in messages]
    assert target.bytes == b"".join(chunk.data for chunk in chunks)
    assert len(target.ends) == sum(chunk.end for chunk in chunks)
    assert pieces.gathered == 0


def test_data_is_there_before_its_message_is() -> None:
    target = Target()
    pieces = Pieces(target)
    pieces.take(memoryview(framed(encode(bytes(1000)))[:100]))
    assert target.bytes == bytes(91)
    pieces.take(memoryview(framed(encode(bytes(1000)))[100:]))
    assert target.bytes == bytes(1000)


def test_what_has_to_wait_is_counted() -> None:
    pieces = Pieces(Target())
    pieces.take(memoryview(framed(UNKNOWN + encode(bytes(1000)))[:505]))
    assert pieces.gathered == 500


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_whatever_comes_is_taken_or_refused(data: list[bytes]) -> None:
    pieces = Pieces(Target())
    try:
        for piece in data:
            pieces.take(memoryview(piece))
    except ProtocolError:
        return
    assert pieces.gathered <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    "stream",
    [
        b"\x01" + framed(encode(b"packed"))[1:],
        framed(b"\xff\xff\xff"),
        framed(b"\x0a\x05abc"),
        framed(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_what_is_no_tunnel(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        Pieces(Target()).take(memoryview(stream))


def test_what_is_too_long_ends_with_its_first_bytes() -> None:
    with pytest.raises(TooLongError):
        Pieces(Target()).take(memoryview(struct.pack(">BI", 0, MAX_MESSAGE_BYTES + 1)))
