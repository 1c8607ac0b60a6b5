"""Totals that only grow: of leases, of tenants over all their leases, of the token loop.

What is counted elsewhere may begin anew, with a lease, a worker or the token loop; what is shown
must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

# Tenants that the totals tell apart, times devices; beyond, the oldest without a lease go into
# OTHERS.
MAX_ROWS = 1024
OTHERS = "(others)"
# Counters are as large as workers say; sums of theirs fit where they are written.
_MAX_SUM = (1 << 63) - 1


class Amounts(NamedTuple):
    """What a lease used; sums since it began.

    device_ns: device time that its share is charged with.  busy_ns: in which its sessions had work
    on the device, each for itself.  held_ns, waiting_ns, throttled_ns, grants: as the token loop
    counts them.  held_back_ns: in which its sessions held work back.
    """

    device_ns: int = 0
    busy_ns: int = 0
    held_ns: int = 0
    waiting_ns: int = 0
    throttled_ns: int = 0
    held_back_ns: int = 0
    grants: int = 0
    launches: int = 0
    copies: int = 0
    copied_bytes: int = 0
    refused: int = 0


class Growing:
    """Sums of counters that may be reset to zero. A counter that falls was reset: its new value is
    then added whole.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, ...]] = {}
        self._sums: dict[Hashable, tuple[int, ...]] = {}

    def observe(self, key: Hashable, counted: tuple[int, ...]) -> tuple[int, ...]:
        """Notes what a counter shows and returns by how much it grew."""
        last = self._last.get(key, ())
        if len(last) != len(counted):
            last = (0,) * len(counted)
        grown = tuple(
            now if now < was else now - was for now, was in zip(counted, last, strict=True)
        )
        self._last[key] = counted
        self._sums[key] = add(self._sums.get(key, (0,) * len(counted)), grown)
        return grown

    def sums(self, key: Hashable) -> tuple[int, ...]:
        """What it came to; () if it was never observed."""
        return self._sums.get(key, ())

    def forget(self, key: Hashable) -> None:
        self._last.pop(key, None)
        self._sums.pop(key, None)

    def restore(self, key: Hashable, last: tuple[int, ...], sums: tuple[int, ...]) -> None:
        """Goes on with what was saved."""
        self._last[key], self._sums[key] = last, sums

    def saved(self) -> Iterable[tuple[Hashable, tuple[int, ...], tuple[int, ...]]]:
        """What `restore` wants to know."""
        return [(key, last, self._sums[key]) for key, last in self._last.items()]


class Totals:
    """Of leases and, over all their leases, of tenants on each device."""

    def __init__(self) -> None:
        self._leases = Growing()
        self._where: dict[str, tuple[str, int]] = {}
        self.tenants: dict[tuple[str, int], Amounts] = {}

    def place(self, lease: str, tenant: str, device: int) -> None:
        """Says whose a lease is, and on which device from now on."""
        self._where[lease] = (tenant, device)
        if (tenant, device) not in self.tenants:
            self._make_room()
            self.tenants[tenant, device] = Amounts()

    def observe(self, lease: str, counted: Amounts) -> Amounts:
        """Notes what a lease that has a place has counted; returns its totals."""
        grown = self._leases.observe(lease, counted)
        where = self._where[lease]
        self.tenants[where] = Amounts(*add(self.tenants[where], grown))
        return Amounts(*self._leases.sums(lease))

    def end(self, lease: str, counted: Amounts) -> Amounts:
        """A lease is gone, with these last counts; the tenant's totals keep them.  Returns its
        totals.
        """
        if lease not in self._where:
            return counted
        total = self.observe(lease, counted)
        self._leases.forget(lease)
        del self._where[lease]
        return total

    def lease(self, lease: str) -> Amounts:
        """A lease's totals as last observed."""
        return Amounts(*self._leases.sums(lease))

    def _make_room(self) -> None:
        if len(self.tenants) < MAX_ROWS:
            return
        living = set(self._where.values())
        for row in list(self.tenants):
            if row not in living and row[0] != OTHERS:
                others = (OTHERS, row[1])
                gone = self.tenants.pop(row)
                self.tenants[others] = Amounts(*add(self.tenants.get(others, Amounts()), gone))
                return

    def save(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "fields": list(Amounts._fields),
            "tenants": [[*where, *sums] for where, sums in self.tenants.items()],
            "leases": [[key, list(last), list(sums)] for key, last, sums in self._leases.saved()],
        }

    def restore(self, saved: object, running: set[str]) -> None:
        """Goes on with what an earlier daemon saved, for the leases that are still there; what
        cannot be read is left out.
        """
        if not isinstance(saved, dict) or saved.get("fields") != list(Amounts._fields):
            return
        width = len(Amounts._fields)
        for row in _rows(saved.get("tenants"))[:MAX_ROWS]:
            if len(row) == 2 + width and isinstance(row[0], str) and _whole(row[1:]):
                self.tenants[row[0], row[1]] = Amounts(*row[2:])
        for row in _rows(saved.get("leases")):
            good = len(row) == 3 and all(
                isinstance(part, list) and len(part) == width and _whole(part) for part in row[1:]
            )
            if good and row[0] in running:
                self._leases.restore(row[0], tuple(row[1]), tuple(row[2]))


def add(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the sums, element by element, below 2^63."""
    return tuple(min(a + b, _MAX_SUM) for a, b in zip(one, other, strict=True))


def _rows(value: object) -> list[list[Any]]:
    return [row for row in value if isinstance(row, list)] if isinstance(value, list) else []


def _whole(values: list[Any]) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)
