"""Chooses who makes room when all places are taken, so that nobody takes the places of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

T = TypeVar("T", bound="Hashable")
V = TypeVar("V")


class Crowds(Generic[T]):
    """Guests, grouped by origin. Every operation takes constant time, because an attacker can cause
    one with each connection.
    """

    def __init__(self) -> None:
        self._origins: dict[T, str] = {}
        # Guests of an origin, the longest present first.
        self._crowds: dict[str, dict[T, None]] = {}
        # Origins by the number of their guests, and the largest such number.
        self._sizes: dict[int, dict[str, None]] = {}
        self._largest = 0

    def come(self, guest: T, origin: str) -> None:
        """Adds a guest, or moves a present one to the end."""
        self.go(guest)
        self._origins[guest] = origin
        crowd = self._crowds.setdefault(origin, {})
        crowd[guest] = None
        self._resize(origin, len(crowd) - 1, len(crowd))
        self._largest = max(self._largest, len(crowd))

    def go(self, guest: T) -> None:
        """Removes a guest if it is present."""
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
        """Returns the longest present guest of the origin with the most guests; None without
        guests.

        newcomer: the origin of the guest that wants a place. If that origin is among the largest,
        one of its own guests goes. So no origin can keep others out, however fast it connects.
        """
        if not self._largest:
            return None
        own = self._crowds.get(newcomer, {})
        # Of equally large origins, the one that became so large first.
        first = next(iter(self._sizes[self._largest]))
        return next(iter(own if len(own) == self._largest else self._crowds[first]))

    def count(self, origin: str) -> int:
        """Returns how many guests of an origin are present."""
        return len(self._crowds.get(origin, ()))

    def origins(self) -> list[str]:
        """Returns the origins that have guests."""
        return list(self._crowds)

    def oldest(self, origin: str) -> T | None:
        """Returns the longest present guest of an origin, or None."""
        return next(iter(self._crowds.get(origin, ())), None)

    def gives_way(self, newcomer: str, *, to_operator: bool = False) -> T | None:
        """Returns the newest guest of the origin with the most guests; None: nobody gives way."""
        origin = self.yields(newcomer, to_operator=to_operator)
        return None if origin is None else next(reversed(self._crowds[origin]))

    def yields(self, newcomer: str, *, to_operator: bool = False) -> str | None:
        """Returns the origin with the most guests, one of which gives way; None: nobody does.

        For what costs its owner something to lose: of two origins that have as many guests none
        gives way to the other, and afterwards the newcomer's has no more guests than the one that
        gave way. So origins that fill all places together have to leave an equal part of them to
        each that comes.

        to_operator: an operator's guest comes, to which an origin with one guest gives way, too.
        """
        if self._largest < (1 if to_operator else self.count(newcomer) + 2):
            return None
        others = (origin for origin in self._sizes[self._largest] if origin != newcomer)
        return next(others, None)

    def _resize(self, origin: str, before: int, now: int) -> None:
        if before:
            peers = self._sizes[before]
            del peers[origin]
            if not peers:
                del self._sizes[before]
        if now:
            self._sizes.setdefault(now, {})[origin] = None


def of_largest_crowd(guests: Iterable[tuple[T, str]], newcomer: str) -> T | None:
    """The same as `Crowds.of_largest`. guests: with their origins, the longest present first."""
    crowds: Crowds[T] = Crowds()
    for guest, origin in guests:
        crowds.come(guest, origin)
    return crowds.of_largest(newcomer)


class FairStore(Generic[T, V]):
    """Values that are kept by key, at most so many. When there are more, the tenant with the most
    loses its oldest one, so a tenant with many values pushes out no value of one with few.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # The oldest first.
        self._values: dict[T, V] = {}
        self._crowds: Crowds[T] = Crowds()

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: T, tenant: str, value: V, most_of_tenant: int | None = None) -> V | None:
        """Keeps a value as the newest one. It replaces an earlier one of this key. Returns the
        value that made room, or None.

        most_of_tenant: the tenant has at most so many, also where there is room for more.
        """
        self.pop(key)
        leaves = None
        if most_of_tenant is not None and self._crowds.count(tenant) >= most_of_tenant:
            leaves = self._crowds.oldest(tenant)
        elif len(self._values) >= self._most:
            leaves = self._crowds.of_largest(tenant)
        made_room = None if leaves is None else self.pop(leaves)
        self._values[key] = value
        self._crowds.come(key, tenant)
        return made_room

    def get(self, key: T) -> V | None:
        """Returns the value of a key, or None."""
        return self._values.get(key)

    def pop(self, key: T) -> V | None:
        """Takes a value out, and returns it; None: there was none."""
        self._crowds.go(key)
        return self._values.pop(key, None)

    def values(self) -> list[V]:
        """Returns all values, the oldest first."""
        return list(self._values.values())

    def items(self) -> list[tuple[T, V]]:
        """Returns all keys with their values, the oldest first."""
        return list(self._values.items())
