"""Fields that several messages share. `native/wire/fields.h` is the same in C++."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rgpu_common.wire.frame import MAGIC, WireError
from rgpu_common.wire.handshake import MAX_BANDS as MAX_BANDS
from rgpu_common.wire.handshake import MAX_WISHES
from rgpu_common.wire.handshake import WishKey as WishKey
from rgpu_common.wire.scalars import Reader, Writer, cleaned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
_Enumeration = TypeVar("_Enumeration", bound=IntEnum)


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
    """Replaces what is not clean by '?', and cuts the text to `max_bytes` of UTF-8."""
    return cleaned(text).encode()[:max_bytes].decode(errors="ignore")


def put_strings(w: Writer, strings: Sequence[str]) -> None:
    """Appends strings, each with a NUL behind it, as one byte string."""
    w.put_bytes(b"".join(one.encode() + b"\0" for one in strings))


def get_strings(r: Reader, limit: int) -> tuple[str, ...]:
    """Reads strings that are together one byte string of at most `limit` bytes."""
    data = r.sized(limit)
    if data and not data.endswith(b"\0"):
        raise WireError("the last of the strings has no end")
    return tuple(one.decode(errors="replace") for one in data.split(b"\0")[:-1])


def get_line(r: Reader, limit: int) -> str:
    """Reads a string for a log: what is not clean text is replaced."""
    return cleaned(r.sized(limit).decode(errors="surrogateescape"))


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


def get_optional(r: Reader, get: Callable[[Reader], tuple[_T, ...]], what: str) -> tuple[_T, ...]:
    """Reads a last field that may be absent. An empty list must have no bytes, so that a message
    has one form only.
    """
    if not r.left:
        return ()
    rows = get(r)
    if not rows:
        raise WireError(f"a message without {what} must end before the field of the {what}")
    return rows


def get_count(r: Reader, limit: int, what: str) -> int:
    """Reads the u32 count of a list, at most `limit`."""
    count = r.integer("u32")
    if count > limit:
        raise WireError(f"there are {count} {what}, but the limit is {limit}")
    return count


def put_u32(w: Writer, value: int) -> None:
    """Appends an item of a list of u32."""
    w.put("u32", value)


def put_items(w: Writer, items: Sequence[_T], put: Callable[[Writer, _T], None]) -> None:
    """Appends the items of a list."""
    for item in items:
        put(w, item)


def get_u32(r: Reader) -> int:
    """Reads an item of a list of u32."""
    return r.integer("u32")


def get_items(r: Reader, count: int, get: Callable[[Reader], _T]) -> tuple[_T, ...]:
    """Reads so many items of a list."""
    return tuple(get(r) for _ in range(count))


def get_number(r: Reader, kind: str, least: int, most: int, what: str) -> int:
    """Reads an integer from `least` to `most`."""
    value = r.integer(kind)
    if not least <= value <= most:
        raise WireError(f"the field {what} is {value}, but must be from {least} to {most}")
    return value


def get_bool(r: Reader, what: str) -> bool:
    """Reads a u8 that is 0 or 1."""
    return bool(get_number(r, "u8", 0, 1, what))


def get_enum(r: Reader, of: type[_Enumeration], kind: str = "u8") -> _Enumeration:
    """Reads an integer of type `kind` that is a value of the enumeration."""
    value = r.integer(kind)
    try:
        return of(value)
    except ValueError:
        raise WireError(f"there is no {of.__name__} {value}") from None


def check(good: bool, why: str) -> None:
    """Raises WireError unless `good`."""
    if not good:
        raise WireError(why)


def encode_packet(kind: int, body: bytes) -> bytes:
    """Returns a packet: a u32 type and the body."""
    w = Writer()
    w.put("u32", kind)
    return w.take() + body


def split_packet(packet: bytes) -> tuple[int, bytes]:
    """Returns the type and the body of a packet."""
    return Reader(packet).integer("u32"), packet[4:]


def get_zero(r: Reader, what: str) -> None:
    """Reads a u32 that is 0."""
    check(r.integer("u32") == 0, f"the field {what} is not 0")


def get_magic(r: Reader) -> None:
    """Reads the magic number, with which every peer that speaks rgpu begins."""
    if r.integer("u32") != MAGIC:
        raise WireError("the magic number is missing: the peer does not speak rgpu")
