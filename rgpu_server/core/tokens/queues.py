"""Who waits for the token, in three orders."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from rgpu_server.core.tokens.surplus import SurplusQueue
from rgpu_server.core.tokens.units import State

if TYPE_CHECKING:
    from rgpu_server.core.tokens.debt import Payer
    from rgpu_server.core.tokens.units import Unit

# (key, serial, version, unit or payer).  Of equal keys the one that was served least recently goes
# first.  No two entries of a unit have the same version, so units are never compared.
_Entry = tuple[int, int, int, Any]


class ReadyQueues:
    """Payers by what they are owed, leases by what surplus they had (`surplus`), and throttled
    leases by when their caps let them run.

    An entry is stale when its unit or payer has another version by now.  A stale entry is dropped
    when it comes first, or when a heap holds mostly stale entries.

    A payer's key may become later without notice: `first` corrects it when the payer comes first.
    When a payer's key may have become earlier, the caller says so (`offer`).

    ready: how many leases wait in `push_ready`'s queues.
    """

    __slots__ = ("_owed", "_owed_limit", "_throttled", "_throttled_limit", "ready", "surplus")

    def __init__(self) -> None:
        self._owed: list[_Entry] = []
        self._throttled: list[_Entry] = []
        self._owed_limit = self._throttled_limit = 64
        self.surplus = SurplusQueue()
        self.ready = 0

    def push_ready(self, unit: Unit) -> None:
        """Enters a unit that `take` has taken out."""
        self.ready += 1
        unit.payer.admit(unit)
        self.offer(unit.payer)
        self.surplus.push(unit)

    def retag(self, unit: Unit) -> None:
        """Enters a ready unit anew under its present tag.  The caller must `offer` its payer."""
        unit.version += 1
        unit.payer.waiting.count -= 1
        unit.payer.admit(unit)

    def offer(self, payer: Payer) -> None:
        """Enters a payer under its present key if one of its leases waits."""
        payer.version += 1
        if payer.waiting.count:
            heap = self._owed
            heappush(heap, (payer.refresh(), payer.serial, payer.version, payer))
            if len(heap) > self._owed_limit:
                _rebuild(heap)

    def push_throttled(self, unit: Unit, until: int) -> None:
        """Enters a unit that `remove` has taken out."""
        heappush(self._throttled, (until, unit.serial, unit.version, unit))
        if len(self._throttled) > self._throttled_limit:
            _rebuild(self._throttled)

    def first(self) -> Payer | None:
        """The payer with the least key among those with a ready unit.  Its `opens` and `first` are
        those of now.
        """
        heap = self._owed
        while heap:
            key, _, version, payer = heap[0]
            if version != payer.version:
                heappop(heap)
                continue
            now = payer.refresh()
            if now <= key:
                found: Payer = payer
                return found
            payer.version += 1
            heapreplace(heap, (now, payer.serial, payer.version, payer))
        return None

    def throttled_until(self) -> int | None:
        """When the next throttled unit may run."""
        heap = self._throttled
        while heap:
            entry = heap[0]
            if entry[2] == entry[3].version:
                return entry[0]
            heappop(heap)
        return None

    def pop_resumed(self, now: int) -> Unit | None:
        """Takes out a throttled unit that may run by now."""
        until = self.throttled_until()
        if until is None or until > now:
            return None
        unit: Unit = heappop(self._throttled)[3]
        return unit

    def remove(self, unit: Unit) -> None:
        """Takes a unit out of all queues; it is not due any more."""
        unit.payer.uncount(unit)
        self.take(unit)
        self.offer(unit.payer)

    def take(self, unit: Unit) -> None:
        """Takes a unit out of all queues; it stays due.  So the caller must enter the unit again,
        or give the token to it and `offer` its payer.
        """
        unit.version += 1
        if unit.state is State.READY:
            self.ready -= 1
            unit.payer.waiting.count -= 1

    def resize(self, units: int, payers: int) -> None:
        """Takes the number of leases and payers, which bounds the length of the heaps."""
        self._owed_limit = 2 * payers + 64
        self._throttled_limit = 2 * units + 64
        self.surplus.resize(units)
        _rebuild(self._owed)
        _rebuild(self._throttled)

    def __len__(self) -> int:
        """Entries in the three heaps, with stale ones."""
        return len(self._owed) + len(self._throttled) + len(self.surplus)


def _rebuild(heap: list[_Entry]) -> None:
    """Drops the stale entries."""
    heap[:] = [entry for entry in heap if entry[2] == entry[3].version]
    heapify(heap)
