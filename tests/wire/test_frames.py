"""Headers and frames: bounds, and the Python reader against the C++ one."""

from __future__ import annotations

import struct

import pytest
from helpers.native_abi import header_accepted
from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_common.wire.frame import (
    HEADER_BYTES,
    MAX_BULK_BYTES,
    MAX_HEAD_BYTES,
    Flags,
    FrameHeader,
    Kind,
    WireError,
    decode_frames,
    encode_frame,
    pack_header,
    parse_header,
)

QUICK = settings(max_examples=300, deadline=None, database=None)
EDGES = [0, 1, MAX_HEAD_BYTES, MAX_BULK_BYTES, MAX_HEAD_BYTES + MAX_BULK_BYTES]
LENGTH = st.one_of(
    st.sampled_from([n + d for n in EDGES for d in (-1, 0, 1) if n + d >= 0]),
    st.integers(0, (1 << 32) - 1),
)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)


@QUICK
@given(LENGTH, LENGTH, st.integers(0, 9), st.binary(min_size=29, max_size=29))
def test_both_readers_draw_the_same_line(payload: int, bulk: int, kind: int, rest: bytes) -> None:
    data = struct.pack("<IIHB", payload, bulk, 7, kind) + rest
    try:
        parse_header(data)
        accepted = True
    except WireError:
        accepted = False
    legal = 1 <= kind <= 7 and bulk <= MAX_BULK_BYTES and 0 <= payload - bulk <= MAX_HEAD_BYTES
    assert accepted == legal == header_accepted(data)


@QUICK
@given(st.builds(
    FrameHeader, payload_bytes=st.just(9), bulk_bytes=st.just(4), opcode=st.integers(0, 65535),
    kind=st.sampled_from(Kind), flags=st.sampled_from([Flags(n) for n in range(16)]),
    status=st.integers(-(1 << 31), (1 << 31) - 1), seq=U64, watermark=U64, thread=U32, context=U32,
))  # fmt: skip
def test_headers_round_trip(header: FrameHeader) -> None:
    data = pack_header(header)
    assert len(data) == HEADER_BYTES
    assert parse_header(data) == header
    assert header.head_bytes == 5


def test_a_short_header() -> None:
    with pytest.raises(WireError, match="40 bytes"):
        parse_header(bytes(39))


def test_limits_of_encoding() -> None:
    encode_frame(Kind.COMMAND, 1, bytes(MAX_HEAD_BYTES), bytes(MAX_BULK_BYTES))
    with pytest.raises(WireError, match="exceeds its limit"):
        encode_frame(Kind.COMMAND, 1, bytes(MAX_HEAD_BYTES + 1))
    with pytest.raises(WireError, match="exceeds its limit"):
        encode_frame(Kind.COMMAND, 1, b"", bytes(MAX_BULK_BYTES + 1))


@QUICK
@given(st.lists(st.tuples(st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_streams(parts: list[tuple[bytes, bytes]]) -> None:
    stream = b"".join(
        encode_frame(Kind.DATA, 5, head, bulk, seq=seq) for seq, (head, bulk) in enumerate(parts)
    )
    frames = list(decode_frames(stream))
    assert [(frame.head, frame.bulk) for frame in frames] == parts
    assert [frame.header.seq for frame in frames] == list(range(len(parts)))
    if stream:
        with pytest.raises(WireError):
            list(decode_frames(stream[:-1]))
