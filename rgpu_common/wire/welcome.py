"""WELCOME: the answer that opens a session. `native/wire/welcome.h` is the same in C++."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rgpu_common.wire.fields import (
    NO_BAND,
    Band,
    Wish,
    get_band,
    get_exactly,
    get_rows,
    get_wishes,
    put_rows,
)
from rgpu_common.wire.frame import Kind, WireError, encode_frame
from rgpu_common.wire.handshake import (
    MAX_NAME_BYTES,
    MAX_OPCODES,
    MAX_SENTENCE_BYTES,
    SECRET_BYTES,
    Handshake,
)
from rgpu_common.wire.scalars import Reader, Writer

MAX_DEVICES: Final = 16
MAX_ATTRIBUTES: Final = 400


class Attribute(NamedTuple):
    """A CUdevice_attribute and its value."""

    id: int
    value: int


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device of a session."""

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


def put_welcome(m: Welcome) -> bytes:
    """Returns the head of a WELCOME."""
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
    put_rows(w, "<H", tuple((opcode,) for opcode in m.missing))
    w.put("u32", len(m.devices))
    for device in m.devices:
        _put_device(w, device)
    w.put_text(m.note)
    if m.grants:
        put_rows(w, "<HQ", m.grants)
    return w.take()


def _put_device(w: Writer, m: DeviceInfo) -> None:
    w.put_text(m.name)
    w.put_bytes(m.uuid)
    w.put("u64", m.total_bytes)
    w.put_text(m.pci_bus_id)
    put_rows(w, "<ii", m.attributes)
    w.put("u64", m.default_pool)
    w.put("i32", m.least_priority)
    w.put("i32", m.greatest_priority)


def decode_welcome(head: bytes) -> Welcome:
    """Reads the head of a WELCOME.

    Raises:
        WireError: the bytes are not a WELCOME.
    """
    r = Reader(head)
    welcome = Welcome(
        session=r.integer("u64"),
        secret=get_exactly(r, SECRET_BYTES, "secret"),
        release=r.text(MAX_NAME_BYTES),
        band=get_band(r, "band"),
        pinned=get_band(r, "pinned band"),
        stream_credits=r.integer("u32"),
        stream_credit_bytes=r.integer("u64"),
        memory_limit_bytes=r.integer("u64"),
        driver_version=r.integer("i32"),
        missing=tuple(row[0] for row in get_rows(r, "<H", MAX_OPCODES, "missing opcodes")),
        devices=_devices(r),
        note=r.text(MAX_SENTENCE_BYTES),
        grants=_grants(r),
    )
    r.end()
    return welcome


def _device(r: Reader) -> DeviceInfo:
    return DeviceInfo(
        name=r.text(MAX_NAME_BYTES),
        uuid=get_exactly(r, 16, "UUID"),
        total_bytes=r.integer("u64"),
        pci_bus_id=r.text(MAX_NAME_BYTES),
        attributes=_attributes(r),
        default_pool=r.integer("u64"),
        least_priority=r.integer("i32"),
        greatest_priority=r.integer("i32"),
    )


def _attributes(r: Reader) -> tuple[Attribute, ...]:
    return tuple(Attribute(*row) for row in get_rows(r, "<ii", MAX_ATTRIBUTES, "attributes"))


def _devices(r: Reader) -> tuple[DeviceInfo, ...]:
    count = r.integer("u32")
    if count > MAX_DEVICES:
        raise WireError(f"there are {count} devices, but the limit is {MAX_DEVICES}")
    return tuple(_device(r) for _ in range(count))


def _grants(r: Reader) -> tuple[Wish, ...]:
    """Reads the grants. An empty list must have no bytes, so that a message has one form only."""
    if not r.left:
        return ()
    grants = get_wishes(r)
    if not grants:
        raise WireError("a WELCOME without grants must end before the field of the grants")
    return grants


def encode_welcome(m: Welcome) -> bytes:
    """Returns a WELCOME frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.WELCOME, put_welcome(m))
