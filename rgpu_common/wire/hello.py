"""HELLO: the first message of a client. `native/wire/hello.h` is the same in C++."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rgpu_common.wire.fields import Band, Wish, get_bands, get_magic, get_rows, get_wishes, put_rows
from rgpu_common.wire.frame import MAGIC, WIRE_MAJOR, WIRE_MINOR, Kind, WireError, encode_frame
from rgpu_common.wire.handshake import MAX_NAME_BYTES, MAX_OPCODES, MAX_SENTENCE_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer

MAX_TOKEN_BYTES: Final = 8192
# A HELLO of this minor or later ends with wishes.
WISHES_MINOR: Final = 1


class OpcodeHash(NamedTuple):
    """An opcode and the CRC-32 of its canonical text."""

    opcode: int
    layout_hash: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client.

    Sizes are in bytes, shares in millionths of a device; 0 means the server's default. `wishes`
    need a `minor` of at least WISHES_MINOR.
    """

    major: int = WIRE_MAJOR
    minor: int = WIRE_MINOR
    release: str = ""
    token: str = field(default="", repr=False)
    lease_key: str = ""
    tenant: str = ""
    container: str = ""
    program: str = ""
    pid: int = 0
    device: int = -1
    memory_bytes: int = 0
    share_request_ppm: int = 0
    share_limit_ppm: int = 0
    resume_session: int = 0
    resume_seq: int = 0
    device_bands: tuple[Band, ...] = ()
    pinned_bands: tuple[Band, ...] = ()
    opcodes: tuple[OpcodeHash, ...] = ()
    wishes: tuple[Wish, ...] = ()


def put_hello(m: Hello) -> bytes:
    """Returns the head of a HELLO."""
    w = Writer()
    w.put("u32", MAGIC)
    w.put("u16", m.major)
    w.put("u16", m.minor)
    for text in (m.release, m.token, m.lease_key, m.tenant, m.container, m.program):
        w.put_text(text)
    w.put("u32", m.pid)
    w.put("i32", m.device)
    w.put("u64", m.memory_bytes)
    w.put("u32", m.share_request_ppm)
    w.put("u32", m.share_limit_ppm)
    w.put("u64", m.resume_session)
    w.put("u64", m.resume_seq)
    put_rows(w, "<QQ", m.device_bands)
    put_rows(w, "<QQ", m.pinned_bands)
    put_rows(w, "<HI", m.opcodes)
    if m.minor >= WISHES_MINOR:
        put_rows(w, "<HQ", m.wishes)
    elif m.wishes:
        raise WireError(f"a HELLO of minor {m.minor} has no place for wishes")
    return w.take()


def decode_hello(head: bytes) -> Hello:
    """Reads the head of a HELLO.

    Of a Hello with another `major`, only `major` and `minor` are read: refuse it with status 803.

    Raises:
        WireError: the peer does not speak rgpu, or is hostile: refuse it with status 999.
    """
    r = Reader(head)
    get_magic(r)
    major, minor = r.integer("u16"), r.integer("u16")
    if major != WIRE_MAJOR:
        return Hello(major=major, minor=minor)
    hello = Hello(
        major=major,
        minor=minor,
        release=r.text(MAX_NAME_BYTES),
        token=r.text(MAX_TOKEN_BYTES),
        lease_key=r.text(MAX_NAME_BYTES),
        tenant=r.text(MAX_NAME_BYTES),
        container=r.text(MAX_NAME_BYTES),
        program=r.text(MAX_SENTENCE_BYTES),
        pid=r.integer("u32"),
        device=r.integer("i32"),
        memory_bytes=r.integer("u64"),
        share_request_ppm=r.integer("u32"),
        share_limit_ppm=r.integer("u32"),
        resume_session=r.integer("u64"),
        resume_seq=r.integer("u64"),
        device_bands=get_bands(r, "device bands"),
        pinned_bands=get_bands(r, "pinned bands"),
        opcodes=tuple(OpcodeHash(*row) for row in get_rows(r, "<HI", MAX_OPCODES, "opcodes")),
        wishes=get_wishes(r) if minor >= WISHES_MINOR else (),
    )
    r.end()
    return hello


def encode_hello(m: Hello) -> bytes:
    """Returns a HELLO frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, put_hello(m))
