"""Frames of HTTP/2 (RFC 9113), as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from rgpu_common.errors import ProtocolError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
STREAM: Final = 1
DEFAULT_WINDOW: Final = 65535
MAX_WINDOW: Final = 0x7FFFFFFF
# What we let a peer put into one frame; others than DATA are short.
MAX_DATA_FRAME: Final = 1 << 20
MAX_OTHER_FRAME: Final = 64 << 10

_HEAD = struct.Struct(">BHBBI")
_SETTING = struct.Struct(">HI")
_U32 = struct.Struct(">I")


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(IntEnum):
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8
    PRIORITY = 32


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Error(IntEnum):
    """Why a stream, or a connection, is given up."""

    NO_ERROR = 0
    PROTOCOL = 1
    INTERNAL = 2
    FLOW_CONTROL = 3
    STREAM_CLOSED = 5
    FRAME_SIZE = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION = 9
    ENHANCE_YOUR_CALM = 11


@dataclass(slots=True)
class Frame:
    """The head of a frame; left: bytes of its payload that have not been taken yet."""

    kind: int
    flags: int
    stream: int
    left: int


def head(kind: Kind, flags: int, stream: int, length: int) -> bytes:
    """The head of a frame with `length` bytes of payload."""
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame(kind: Kind, flags: int, stream: int, payload: bytes) -> bytes:
    """A whole frame."""
    return head(kind, flags, stream, len(payload)) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Our SETTINGS."""
    payload = b"".join(_SETTING.pack(key, value) for key, value in values.items())
    return frame(Kind.SETTINGS, 0, 0, payload)


def window_update(stream: int, count: int) -> bytes:
    """The peer may send `count` bytes more."""
    return frame(Kind.WINDOW_UPDATE, 0, stream, _U32.pack(count))


def reset(code: int, stream: int = STREAM) -> bytes:
    """Gives the stream up."""
    return frame(Kind.RST_STREAM, 0, stream, _U32.pack(code))


def go_away(last: int, code: int, why: str = "") -> bytes:
    """No stream after `last` was, or will be, looked at."""
    payload = _U32.pack(last) + _U32.pack(code) + why.encode()
    return frame(Kind.GOAWAY, 0, 0, payload)


def parse_head(data: bytes | memoryview, at: int) -> Frame:
    """Reads the head of a frame at `at`; ProtocolError if the frame is longer than agreed."""
    high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
    length = high << 16 | low
    if length > (MAX_DATA_FRAME if kind == Kind.DATA else MAX_OTHER_FRAME):
        raise ProtocolError(f"the peer sent a frame of {length} bytes: it speaks no HTTP/2")
    return Frame(kind, flags, stream & MAX_WINDOW, length)


def parse_settings(payload: bytes) -> dict[int, int]:
    """Reads SETTINGS; ProtocolError if it is none."""
    if len(payload) % _SETTING.size:
        raise ProtocolError("the peer sent settings of a wrong length")
    return dict(_SETTING.iter_unpack(payload))


def parse_number(payload: bytes, at: int = 0) -> int:
    """Reads a number of 31 bits; ProtocolError if there is none."""
    if len(payload) < at + _U32.size:
        raise ProtocolError("the peer sent a frame that is too short")
    return int(_U32.unpack_from(payload, at)[0]) & MAX_WINDOW


def header_block(flags: int, payload: bytes) -> bytes:
    """The part of a block that a HEADERS frame holds; ProtocolError if its padding is wrong."""
    padding, start = 0, 0
    if flags & Flag.PADDED:
        padding, start = payload[0] if payload else 0, 1
    if flags & Flag.PRIORITY:
        start += 5
    if start + padding > len(payload):
        raise ProtocolError("the peer sent headers with wrong padding")
    return payload[start : len(payload) - padding]
