"""A device of one allocation, for tests with a server of their own (`fake_server.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from rgpu_common.wire.codec import Value, encode_piece
from rgpu_common.wire.frame import Frame, Kind
from shim.fake_server import Answer, reply

OUTSIDE = 0x3_0200_0000  # as NVIDIA's driver gives them


class Memory:
    """A device of one allocation."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.data = bytearray(4096)

    def __call__(self, name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuMemAlloc":
            yield reply(frame, name, dptr=self.address)
        elif name == "rgpuCopyHtoD":
            at = int(str(values["dst"])) - self.address
            self.data[at : at + len(frame.bulk)] = frame.bulk
        elif name == "rgpuCopyDtoH":
            at = int(str(values["src"])) - self.address
            piece = bytes(self.data[at : at + int(str(values["width"]))])
            seq = frame.header.seq
            yield encode_piece(Kind.DATA, name, 0, piece, seq=seq, last=False)
            yield reply(frame, name)
        elif frame.header.flags & 1:
            yield reply(frame, name)
