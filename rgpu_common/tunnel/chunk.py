"""Encodes and decodes `Chunk` of `tunnel.proto` without the copies that protobuf's class makes."""

from __future__ import annotations

import struct
from typing import Final

from google.protobuf.message import DecodeError

from rgpu_common.errors import ProtocolError
from rgpu_common.v1.tunnel_pb2 import Chunk

OPEN: Final = "/rgpu.v1.TunnelService/Open"
MAX_DATA_BYTES: Final = 1 << 20
# The bytes before the data in a chunk that has only data.
PREFIX_BYTES: Final = 4
# The limit of a whole chunk, with room for fields of later releases.
MAX_MESSAGE_BYTES: Final = MAX_DATA_BYTES + 1024
HEARTBEAT: Final = b""
END: Final = Chunk(end=True).SerializeToString()

DATA: Final = 0x0A  # field 1, length-delimited
LENGTH_BYTES: Final = 4
_PREFIX = struct.Struct("<I")


def write_prefix(buffer: memoryview, length: int) -> None:
    """Writes the prefix of `length` bytes of data, at most MAX_DATA_BYTES.

    The length always takes three bytes of seven bits each. The data's place is therefore fixed, and
    data can be received there before its length is known.
    """
    spread = length & 0x7F | (length & 0x3F80) << 1 | (length & 0x1FC000) << 2
    _PREFIX.pack_into(buffer, 0, DATA | (0x8080 | spread) << 8)


def encode(data: bytes) -> bytes:
    """Returns a chunk with `data`, at most MAX_DATA_BYTES."""
    prefix = bytearray(PREFIX_BYTES)
    write_prefix(memoryview(prefix), len(data))
    return bytes(prefix) + data


def decode(message: bytes | memoryview) -> tuple[memoryview | bytes, bool]:
    """Returns the data and `end` of a chunk. The data is a view if the chunk has only data.

    Raises:
        ProtocolError: the message is not a Chunk.
    """
    start = _start(message)
    if start:
        return memoryview(message)[start:], False
    try:
        chunk = Chunk.FromString(bytes(message))
    except DecodeError:
        raise ProtocolError("the peer sent a message that is not a Chunk of a tunnel") from None
    return chunk.data, chunk.end


def _start(message: bytes | memoryview) -> int:
    """Returns where the data begins in a message that has only data. 0: it has other fields."""
    if not message or message[0] != DATA:
        return 0
    length = shift = 0
    for at in range(1, min(len(message), 1 + LENGTH_BYTES)):
        length |= (message[at] & 0x7F) << shift
        if message[at] < 0x80:
            return at + 1 if at + 1 + length == len(message) else 0
        shift += 7
    return 0
