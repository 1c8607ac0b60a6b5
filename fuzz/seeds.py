"""Writes a seed per message of the wire: `python fuzz/seeds.py OUT` makes OUT/<target>/*."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cudaspec.load import Field, load
from rgpu_common.wire import handshake as hs
from rgpu_common.wire.codec import Value, put_fields
from rgpu_common.wire.frame import Kind, encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def example(fields: Sequence[Field]) -> dict[str, Value]:
    """A value for every field."""
    return {
        field.name: b"some bytes" if field.kind == "bytes" else 1.5 if field.kind == "f32" else 7
        for field in fields
    }


def commands() -> Iterator[tuple[str, bytes]]:
    """Opcode, side and head of every command."""
    for row in load().commands.values():
        for side, fields in enumerate((row.request, row.reply)):
            head = put_fields(fields, example(fields))
            yield f"{row.name}-{side}", struct.pack("<HB", row.opcode, side) + head


def handshakes() -> Iterator[tuple[str, bytes]]:
    """Number and head of every handshake message."""
    hello = hs.Hello(
        release="0.1", token="token", lease_key="lease", tenant="tenant", container="container",
        program="python", pid=1, device_bands=(hs.Band(1 << 45, 1 << 40),),
        pinned_bands=(hs.Band(1 << 46, 1 << 30),), opcodes=(hs.OpcodeHash(0x301, 5),),
    )  # fmt: skip
    device = hs.DeviceInfo(name="device", attributes=(hs.Attribute(1, 1024),))
    yield "hello", b"\0" + hs.put_hello(hello)
    yield "welcome", b"\1" + hs.put_welcome(hs.Welcome(missing=(1, 2), devices=(device, device)))
    yield "refused", b"\2" + hs.put_refused(hs.Refused("no lease"))
    yield "attach", b"\3" + hs.put_attach(hs.Attach(session=1))


def streams() -> Iterator[tuple[str, bytes]]:
    """Short streams of frames, cut and read in several ways."""
    frames = b"".join(
        encode_frame(Kind.DATA, 0x403, b"12345678", bytes(n * 997), seq=n) for n in range(6)
    )
    big = encode_frame(Kind.COMMAND, 0x601, bytes(64 << 10), bytes(200000), seq=1)
    for piece in (1, 8, 255):
        for mode in (0, 1, 2, 100, 0x82):
            yield f"frames-{piece}-{mode}", bytes((piece, mode)) + frames
    yield "big", bytes((255, 2)) + big


TARGETS = {"commands": commands, "handshake": handshakes, "frame_reader": streams}


def main(out: Path) -> None:
    """Writes all seeds."""
    for target, seeds in TARGETS.items():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
