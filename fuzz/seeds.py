"""Writes a seed per message of the wire and kind of image: `python fuzz/seeds.py OUT` makes
OUT/<target>/*.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cudaspec.load import load
from netprobe.native import Offer, put_offer
from rgpu_common.v1.tunnel_pb2 import Chunk
from rgpu_common.wire import compiler as pc
from rgpu_common.wire import preface as pf
from rgpu_common.wire import resume as rs
from rgpu_common.wire import worker as wk
from rgpu_common.wire.attach import Attach, put_attach
from rgpu_common.wire.codec import Value, put_fields
from rgpu_common.wire.fields import Band, Wish
from rgpu_common.wire.frame import MAGIC, Flags, Kind, encode_frame
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, OpcodeHash, put_hello
from rgpu_common.wire.observe import (
    Observe,
    Observed,
    ObservedProcess,
    Reading,
    ReadingKey,
    put_observe,
    put_observed,
)
from rgpu_common.wire.refused import Refused, put_refused
from rgpu_common.wire.shm import Shm, put_shm
from rgpu_common.wire.welcome import Attribute, DeviceInfo, Welcome, put_welcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudaspec.rows import Field


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
    """Number and head of every handshake message, and of some notices and control messages."""
    hello = Hello(
        release="0.1", access_token="token", lease_key="lease", tenant="tenant",
        container="container", program="python", pid=1, device_bands=(Band(1 << 45, 1 << 40),),
        pinned_bands=(Band(1 << 46, 1 << 30),), opcodes=(OpcodeHash(0x301, 5),),
        wishes=(Wish(1, 250_000),),
    )  # fmt: skip
    device = DeviceInfo(name="device", attributes=(Attribute(1, 1024),))
    yield "hello", b"\0" + put_hello(hello)
    yield "observe", b"\x13" + put_observe(Observe(lease_key="lease", device=1))
    process, reading = ObservedProcess(42, 1 << 20, 7, "a program"), Reading(ReadingKey.POWER_MW, 9)
    yield (
        "observed",
        b"\x14"
        + put_observed(Observed(name="a device", processes=(process,), readings=(reading,))),
    )
    yield "welcome", b"\1" + put_welcome(Welcome(missing=(1, 2), devices=(device, device)))
    yield "refused", b"\2" + put_refused(Refused("no lease"))
    yield "attach", b"\3" + put_attach(Attach(session=1))
    yield "resume", b"\5" + rs.put_resume(rs.Resume(session=1, received=1 << 40))
    yield "shm", b"\4" + put_shm(Shm(reason="no memory"))
    preface = pf.Preface("tls", "192.0.2.7:5123", "alice", True)
    yield "preface", b"\6" + pf.put_preface(preface)
    yield "resumed", b"\7" + rs.put_resumed(rs.Resumed(1 << 40))
    yield "credit", b"\x08" + struct.pack("<QQ", 1, 2)
    yield "sticky", b"\x0a" + struct.pack("<II", 1, 4) + b"text"
    yield "pull-data", b"\x10" + struct.pack("<QQ", 1, 2)
    granted = Welcome(devices=(device,), grants=(Wish(6, 1),))
    yield "granted", b"\1" + put_welcome(granted)


def channels() -> Iterator[tuple[str, bytes]]:
    """Channel, type and body of every message to or from a worker or a PTX compiler."""
    assign = wk.Assign(session=1, tenant="tenant", environment=("A=1", "B="), hello=b"head")
    yield "assign", b"\0\1" + wk.put_assign(assign)
    yield "attach", b"\0\2"
    yield "end", b"\0\3" + wk.put_end(wk.End(46, "no lease"))
    yield "resume", b"\0\4" + wk.put_resume(wk.Resume(b"head"))
    yield "ready", b"\0\x10" + wk.put_ready(wk.Ready("seccomp: none"))
    yield "opened", b"\0\x11" + wk.put_opened(wk.Opened(Band(1 << 45, 1 << 30), wk.Ring.USED))
    yield "refused", b"\0\x12" + wk.put_refused(wk.Refused(2, "no memory"))
    yield "ended", b"\0\x13" + wk.put_ended(wk.Ended("bye"))
    yield "resumed", b"\0\x14" + wk.put_resumed(wk.Resumed(epoch=2, moved=True))
    entry = pc.EntryInfo("k", (pc.ParamInfo(0, 8),), param_bytes=8, why="why")
    table = pc.GlobalInfo("g", size=16, relocations=(pc.Relocation(8, 1, 0, -4),))
    loaded = pc.Loaded(log="log", entries=(entry,), globals=(table,), functions=("f", "g"))
    inputs = (b".version 8.0", b"")
    yield "load", b"\1\1" + pc.put_load(pc.Load(inputs))
    yield "loaded", b"\1\2" + pc.put_loaded(loaded)
    yield "lower", b"\1\3" + pc.put_lower(pc.Lower(name="k"))
    yield "lowered", b"\1\4" + pc.put_lowered(pc.Lowered(object=b"ELF", function_ordinals=(0, 1)))
    yield "link", b"\1\5" + pc.put_link(pc.Link(inputs))
    yield "linked", b"\1\6" + pc.put_linked(pc.Linked(218, "line 1"))


def definitions() -> Iterator[tuple[str, bytes]]:
    """Definitions of graphs: one of every kind of node, and graphs inside."""
    context = struct.pack("<I", 10)
    host, linear = b"\0", struct.pack("<BQQQ", 1, 4096, 512, 8)
    array, sizes = struct.pack("<BQQQQ", 2, 91, 16, 3, 1), struct.pack("<QQQ", 100, 2, 3)
    kernel = struct.pack("<QQI7IBI", 77, 0, 10, 1, 1, 1, 32, 1, 1, 0, 1, 4) + b"1234"
    operation = struct.pack("<IIQQ", 1, 0, 4096, 1)
    plain = [
        (0, b""), (1, kernel), (2, context + linear + host + sizes),
        (2, context + array + linear + sizes), (2, context + host + array + sizes),
        (3, context + struct.pack("<QQIIQQ", 4096, 0, 4, 7, 25, 1)), (4, b""),
        (5, struct.pack("<Q", 81)), (6, struct.pack("<Q", 82)),
        (7, context + struct.pack("<I", 2) + 2 * operation),
    ]  # fmt: skip

    def graph(nodes: Sequence[tuple[int, bytes]]) -> bytes:
        body = b"".join(struct.pack("<BB", kind, 1) + part for kind, part in nodes)
        edges = b"".join(struct.pack("<IIBBB", i, i + 1, 0, 0, 0) for i in range(len(nodes) - 1))
        counts = struct.pack("<I", len(nodes)), struct.pack("<I", max(len(nodes) - 1, 0))
        return counts[0] + body + counts[1] + edges

    inside = graph(plain)
    bodies = context + struct.pack("<QII", 5, 2, 2) + inside + graph([])
    for name, nodes in (("plain", plain), ("inside", [(8, inside), (9, bodies)]), ("none", [])):
        yield name, b"GRF2" + graph(nodes)


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


def fatbin(kind: int, flags: int, stored: bytes, plain_bytes: int) -> bytes:
    """A fatbin of one entry for sm_80."""
    padded = stored + bytes(-len(stored) % 8)
    sizes = (len(padded), len(stored), 0, 0, 80, 64, 0, flags, 0, plain_bytes)
    body = struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, *sizes) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def images() -> Iterator[tuple[str, bytes]]:
    """One of each kind that a program may load."""
    text = b".version 8.0\n.target sm_80\n.address_size 64\n"
    # 15 + 29 literals and a match of 4; one literal and a match of 100; five literals.
    packed = b"\xf0\x1d" + text[:44] + b"\x2c\0\x1f;\x01\0\x51\x50" + text[:5]
    yield "text", text
    yield "sass", b"\x7fELF" + bytes(60)
    yield "plain", fatbin(1, 0, text, 0)
    yield "cubin", fatbin(2, 0, bytes(64), 0)
    yield "lz4", fatbin(1, 0x2000, packed, 44 + 4 + 1 + 100 + 5)
    yield "zstd", fatbin(1, 0x8000, bytes(64), 100)
    linked = struct.pack("<I", len(text)) + text
    yield "linked", struct.pack("<8sQI", b"RGPUIMG1", 20 + 2 * len(linked), 2) + 2 * linked


def rings() -> Iterator[tuple[str, bytes]]:
    """Steps of fuzz/ring.cc: a peer in good order, and positions that make no sense."""

    def steps(*all_steps: tuple[int, int]) -> bytes:
        return b"".join(struct.pack("<BQ", *step) for step in all_steps)

    yield "order", steps((5, 100), (6, 99), (5, 4096), (7, 0), (6, 4095), (5, 4000), (6, 8191))
    yield "sleeps", steps((2, 1 << 32 | 1), (5, 4096), (6, 4096), (2, 1), (5, 1))
    yield "behind", steps((5, 100), (0, 101), (5, 1), (0, 0), (5, 5000))
    yield "ahead", steps((1, 4097), (6, 10), (1, 4096), (6, 8000), (1, (1 << 64) - 1), (6, 1))
    yield (
        "creeps",
        steps((3, 1), (6, 0), (4, 1), (5, 8191), (3, 4096), (6, 5000), (4, 4095), (5, 9)),
    )


def blocks() -> Iterator[tuple[str, bytes]]:
    """Streams of blocks: as they are, and a zstd frame of 1000 zeros by hand."""

    def block(plain: int, wire: bytes, packed: bool = False) -> bytes:
        return struct.pack("<II", len(wire), plain | packed << 31) + wire

    raw = b"".join(block(size, bytes(size)) for size in (1, 24, 5000))
    # Magic, a header with a size of two bytes, one last block that repeats a byte.
    repeats = (1000 << 3 | 2 | 1).to_bytes(3, "little")
    run = struct.pack("<IBH", 0xFD2FB528, 0x60, 1000 - 256) + repeats + b"\0"
    packed = block(1000, run, packed=True)
    for piece in (1, 5, 255):
        for asked in (0, 9, 255):
            yield f"blocks-{piece}-{asked}", bytes((piece, asked)) + raw + packed + raw
    yield "liar", b"\xff\xff" + block(999, run, packed=True)


def probe_order(verb: int, piece: int = 0, size: int = 0) -> bytes:
    """The frame of an order to a probe responder."""
    head = struct.pack("<IIQII", verb, piece, size, 0, 7)
    return encode_frame(Kind.HANDSHAKE, Handshake.PROBE, head)


def probes() -> Iterator[tuple[str, bytes]]:
    """How a probe goes, to the responder, and what the messages alone are."""
    request = struct.pack("<IHH", MAGIC, 1, 0)
    opening = encode_frame(Kind.HANDSHAKE, Handshake.PROBE, request)
    data = encode_frame(Kind.HANDSHAKE, Handshake.PROBE, b"", bytes(4096), flags=Flags.MORE)
    last = encode_frame(Kind.HANDSHAKE, Handshake.PROBE, b"", bytes(904))
    yield "echo", b"\0" + opening + 3 * probe_order(1)
    yield "up", b"\0" + opening + probe_order(2, 4096, 5000) + data + last + probe_order(1)
    yield "down", b"\0" + opening + probe_order(3, 4096, 50_000) + probe_order(1)
    yield "count", b"\0" + opening + probe_order(4, 0, 3) + 3 * probe_order(5)
    yield "request", b"\1" + request
    yield "offer", b"\2" + put_offer(Offer(endpoints=("tcp:0.0.0.0:7700", "unix:/run/rgpu")))
    yield "order", b"\3" + struct.pack("<IIQII", 3, 4096, 50_000, 9, 7)
    yield "arrivals", b"\4" + struct.pack("<IQQ", 16, 1000, 2000)


def chunks() -> Iterator[tuple[str, bytes]]:
    """Messages of a tunnel, in pieces of various sizes."""
    data, both = Chunk(data=b"x" * 300), Chunk(data=b"last", end=True)
    said = [data, Chunk(), Chunk(end=True), both]
    messages = [message.SerializeToString() for message in said]
    later = messages[0] + b"\x18\x96\x01\x22\x03xyz\x2d....\x31........"
    stream = b"".join(grpc_message(one) for one in [*messages, later])
    for piece in (0, 6, 255):
        yield f"pieces-{piece}", bytes((piece,)) + stream


def grpc_message(payload: bytes) -> bytes:
    """A message with its prefix: not compressed, and so long."""
    return struct.pack(">BI", 0, len(payload)) + payload


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of RFC 9113, section 4.1."""
    return struct.pack(">BHBBI", 0, len(payload), kind, flags, stream) + payload


def calls() -> Iterator[tuple[str, bytes]]:
    """What a client of gRPC says: requests, data, windows, resets, and headers in two frames."""
    fields = ((":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "y"),
              ("content-type", "application/grpc"), ("grpc-timeout", "5S"))  # fmt: skip
    block = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields
    )
    begin, cut = http2_frame(1, 4, 1, block), len(block) // 2
    data = http2_frame(0, 0, 1, grpc_message(b"x" * 500))
    end = http2_frame(0, 1, 1, b"")
    split = http2_frame(1, 0, 3, block[:cut]) + http2_frame(9, 4, 3, block[cut:])
    settings = http2_frame(4, 0, 0, struct.pack(">HIHI", 4, 100, 5, 20_000))
    wider = http2_frame(8, 0, 0, struct.pack(">I", 1000)) + http2_frame(8, 0, 1, b"\0\0\x10\0")
    leave = http2_frame(6, 0, 0, bytes(8)) + http2_frame(3, 0, 3, struct.pack(">I", 8))
    for piece in (0, 16, 255):
        yield f"call-{piece}", bytes((piece,)) + begin + data + wider + data + end
        yield f"two-{piece}", bytes((piece,)) + settings + begin + split + data + leave + end


TARGETS = {
    "channels": channels,
    "chunks": chunks,
    "http2": calls,
    "probe": probes,
    "commands": commands,
    "handshake": handshakes,
    "frame_reader": streams,
    "graph_definition": definitions,
    "image": images,
    "ring": rings,
    "zip": blocks,
}


def main(out: Path) -> None:
    """Writes all seeds."""
    for target, seeds in TARGETS.items():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
