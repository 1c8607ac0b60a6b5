"""The messages that open a session: Python twin of `native/wire/handshake.h`.

`decode_*` take a head (without the frame header) and raise `WireError`; `encode_*` return a
whole frame.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from rgpu_common.wire.frame import MAGIC, WIRE_MAJOR, WIRE_MINOR, Kind, WireError, encode_frame
from rgpu_common.wire.scalars import Reader, Writer, is_control

SECRET_BYTES: Final = 32
MAX_NAME_BYTES: Final = 256
MAX_TOKEN_BYTES: Final = 8192
MAX_SENTENCE_BYTES: Final = 4096
MAX_BANDS: Final = 64
MAX_OPCODES: Final = 4096
MAX_DEVICES: Final = 16
MAX_ATTRIBUTES: Final = 400
MAX_WISHES: Final = 32
# From this minor on a HELLO ends with wishes.
WISHES_MINOR: Final = 1

CUDA_ERROR_DEVICE_UNAVAILABLE: Final = 46
CUDA_ERROR_LAUNCH_TIMEOUT: Final = 702
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: Final = 803
CUDA_ERROR_UNKNOWN: Final = 999


class Handshake(IntEnum):
    """Opcodes of frames of kind HANDSHAKE."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    ATTACH = 4
    ATTACHED = 5
    RESUME = 6
    RESUMED = 7
    PREFACE = 8
    SHM = 9
    PROBE = 10


class WishKey(IntEnum):
    """What a wish is about; a server ignores keys that it does not know."""

    MEMORY_PPM = 1
    POLICY = 2
    PRIORITY = 3
    WEIGHT = 4
    RESUMABLE = 5
    SHM = 6
    COMPRESSION = 7


class Wish(NamedTuple):
    """Something that a client asks for beside the sizes, or what a server grants of it."""

    key: int
    value: int


class Band(NamedTuple):
    """An address range in bytes."""

    base: int = 0
    size: int = 0


NO_BAND: Final = Band()


class OpcodeHash(NamedTuple):
    """An opcode and the CRC-32 of its canonical text."""

    opcode: int
    layout_hash: int


class Attribute(NamedTuple):
    """A CUdevice_attribute and its value."""

    id: int
    value: int


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client says first.

    Sizes in bytes, shares in millionths of a device; 0 is the server's default.  `wishes` need
    a `minor` of at least WISHES_MINOR.
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


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device of a session."""

    name: str = ""
    uuid: bytes = bytes(16)
    total_bytes: int = 0
    pci_bus_id: str = ""
    attributes: tuple[Attribute, ...] = ()
    default_pool: int = 0
    least_priority: int = 0
    greatest_priority: int = 0


@dataclass(frozen=True, slots=True)
class Welcome:
    """The worker's answer to HELLO."""

    session: int = 0
    secret: bytes = field(default=bytes(SECRET_BYTES), repr=False)
    release: str = ""
    band: Band = NO_BAND
    pinned: Band = NO_BAND
    stream_credits: int = 0
    stream_credit_bytes: int = 0
    memory_limit_bytes: int = 0
    driver_version: int = 0
    missing: tuple[int, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    note: str = ""
    grants: tuple[Wish, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no session; the CUresult is the header's status."""

    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """Makes a connection the control lane of `session`."""

    session: int = 0
    secret: bytes = field(default=bytes(SECRET_BYTES), repr=False)


@dataclass(frozen=True, slots=True)
class Shm:
    """The client's answer to a ring that came with WELCOME; `reason` says why it declined."""

    accepted: int = 0
    reason: str = ""


def clean_text(text: str, max_bytes: int) -> str:
    """Makes text fit: control characters become '?', and it is cut to `max_bytes` of UTF-8."""
    clean = "".join("?" if is_control(c) else c for c in text)
    return clean.encode(errors="replace")[:max_bytes].decode(errors="ignore")


def _put_rows(w: Writer, row: str, rows: tuple[tuple[int, ...], ...]) -> None:
    w.put_bytes(b"".join(struct.pack(row, *fields) for fields in rows))


def _rows(r: Reader, row: str, limit: int, what: str) -> list[tuple[int, ...]]:
    size = struct.calcsize(row)
    data = r.sized()
    if len(data) % size or len(data) // size > limit:
        raise WireError(f"{what}: {len(data)} bytes are not at most {limit} rows of {size}")
    return list(struct.iter_unpack(row, data))


def _bands(r: Reader, what: str) -> tuple[Band, ...]:
    bands = tuple(Band(*row) for row in _rows(r, "<QQ", MAX_BANDS, what))
    for band in bands:
        _check_band(band, what)
    return bands


def _check_band(band: Band, what: str) -> None:
    if band.base + band.size >= 1 << 64:
        raise WireError(f"{what}: {band.base:#x} + {band.size:#x} passes the address space")


def _wishes(r: Reader) -> tuple[Wish, ...]:
    return tuple(Wish(*row) for row in _rows(r, "<HQ", MAX_WISHES, "wishes"))


def _magic(r: Reader) -> None:
    if r.integer("u32") != MAGIC:
        raise WireError("the magic number is missing: the peer does not speak rgpu")


def put_hello(m: Hello) -> bytes:
    """The head of a HELLO."""
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
    _put_rows(w, "<QQ", m.device_bands)
    _put_rows(w, "<QQ", m.pinned_bands)
    _put_rows(w, "<HI", m.opcodes)
    if m.minor >= WISHES_MINOR:
        _put_rows(w, "<HQ", m.wishes)
    elif m.wishes:
        raise WireError(f"a HELLO of minor {m.minor} has no place for wishes")
    return w.take()


def decode_hello(head: bytes) -> Hello:
    """Reads the head of a HELLO.

    A Hello of another `major` has only `major` and `minor` filled: refuse it with status 803.

    Raises:
        WireError: the peer is a stranger or hostile; refuse it with status 999.
    """
    r = Reader(head)
    _magic(r)
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
        device_bands=_bands(r, "device bands"),
        pinned_bands=_bands(r, "pinned bands"),
        opcodes=tuple(OpcodeHash(*row) for row in _rows(r, "<HI", MAX_OPCODES, "opcodes")),
        wishes=_wishes(r) if minor >= WISHES_MINOR else (),
    )
    r.end()
    return hello


def encode_hello(m: Hello) -> bytes:
    """A HELLO frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, put_hello(m))


def put_welcome(m: Welcome) -> bytes:
    """The head of a WELCOME."""
    w = Writer()
    w.put("u64", m.session)
    w.put_bytes(m.secret)
    w.put_text(m.release)
    for number in (*m.band, *m.pinned):
        w.put("u64", number)
    w.put("u32", m.stream_credits)
    w.put("u64", m.stream_credit_bytes)
    w.put("u64", m.memory_limit_bytes)
    w.put("i32", m.driver_version)
    _put_rows(w, "<H", tuple((opcode,) for opcode in m.missing))
    w.put("u32", len(m.devices))
    for device in m.devices:
        _put_device(w, device)
    w.put_text(m.note)
    if m.grants:
        _put_rows(w, "<HQ", m.grants)
    return w.take()


def _put_device(w: Writer, m: DeviceInfo) -> None:
    w.put_text(m.name)
    w.put_bytes(m.uuid)
    w.put("u64", m.total_bytes)
    w.put_text(m.pci_bus_id)
    _put_rows(w, "<ii", m.attributes)
    w.put("u64", m.default_pool)
    w.put("i32", m.least_priority)
    w.put("i32", m.greatest_priority)


def _exactly(r: Reader, count: int, what: str) -> bytes:
    data = r.sized(count)
    if len(data) != count:
        raise WireError(f"{what} has {len(data)} bytes instead of {count}")
    return data


def _device(r: Reader) -> DeviceInfo:
    return DeviceInfo(
        name=r.text(MAX_NAME_BYTES),
        uuid=_exactly(r, 16, "UUID"),
        total_bytes=r.integer("u64"),
        pci_bus_id=r.text(MAX_NAME_BYTES),
        attributes=tuple(Attribute(*row) for row in _rows(r, "<ii", MAX_ATTRIBUTES, "attributes")),
        default_pool=r.integer("u64"),
        least_priority=r.integer("i32"),
        greatest_priority=r.integer("i32"),
    )


def _devices(r: Reader) -> tuple[DeviceInfo, ...]:
    count = r.integer("u32")
    if count > MAX_DEVICES:
        raise WireError(f"{count} devices, the limit is {MAX_DEVICES}")
    return tuple(_device(r) for _ in range(count))


def _band(r: Reader, what: str) -> Band:
    band = Band(r.integer("u64"), r.integer("u64"))
    _check_band(band, what)
    return band


def decode_welcome(head: bytes) -> Welcome:
    """Reads the head of a WELCOME.

    Raises:
        WireError: it is none.
    """
    r = Reader(head)
    welcome = Welcome(
        session=r.integer("u64"),
        secret=_exactly(r, SECRET_BYTES, "secret"),
        release=r.text(MAX_NAME_BYTES),
        band=_band(r, "band"),
        pinned=_band(r, "pinned band"),
        stream_credits=r.integer("u32"),
        stream_credit_bytes=r.integer("u64"),
        memory_limit_bytes=r.integer("u64"),
        driver_version=r.integer("i32"),
        missing=tuple(row[0] for row in _rows(r, "<H", MAX_OPCODES, "missing opcodes")),
        devices=_devices(r),
        note=r.text(MAX_SENTENCE_BYTES),
        grants=_grants(r),
    )
    r.end()
    return welcome


def _grants(r: Reader) -> tuple[Wish, ...]:
    """What is accepted has one form only: no grants are no bytes."""
    if not r.left:
        return ()
    grants = _wishes(r)
    if not grants:
        raise WireError("a WELCOME without grants ends before them")
    return grants


def encode_welcome(m: Welcome) -> bytes:
    """A WELCOME frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.WELCOME, put_welcome(m))


def put_refused(m: Refused) -> bytes:
    """The head of a REFUSED."""
    w = Writer()
    w.put_text(clean_text(m.sentence, MAX_SENTENCE_BYTES))
    return w.take()


def decode_refused(head: bytes) -> Refused:
    """Reads the head of a REFUSED."""
    r = Reader(head)
    refused = Refused(r.text(MAX_SENTENCE_BYTES))
    r.end()
    return refused


def encode_refused(status: int, sentence: str) -> bytes:
    """A REFUSED frame: `status` is a CUresult, `sentence` names the remedy."""
    return encode_frame(
        Kind.HANDSHAKE, Handshake.REFUSED, put_refused(Refused(sentence)), status=status
    )


def put_attach(m: Attach) -> bytes:
    """The head of an ATTACH."""
    w = Writer()
    w.put("u32", MAGIC)
    w.put("u64", m.session)
    w.put_bytes(m.secret)
    return w.take()


def decode_attach(head: bytes) -> Attach:
    """Reads the head of an ATTACH. Compare the secret with `hmac.compare_digest`.

    Raises:
        WireError: it is none.
    """
    r = Reader(head)
    _magic(r)
    attach = Attach(r.integer("u64"), _exactly(r, SECRET_BYTES, "secret"))
    r.end()
    return attach


def encode_attach(m: Attach) -> bytes:
    """An ATTACH frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.ATTACH, put_attach(m))


def encode_attached() -> bytes:
    """The answer to an ATTACH that was accepted."""
    return encode_frame(Kind.HANDSHAKE, Handshake.ATTACHED)


def put_shm(m: Shm) -> bytes:
    """The head of a SHM frame."""
    w = Writer()
    w.put("u8", m.accepted)
    w.put_text(clean_text(m.reason, MAX_SENTENCE_BYTES))
    return w.take()


def decode_shm(head: bytes) -> Shm:
    """Reads the head of a SHM frame.

    Raises:
        WireError: it is none.
    """
    r = Reader(head)
    shm = Shm(r.integer("u8"), r.text(MAX_SENTENCE_BYTES))
    if shm.accepted > 1:
        raise WireError(f"a ring is accepted (1) or not (0), never {shm.accepted}")
    r.end()
    return shm
