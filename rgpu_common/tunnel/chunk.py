"""`Chunk` of `tunnel.proto`, written and read without the copies that the message class makes."""

from __future__ import annotations

import struct
from typing import Final

from google.protobuf.message import DecodeError

from rgpu_common.errors import ProtocolError
from rgpu_common.v1.tunnel_pb2 import Chunk

OPEN: Final = "/rgpu.v1.TunnelService/Open"
MAX_DATA_BYTES: Final = 1 << 20
# What stands before the data of a chunk that has nothing else.
PREFIX_BYTES: Final = 4
# A chunk with all fields, and room for those of later releases.
MAX_MESSAGE_BYTES: Final = MAX_DATA_BYTES + 1024
HEARTBEAT: Final = b""
END: Final = Chunk(end=True).SerializeToString()

DATA: Final = 0x0A  # field 1, length-delimited
LENGTH_BYTES: Final = 4
_PREFIX = struct.Struct("<I")


def write_prefix(buffer: memoryview, length: int) -> None:
    """Writes PREFIX_BYTES for `length` bytes of data, at most MAX_DATA_BYTES.

    The length always takes three bytes, of seven bits each, so that data can be read to its place
    before it is known.
    """
    spread = length & 0x7F | (length & 0x3F80) << 1 | (length & 0x1FC000) << 2
    _PREFIX.pack_into(buffer, 0, DATA | (0x8080 | spread) << 8)


def encode(data: bytes) -> bytes:
    """Returns the message of at most MAX_DATA_BYTES."""
    prefix = bytearray(PREFIX_BYTES)
    write_prefix(memoryview(prefix), len(data))
    return bytes(prefix) + data


def decode(message: bytes | memoryview) -> tuple[memoryview | bytes, bool]:
    """Returns the data, as a view where there is nothing else in the message, and `end`.

    Raises:
        ProtocolError: it is no Chunk.
    """
    start = _start(message)
    if start:
        return memoryview(message)[start:], False
    try:
        chunk = Chunk.FromString(bytes(message))
    except DecodeError:
        raise ProtocolError("the peer sent what is no part of a tunnel") from None
    return chunk.data, chunk.end


def _start(message: bytes | memoryview) -> int:
    """Where the data of a message begins that has only data; 0: it has something else."""
    if not message or message[0] != DATA:
        return 0
    length = shift = 0
    for at in range(1, min(len(message), 1 + LENGTH_BYTES)):
        length |= (message[at] & 0x7F) << shift
        if message[at] < 0x80:
            return at + 1 if at + 1 + length == len(message) else 0
        shift += 7
    return 0
