"""Frames: the 40-byte header, its checks, and encoding and decoding of whole frames."""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple

from rgpu_common.wire.version import WIRE_MAJOR as WIRE_MAJOR
from rgpu_common.wire.version import WIRE_MINOR as WIRE_MINOR

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC: Final = 0x55504752
HEADER_BYTES: Final = 40
MAX_HEAD_BYTES: Final = 64 << 10
MAX_BULK_BYTES: Final = 1 << 20

_HEADER: Final = struct.Struct("<IIHBBiQQII")


class WireError(ValueError):
    """Bytes break the wire format. The message says which rule."""


def repr_without(message: tuple[object, ...], *hidden: str) -> str:
    """Returns the repr of a named tuple without its fields `hidden`, which no log shows."""
    names: tuple[str, ...] = getattr(message, "_fields")  # noqa: B009 (mypy knows no base of all)
    shown = (f"{k}={v!r}" for k, v in zip(names, message, strict=True) if k not in hidden)
    return f"{type(message).__name__}({', '.join(shown)})"


class Kind(IntEnum):
    """The kind of a frame."""

    COMMAND = 1
    REPLY = 2
    DATA = 3
    DELIVERY = 4
    NOTICE = 5
    CONTROL = 6
    HANDSHAKE = 7


class Flags(IntFlag):
    """The bits of a header's `flags`."""

    NONE = 0
    WANTS_REPLY = 1
    LAST = 2
    MORE = 4
    RESUMED = 8


class FrameHeader(NamedTuple):
    """The fields of a header, in wire order. `encode_frame` fills in the lengths."""

    payload_bytes: int = 0
    bulk_bytes: int = 0
    opcode: int = 0
    kind: Kind = Kind.COMMAND
    flags: Flags = Flags.NONE
    status: int = 0
    seq: int = 0
    watermark: int = 0
    thread: int = 0
    context: int = 0

    @property
    def head_bytes(self) -> int:
        """Number of bytes between the header and the bulk."""
        return self.payload_bytes - self.bulk_bytes


class Frame(NamedTuple):
    """A whole frame."""

    header: FrameHeader
    head: bytes
    bulk: bytes

    def __repr__(self) -> str:
        return repr_without(self, "head")


def parse_header(data: bytes | bytearray | memoryview) -> FrameHeader:
    """Reads a header from the first 40 bytes of `data`.

    Raises:
        WireError: there are too few bytes, the kind is unknown, or a length is out of bounds.
    """
    if len(data) < HEADER_BYTES:
        raise WireError(f"a header has {HEADER_BYTES} bytes, but only {len(data)} are left")
    payload, bulk, opcode, kind, flags, status, seq, watermark, thread, context = (
        _HEADER.unpack_from(data)
    )
    if not Kind.COMMAND <= kind <= Kind.HANDSHAKE:
        raise WireError(f"unknown frame kind {kind}")
    if bulk > MAX_BULK_BYTES or payload < bulk or payload - bulk > MAX_HEAD_BYTES:
        raise WireError(f"frame lengths out of bounds: payload {payload}, bulk {bulk}")
    return FrameHeader(
        payload, bulk, opcode, Kind(kind), Flags(flags), status, seq, watermark, thread, context
    )


def pack_header(header: FrameHeader) -> bytes:
    """Returns the 40 bytes of `header`, with its lengths unchanged."""
    return _HEADER.pack(
        header.payload_bytes, header.bulk_bytes, header.opcode, header.kind, header.flags,
        header.status, header.seq, header.watermark, header.thread, header.context,
    )  # fmt: skip


def encode_frame(
    kind: Kind,
    opcode: int,
    head: bytes = b"",
    bulk: bytes = b"",
    *,
    flags: Flags = Flags.NONE,
    status: int = 0,
    seq: int = 0,
    watermark: int = 0,
    thread: int = 0,
    context: int = 0,
) -> bytes:
    """Returns a whole frame as bytes.

    Raises:
        WireError: the head or the bulk exceeds its limit.
    """
    if len(head) > MAX_HEAD_BYTES or len(bulk) > MAX_BULK_BYTES:
        raise WireError(f"head of {len(head)} or bulk of {len(bulk)} bytes exceeds its limit")
    payload = len(head) + len(bulk)
    header = FrameHeader(
        payload, len(bulk), opcode, kind, flags, status, seq, watermark, thread, context
    )
    return pack_header(header) + head + bulk


def decode_frames(stream: bytes) -> Iterator[Frame]:
    """Cuts recorded bytes into frames.

    Raises:
        WireError: a header is malformed, or the stream ends within a frame.
    """
    at = 0
    while at < len(stream):
        header = parse_header(memoryview(stream)[at:])
        end = at + HEADER_BYTES + header.payload_bytes
        if end > len(stream):
            raise WireError(f"the stream ends {end - len(stream)} bytes before its last frame")
        bulk = end - header.bulk_bytes
        yield Frame(header, stream[at + HEADER_BYTES : bulk], stream[bulk:end])
        at = end
