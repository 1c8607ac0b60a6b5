"""Which waiting lease gets device time that nobody is owed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from rgpu_server.core.tokens.units import State

if TYPE_CHECKING:
    from rgpu_server.core.tokens.share import Share
    from rgpu_server.core.tokens.units import Unit

# (not elastic, -priority, lent tag, serial, version, unit).  No two entries of a unit have the same
# version, so units are never compared.
_Entry = tuple[bool, int, int, int, int, Any]


class SurplusQueue:
    """Elastic leases first, then the higher priority, then the least lent tag.

    A lease keeps its entry while it does not wait, because it usually returns with a later place.
    So an entry is the earliest place that its lease may have, and `first` puts the entry right when
    it comes first.  A lease whose place has become earlier gets a new entry; the old one is stale
    (`Unit.lent_entry`).
    """

    __slots__ = ("_heap", "_levels", "_limit")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._limit = 64
        # Priority -> the lent tag that surplus of this priority has reached.
        self._levels: dict[int, int] = {}

    def level(self, share: Share) -> int:
        """The lent tag of a lease that begins to wait now."""
        return self._levels.get(share.priority, 0)

    def raise_level(self, unit: Unit) -> None:
        """Surplus has reached the unit's lent tag, because it is lent to this unit."""
        priority = unit.share.priority
        if unit.lent_tag > self._levels.get(priority, 0):
            self._levels[priority] = unit.lent_tag

    def push(self, unit: Unit) -> None:
        """Enters a ready unit."""
        entry, old = _entry_of(unit), unit.lent_entry
        if old is None or entry < old:
            unit.lent_entry = entry
            heappush(self._heap, entry)
            if len(self._heap) > self._limit:
                self._rebuild()

    def first(self) -> Unit | None:
        """The ready unit that surplus goes to."""
        heap = self._heap
        while heap:
            entry = heap[0]
            unit: Unit = entry[5]
            if unit.lent_entry is not entry:
                heappop(heap)
            elif unit.state is not State.READY:
                unit.lent_entry = None
                heappop(heap)
            else:
                present = _entry_of(unit)
                if present[:4] == entry[:4]:
                    return unit
                unit.lent_entry = present
                heapreplace(heap, present)
        return None

    def resize(self, units: int) -> None:
        """Takes the number of leases, which bounds the length of the heap."""
        self._limit = 2 * units + 64
        if len(self._heap) > self._limit:
            self._rebuild()

    def _rebuild(self) -> None:
        """Keeps the entries of units that wait."""
        kept = []
        for entry in self._heap:
            unit: Unit = entry[5]
            if unit.lent_entry is entry:
                if unit.state is State.READY:
                    kept.append(entry)
                else:
                    unit.lent_entry = None
        self._heap[:] = kept
        heapify(self._heap)

    def __len__(self) -> int:
        """Entries, with stale ones."""
        return len(self._heap)


def _entry_of(unit: Unit) -> _Entry:
    share = unit.share
    return (not unit.elastic, -share.priority, unit.lent_tag, unit.serial, unit.version, unit)
