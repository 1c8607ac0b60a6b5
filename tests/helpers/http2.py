"""Raw HTTP/2 (RFC 9113) for tests: frames as bytes, and a client that can send any bytes."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Iterator
from enum import IntEnum

from typing_extensions import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
# The initial window of a stream, and the largest window.
STREAM_WINDOW = 65535
MAX_WINDOW = 0x7FFFFFFF
# The gateway's limits for a peer.
MAX_STREAMS = 1024
ALLOWANCE = 4000
DEADLINE_SECONDS = 30
Fields = list[tuple[str, str]]


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


class Setting(IntEnum):
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


class Error(IntEnum):
    NO_ERROR = 0
    PROTOCOL = 1
    FLOW_CONTROL = 3
    STREAM_CLOSED = 5
    FRAME_SIZE = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION = 9
    ENHANCE_YOUR_CALM = 11


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return struct.pack(">BHBBI", size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    payload = b"".join(struct.pack(">HI", name, value) for name, value in values.items())
    return frame(Kind.SETTINGS, 0, 0, payload)


def window_update(stream: int, count: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream, struct.pack(">I", count))


def reset(code: int, stream: int) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream, struct.pack(">I", code))


def ping(flags: int = 0) -> bytes:
    return frame(Kind.PING, flags, 0, bytes(8))


def block(fields: Fields) -> bytes:
    """Returns a header block in HPACK without its tables (RFC 7541, 6.2.2)."""
    texts = [text.encode("latin-1") for field in fields for text in field]
    assert all(len(text) < 127 for text in texts)
    pieces = [bytes((len(text),)) + text for text in texts]
    return b"".join(
        b"\0" + name + value for name, value in zip(pieces[::2], pieces[1::2], strict=True)
    )


def request(path: str, stream: int = 1, flags: int = Flag.END_HEADERS) -> bytes:
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
        ("content-type", "application/grpc"),
    ]  # fmt: skip
    return frame(Kind.HEADERS, flags, stream, block(fields))


def data(payload: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return frame(Kind.DATA, flags, stream, payload)


def message(payload: bytes, stream: int = 1, flags: int = 0) -> bytes:
    """Returns a gRPC message in one frame."""
    return data(struct.pack(">BI", 0, len(payload)) + payload, stream, flags)


# The acknowledgement makes the gateway's settings valid.
HELLO = PREFACE + settings({}) + frame(Kind.SETTINGS, Flag.ACK, 0, b"")


class Raw:
    """`with Raw(target) as raw:` connects. source: the local address to connect from."""

    def __init__(self, target: str, *says: bytes, source: str = "127.0.0.1") -> None:
        host, _, port = target.rpartition(":")
        self.socket = socket.create_connection(
            (host, int(port)), DEADLINE_SECONDS, source_address=(source, 0)
        )
        self.say(*says)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, *pieces: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(b"".join(pieces))

    def _exactly(self, count: int) -> bytes:
        whole = bytearray()
        while len(whole) < count:
            piece = self.socket.recv(count - len(whole))
            if not piece:
                raise EOFError
            whole += piece
        return bytes(whole)

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yields the kind, flags, stream and payload of each frame until the connection ends."""
        with contextlib.suppress(ConnectionError, EOFError):
            while True:
                high, low, kind, flags, stream = struct.unpack(">BHBBI", self._exactly(HEAD_BYTES))
                yield kind, flags, stream, self._exactly(high << 16 | low)

    def hears(self, kind: Kind, stream: int | None = None) -> bytes:
        """Returns the payload of the next frame of this kind."""
        for found, _, number, payload in self.frames():
            if found == kind and stream in (None, number):
                return payload
        raise AssertionError(f"the connection ended without {kind.name}")

    def hears_number(self, kind: Kind, stream: int | None = None) -> int:
        """Returns the number in the next frame of this kind: an error code or a window."""
        return int.from_bytes(self.hears(kind, stream)[:4], "big")

    def answers(self) -> None:
        """Asserts that the gateway still answers on this connection."""
        self.say(ping())
        self.hears(Kind.PING)

    def ends(self) -> int | None:
        """Waits for the end of the connection; returns the error code of GOAWAY, or None without
        one.
        """
        code = None
        for kind, _, _, payload in self.frames():
            if kind == Kind.GOAWAY:
                code = int.from_bytes(payload[4:8], "big")
        return code


class _NameValue(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.POINTER(ctypes.c_char)),
        ("value", ctypes.POINTER(ctypes.c_char)),
        ("name_bytes", ctypes.c_size_t),
        ("value_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_uint8),
    ]


def fields_of(payload: bytes) -> Fields:
    """Returns the fields of the first header block of a connection, decoded by nghttp2."""
    library = ctypes.CDLL("libnghttp2.so.14")
    library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
    inflater = ctypes.c_void_p()
    assert library.nghttp2_hd_inflate_new(ctypes.byref(inflater)) == 0
    found: Fields = []
    field, flags, at = _NameValue(), ctypes.c_int(), 0
    while not flags.value & 1:
        rest = payload[at:]
        count = library.nghttp2_hd_inflate_hd2(
            inflater, ctypes.byref(field), ctypes.byref(flags), rest, ctypes.c_size_t(len(rest)), 1
        )
        assert count >= 0
        at += count
        if flags.value & 2:
            texts = (field.name[: field.name_bytes], field.value[: field.value_bytes])
            found.append((texts[0].decode("latin-1"), texts[1].decode("latin-1")))
    library.nghttp2_hd_inflate_del(inflater)
    return found
