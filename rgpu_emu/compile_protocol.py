"""Messages between a worker and the compiler: see DESIGN.md. Scalars are little-endian. A byte
string is a u32 count and the bytes.
"""

from __future__ import annotations

import struct
from typing import Final

LOAD: Final = 1
LOADED: Final = 2
LOWER: Final = 3
LOWERED: Final = 4
LINK: Final = 5
LINKED: Final = 6
HEADER: Final = struct.Struct("<IIQ")
# Sent on the accept socket, in the format of a worker's READY (rgpu_server/workers/DESIGN.md).
READY: Final = 16
MAX_BODY_BYTES: Final = 288 << 20  # the largest image and the rest of its message
MAX_INPUTS: Final = 4096


class ProtocolError(Exception):
    """The peer sent bytes that are not a message; the connection ends."""


class Writer:
    """Appends scalars and strings to a body."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def scalars(self, code: str, *values: int) -> Writer:
        """Appends values in the codes of `struct`, without padding."""
        self._parts.append(struct.pack("<" + code, *values))
        return self

    def data(self, value: bytes) -> Writer:
        self._parts += (struct.pack("<I", len(value)), value)
        return self

    def text(self, value: str) -> Writer:
        return self.data(value.encode("utf-8", "replace"))

    def body(self) -> bytes:
        return b"".join(self._parts)


class Reader:
    """Reads the fields of a body, and checks every length."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def u32(self) -> int:
        value: int = struct.unpack("<I", self.take(4))[0]
        return value

    def take(self, count: int) -> bytes:
        if count > len(self._body) - self._at:
            raise ProtocolError("a message ends too early")
        self._at += count
        return self._body[self._at - count : self._at]

    def data(self) -> bytes:
        return self.take(self.u32())

    def end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolError("a message has bytes left over")


def message(kind: int, body: bytes) -> bytes:
    return HEADER.pack(kind, 0, len(body)) + body


def ready(report: str) -> bytes:
    """Returns READY with the measures of isolation that this machine did not allow."""
    return struct.pack("<I", READY) + Writer().text(report).body()


def parse_inputs(body: bytes) -> list[bytes]:
    """Returns the inputs of LOAD or LINK."""
    reader = Reader(body)
    count = reader.u32()
    if count > MAX_INPUTS:
        raise ProtocolError(f"{count} inputs are more than {MAX_INPUTS}")
    inputs = [reader.data() for _ in range(count)]
    reader.end()
    return inputs


def parse_lower(body: bytes) -> tuple[bytes, str]:
    """Returns the key and the entry name of LOWER."""
    reader = Reader(body)
    key, name = reader.data(), reader.data()
    reader.end()
    if len(key) != 32:
        raise ProtocolError("a key has 32 bytes")
    return key, name.decode("utf-8", "replace")
