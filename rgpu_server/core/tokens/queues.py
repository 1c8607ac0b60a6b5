"""Who waits, in three orders: payers by what they are owed, leases by surplus, and leases by when
their caps let go.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from rgpu_server.core.tokens.units import State

if TYPE_CHECKING:
    from rgpu_server.core.tokens.debt import Payer
    from rgpu_server.core.tokens.units import Unit

# An entry ends with (serial, version, unit or payer): ties go to the least recently served, and no
# two entries of a unit have the same version, so units are never compared.
_Entry = tuple[Any, ...]


class ReadyQueues:
    """Entries are dropped lazily: one is stale when its unit has another version by now.

    A payer's key that has become later is found when the payer is first; one that may have become
    earlier is entered anew (`offer`).
    """

    __slots__ = ("_lent", "_limit", "_owed", "_throttled", "ready")

    def __init__(self) -> None:
        self._owed: list[_Entry] = []
        self._lent: list[_Entry] = []
        self._throttled: list[_Entry] = []
        self._limit = 64
        self.ready = 0

    def push_ready(self, unit: Unit) -> None:
        """Enters a unit whose version has just been raised."""
        share, payer = unit.share, unit.payer
        payer.admit(unit)
        self.offer(payer)
        end = (unit.serial, unit.version, unit)
        heappush(self._lent, (not unit.elastic, -share.priority, unit.lent_tag, *end))
        self.ready += 1
        self._shrink(self._lent)

    def offer(self, payer: Payer) -> None:
        """Enters a payer under the key that it has now, if a lease of it waits."""
        payer.version += 1
        if payer.waiting.count:
            key = payer.refresh()
            heappush(self._owed, (key, payer.serial, payer.version, payer))
            self._shrink(self._owed)

    def push_throttled(self, unit: Unit, until: int) -> None:
        heappush(self._throttled, (until, unit.serial, unit.version, unit))
        self._shrink(self._throttled)

    def first(self) -> Payer | None:
        """The payer with the least key among those with a ready unit."""
        while self._owed:
            payer: Payer | None = _top(self._owed)
            if payer is None or payer.refresh() <= self._owed[0][0]:
                return payer
            self.offer(payer)
        return None

    def lent(self) -> Unit | None:
        """The ready unit that surplus goes to: elastic, then priority, then the least lent tag."""
        unit: Unit | None = _top(self._lent)
        return unit

    def throttled_until(self) -> int | None:
        """When the next cap lets go."""
        unit = _top(self._throttled)
        return None if unit is None else int(self._throttled[0][0])

    def pop_due(self, now: int) -> Unit | None:
        """Takes out a throttled unit whose time has come."""
        heap = self._throttled
        unit: Unit | None = _top(heap)
        if unit is None or heap[0][0] > now:
            return None
        heappop(heap)
        return unit

    def leave(self, unit: Unit) -> None:
        """Makes the entries of a unit stale, wherever they are; it is not due any more."""
        unit.payer.uncount(unit)
        self.take(unit)
        self.offer(unit.payer)

    def take(self, unit: Unit) -> None:
        """The same for one that gets the device: it stays due.  `offer` its payer afterwards."""
        unit.version += 1
        if unit.state is State.READY:
            self.ready -= 1
            unit.payer.waiting.count -= 1

    def resize(self, units: int) -> None:
        """Takes the number of leases, which bounds the length of the heaps."""
        self._limit = 2 * units + 64
        for heap in (self._owed, self._lent, self._throttled):
            self._shrink(heap)

    def _shrink(self, heap: list[_Entry]) -> None:
        """Rebuilds a heap that holds mostly stale entries."""
        if len(heap) > self._limit:
            heap[:] = [entry for entry in heap if entry[-2] == entry[-1].version]
            heapify(heap)

    def __len__(self) -> int:
        return len(self._owed) + len(self._lent) + len(self._throttled)


def _top(heap: list[_Entry]) -> Any:
    while heap:
        entry = heap[0]
        if entry[-2] == entry[-1].version:
            return entry[-1]
        heappop(heap)
    return None
