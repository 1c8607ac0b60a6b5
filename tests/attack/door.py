"""Raw connections to a server's front door."""

from __future__ import annotations

import socket

from typing_extensions import Self

from rgpu_common.wire.fields import Band
from rgpu_common.wire.frame import HEADER_BYTES, Frame, Kind, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.refused import Refused, decode_refused
from rgpu_common.wire.welcome import Welcome, decode_welcome

SECONDS = 60.0
BAND = Band(0x2000_0000_0000, 64 << 30)


class Lane:
    """A connection to a server on TCP; `with` closes it."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("tcp:").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> Frame | None:
        """The next frame; None when the server has closed."""
        header = self._read(HEADER_BYTES)
        if header is None:
            return None
        found = parse_header(header)
        head, bulk = self._read(found.head_bytes), self._read(found.bulk_bytes)
        return None if head is None or bulk is None else Frame(found, head, bulk)

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionError:
                return None
            if not more:
                return None
            data += more
        return data

    def answer(self) -> Welcome | tuple[int, Refused]:
        """WELCOME, or the status and sentence of REFUSED."""
        frame = self.frame()
        assert frame is not None, "the server closed without an answer"
        assert frame.header.kind is Kind.HANDSHAKE
        if frame.header.opcode == Handshake.WELCOME:
            return decode_welcome(frame.head)
        assert frame.header.opcode == Handshake.REFUSED
        return frame.header.status, decode_refused(frame.head)

    def hello(self, **fields: object) -> Welcome | tuple[int, Refused]:
        """Sends HELLO and returns the answer."""
        values = {"release": "test", "program": "attack", "pid": 1, "device_bands": (BAND,)}
        self.send(encode_hello(Hello(**{**values, **fields})))  # type: ignore[arg-type]
        return self.answer()
