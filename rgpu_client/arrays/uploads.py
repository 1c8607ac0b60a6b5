"""Guesses whether an array that is to be sent lies on the node already. Pure.

A program that sends the same large array twice, as a notebook whose cell is run again, waits for a
slow link twice. The node can copy the first one instead, if that still has the same elements. Both
sides then compute a digest of all elements, and the node has the last word.

Digests cost time too, so they pay on slow links only, and for arrays that are probably the same:
those of the same size, dtype and shape whose elements agree at 64 places.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Smaller arrays are always sent.
LEAST_BYTES = 4 << 20
# Two digests and a copy on the node run at about 700 MiB/s: a faster link sends in less time.
SLOW = 512 * 2**20
# So many arrays are remembered, the newest.
MOST = 256
# After so many wrong guesses in a row nothing is guessed any more.
MISSES = 3
_PLACES, _PLACE_BYTES = 64, 256


class Likeness(NamedTuple):
    """What arrays that are probably the same have in common."""

    dtype: str
    shape: tuple[int, ...]
    some: bytes


class Uploads:
    """The large arrays that a session has sent."""

    def __init__(self) -> None:
        # In bytes a second, the most that any upload had: others may have waited for the node.
        self._rate = 0.0
        self._misses = 0
        self._sent: OrderedDict[Likeness, int] = OrderedDict()

    def like(self, dtype: str, shape: Sequence[int], elements: memoryview) -> Likeness | None:
        """Returns what an array is known by; None: it is not worth while to look for it."""
        if elements.nbytes < LEAST_BYTES or self._misses >= MISSES or self._rate > SLOW:
            return None
        return Likeness(dtype, tuple(shape), _some(elements))

    def find(self, likeness: Likeness) -> int | None:
        """Returns the id of an array that was probably the same when it was sent."""
        return self._sent.get(likeness)

    def guessed(self, right: bool) -> None:
        """Notes whether the node has found the same elements."""
        self._misses = 0 if right else self._misses + 1

    def sent(self, likeness: Likeness | None, made: int, size: int, seconds: float) -> None:
        """Notes that an array was sent as `made`; or, if that took no `seconds`, was copied."""
        if size >= LEAST_BYTES and seconds > 0:
            self._rate = max(self._rate, size / seconds)
        if likeness is None or self._rate > SLOW:
            return
        self._sent[likeness] = made
        self._sent.move_to_end(likeness)
        if len(self._sent) > MOST:
            self._sent.popitem(last=False)


def digest(elements: memoryview) -> bytes:
    """Returns the SHA-256 of all elements."""
    return hashlib.sha256(elements).digest()


def _some(elements: memoryview) -> bytes:
    """Returns a digest of a few elements, from the first to the last."""
    flat = elements.cast("B") if elements.format != "B" or elements.ndim != 1 else elements
    step = max((flat.nbytes - _PLACE_BYTES) // (_PLACES - 1), 1)
    few = hashlib.blake2b(digest_size=16)
    for place in range(_PLACES):
        few.update(flat[place * step : place * step + _PLACE_BYTES])
    return few.digest()
