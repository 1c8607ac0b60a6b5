"""A set of seams as bits of a number, as the record keeps it.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.arrays.seams import Seam

if TYPE_CHECKING:
    from collections.abc import Iterable

# The bit of the driver seam is 0, and that of an array library is its number.
_BITS = {"driver": 1, **{seam.word: 1 << seam for seam in Seam}}


def bits_of(words: Iterable[str]) -> int:
    """Returns the bits for seams by the words of `seam_word`."""
    return sum(_BITS[word] for word in set(words))


def words_of(bits: int) -> list[str]:
    """Returns the words in the order of their bits; bits that have none are left out."""
    return [word for word, bit in _BITS.items() if bits & bit]
