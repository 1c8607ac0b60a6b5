"""Fields that several handshake messages share. `native/wire/fields.h` is the same in C++."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from rgpu_common.wire.frame import MAGIC, WireError
from rgpu_common.wire.scalars import Reader, Writer, is_control

MAX_BANDS: Final = 64
MAX_WISHES: Final = 32


class WishKey(IntEnum):
    """The keys of wishes. A server ignores keys that it does not know."""

    MEMORY_PPM = 1
    POLICY = 2
    PRIORITY = 3
    WEIGHT = 4
    RESUMABLE = 5
    SHM = 6
    COMPRESSION = 7
    CLAIM = 8
    WAIT = 9
    COMPILED = 10


class Wish(NamedTuple):
    """Something that a client asks for beside the sizes, or a server's grant with the same key."""

    key: int
    value: int


class Band(NamedTuple):
    """An address range in bytes."""

    base: int = 0
    size: int = 0


NO_BAND: Final = Band()


def clean_text(text: str, max_bytes: int) -> str:
    """Replaces control characters by '?', and cuts the text to `max_bytes` of UTF-8."""
    clean = "".join("?" if is_control(c) else c for c in text)
    return clean.encode(errors="replace")[:max_bytes].decode(errors="ignore")


def put_rows(w: Writer, row: str, rows: tuple[tuple[int, ...], ...]) -> None:
    """Appends rows of the `struct` format `row` as one byte string."""
    w.put_bytes(b"".join(struct.pack(row, *fields) for fields in rows))


def get_rows(r: Reader, row: str, limit: int, what: str) -> list[tuple[int, ...]]:
    """Reads at most `limit` rows of the `struct` format `row`; `what` names them in the error."""
    size = struct.calcsize(row)
    data = r.sized()
    if len(data) % size or len(data) // size > limit:
        raise WireError(f"{what}: {len(data)} bytes are not at most {limit} rows of {size}")
    return list(struct.iter_unpack(row, data))


def get_exactly(r: Reader, count: int, what: str) -> bytes:
    """Reads a byte string of `count` bytes."""
    data = r.sized(count)
    if len(data) != count:
        raise WireError(f"{what} has {len(data)} bytes instead of {count}")
    return data


def _check_band(band: Band, what: str) -> None:
    if band.base + band.size >= 1 << 64:
        raise WireError(
            f"{what}: {band.base:#x} + {band.size:#x} passes the end of the address space"
        )


def get_band(r: Reader, what: str) -> Band:
    """Reads a band. WireError if it passes the end of the address space."""
    band = Band(r.integer("u64"), r.integer("u64"))
    _check_band(band, what)
    return band


def get_bands(r: Reader, what: str) -> tuple[Band, ...]:
    """Reads bands. WireError if one of them passes the end of the address space."""
    bands = tuple(Band(*row) for row in get_rows(r, "<QQ", MAX_BANDS, what))
    for band in bands:
        _check_band(band, what)
    return bands


def get_wishes(r: Reader) -> tuple[Wish, ...]:
    """Reads wishes, or grants."""
    return tuple(Wish(*row) for row in get_rows(r, "<HQ", MAX_WISHES, "wishes"))


def get_magic(r: Reader) -> None:
    """Reads the magic number, with which every peer that speaks rgpu begins."""
    if r.integer("u32") != MAGIC:
        raise WireError("the magic number is missing: the peer does not speak rgpu")
