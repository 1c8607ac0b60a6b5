"""Who makes room when all places are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def of_largest_crowd(guests: Iterable[tuple[T, str]], newcomer: str) -> T | None:
    """Returns the longest there of the origin with the most guests, None: there is no guest.

    guests: each with its origin, the longest there first.  newcomer: the origin of whoever wants a
    place, who is one of its crowd.  So no origin keeps others out, however fast it comes.
    """
    first: dict[str, T] = {}
    size: dict[str, int] = {}
    for guest, origin in guests:
        first.setdefault(origin, guest)
        size[origin] = size.get(origin, int(origin == newcomer)) + 1
    # Of equal ones the first in the order of their longest guests.
    return first[max(size, key=size.__getitem__)] if size else None
