"""Turns fields into bytes and back. `native/wire/codec.h` is the same in C++."""

from __future__ import annotations

import re
import struct
from typing import Final

from rgpu_common.wire.frame import WireError

_SCALARS: Final = {
    name: struct.Struct("<" + code)
    for name, code in (
        ("u8", "B"), ("u16", "H"), ("u32", "I"), ("i32", "i"),
        ("u64", "Q"), ("i64", "q"), ("f32", "f"), ("f64", "d"),
    )
}  # fmt: skip


# The same characters as in native/wire/text.cc, which says why these. Fixed here, because
# `unicodedata` and `str.isprintable` answer by the Unicode of their Python. Lone surrogates stand
# for bytes that are not UTF-8.
_UNCLEAN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def unclean(text: str) -> bool:
    """Returns whether the text has a character that controls a terminal, or that hides or reorders
    what is beside it.
    """
    return _UNCLEAN.search(text) is not None


def cleaned(text: str) -> str:
    """Replaces each such character by '?'."""
    return _UNCLEAN.sub("?", text)


class Writer:
    """Appends fields to bytes."""

    def __init__(self) -> None:
        self._out = bytearray()

    def put(self, kind: str, value: float) -> None:
        """Appends a scalar of type `kind` ("u32" ...)."""
        try:
            self._out += _SCALARS[kind].pack(value)
        except struct.error as error:
            raise WireError(f"{value!r} is not of type {kind}: {error}") from None

    def put_bytes(self, value: bytes) -> None:
        """Appends a u32 count and the bytes."""
        self.put("u32", len(value))
        self._out += value

    def put_text(self, value: str) -> None:
        """Appends a string as UTF-8. What UTF-8 cannot say is replaced."""
        self.put_bytes(value.encode(errors="replace"))

    def take(self) -> bytes:
        """Returns all bytes so far."""
        return bytes(self._out)


class Reader:
    """Reads fields. A field that does not fit raises `WireError`."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that have not been read yet."""
        return len(self._data) - self._at

    def _take(self, count: int, what: str) -> memoryview:
        if count > self.left:
            raise WireError(f"{what} needs {count} bytes, {self.left} are left")
        view = self._data[self._at : self._at + count]
        self._at += count
        return view

    def integer(self, kind: str) -> int:
        """Reads an integer of type `kind`."""
        scalar = _SCALARS[kind]
        value = scalar.unpack(self._take(scalar.size, kind))[0]
        assert isinstance(value, int)
        return value

    def number(self, kind: str) -> float:
        """Reads a floating-point number of type `kind`."""
        scalar = _SCALARS[kind]
        return float(scalar.unpack(self._take(scalar.size, kind))[0])

    def raw(self, count: int) -> bytes:
        """Reads `count` bytes."""
        return bytes(self._take(count, "field"))

    def sized(self, limit: int = 1 << 32) -> bytes:
        """Reads a u32 count, at most `limit`, and then so many bytes."""
        count = self.integer("u32")
        if count > limit:
            raise WireError(f"a field has {count} bytes, but the limit is {limit}")
        return self.raw(count)

    def text(self, limit: int) -> str:
        """Reads UTF-8 text of at most `limit` bytes that is clean."""
        data = self.sized(limit)
        try:
            value = data.decode()
        except UnicodeDecodeError:
            raise WireError("text is not UTF-8") from None
        if unclean(value):
            raise WireError("text holds a control or format character")
        return value

    def printable(self, limit: int = 1 << 32) -> str:
        """Reads any bytes, at most `limit`, as text. Malformed UTF-8 is replaced."""
        return self.sized(limit).decode(errors="replace")

    def end(self) -> None:
        """Raises `WireError` if bytes are left."""
        if self.left:
            raise WireError(f"{self.left} bytes are left over")
