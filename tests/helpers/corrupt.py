"""Yields damaged bytes: every shorter prefix, and every word changed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def prefixes(data: bytes) -> Iterator[bytes]:
    """Yields every proper prefix."""
    for size in range(len(data)):
        yield data[:size]


def corrupted_words(data: bytes, mask: int) -> Iterator[bytes]:
    """Yields `data` with the word at each offset changed. The words at the end are shorter."""
    for at in range(len(data)):
        width = min(4, len(data) - at)
        word = int.from_bytes(data[at : at + width], "little") ^ (mask & ((1 << 8 * width) - 1))
        yield data[:at] + word.to_bytes(width, "little") + data[at + width :]


def hostile_words(data: bytes) -> Iterator[bytes]:
    """Yields `data` with the word at each offset replaced by lengths that an attacker would try."""
    for at in range(len(data) - 3):
        for word in (0, 1, len(data), 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF):
            yield data[:at] + struct.pack("<I", word) + data[at + 4 :]
