"""Who makes room when all places are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

T = TypeVar("T", bound="Hashable")


class Crowds(Generic[T]):
    """Guests by their origin.  Who makes room is found at once, however many there are: those who
    mean harm have it looked for as often as they come.
    """

    def __init__(self) -> None:
        self._origins: dict[T, str] = {}
        # The longest there first.
        self._crowds: dict[str, dict[T, None]] = {}
        # Origins by the size of their crowds, and the largest size.
        self._sizes: dict[int, dict[str, None]] = {}
        self._largest = 0

    def come(self, guest: T, origin: str) -> None:
        """A guest is there, or there again."""
        self.go(guest)
        self._origins[guest] = origin
        crowd = self._crowds.setdefault(origin, {})
        crowd[guest] = None
        self._resize(origin, len(crowd) - 1, len(crowd))
        self._largest = max(self._largest, len(crowd))

    def go(self, guest: T) -> None:
        """A guest leaves, if it is there."""
        origin = self._origins.pop(guest, None)
        if origin is None:
            return
        crowd = self._crowds[origin]
        del crowd[guest]
        self._resize(origin, len(crowd) + 1, len(crowd))
        if not crowd:
            del self._crowds[origin]
        if self._largest and self._largest not in self._sizes:
            self._largest -= 1

    def of_largest(self, newcomer: str) -> T | None:
        """Returns the longest there of the origin with the most guests, None: there is no guest.

        newcomer: the origin of whoever wants a place, who is one of its crowd.  So no origin keeps
        others out, however fast it comes.
        """
        if not self._largest:
            return None
        own = self._crowds.get(newcomer, {})
        # Of equal ones the first that became so large.
        first = next(iter(self._sizes[self._largest]))
        return next(iter(own if len(own) == self._largest else self._crowds[first]))

    def _resize(self, origin: str, before: int, now: int) -> None:
        if before:
            peers = self._sizes[before]
            del peers[origin]
            if not peers:
                del self._sizes[before]
        if now:
            self._sizes.setdefault(now, {})[origin] = None


def of_largest_crowd(guests: Iterable[tuple[T, str]], newcomer: str) -> T | None:
    """As `Crowds.of_largest`; guests: each with its origin, the longest there first."""
    crowds: Crowds[T] = Crowds()
    for guest, origin in guests:
        crowds.come(guest, origin)
    return crowds.of_largest(newcomer)
