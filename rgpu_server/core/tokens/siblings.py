"""The waiting leases of one payer, in the order in which the payer lets them run."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

# (tag, serial, version, unit).  `ReadyQueues` explains serial and version.
_Entry = tuple[int, int, int, Any]
# More entries than this are moved together: sorting them out once costs less.
_FEW = 4


class Siblings:
    """Two heaps: leases that are due (`Unit.due`), and leases whose tag is ahead of the device
    clock.  Due leases go first; within a heap the least tag does.

    later: the second heap.  Its first entry says when `become_due` is worth a call.
    count: how many leases wait.
    """

    __slots__ = ("_due", "count", "later")

    def __init__(self) -> None:
        self._due: list[_Entry] = []
        self.later: list[_Entry] = []
        self.count = 0

    def first(self) -> Any:
        """The lease that goes first.  At least one must wait."""
        for heap in (self._due, self.later):
            while heap:
                entry = heap[0]
                if entry[2] == entry[3].version:
                    return entry[3]
                heappop(heap)
        raise LookupError("no lease of this payer waits")

    def first_due(self) -> Any:
        """The due lease that goes first, or None."""
        heap = self._due
        while heap:
            entry = heap[0]
            if entry[2] == entry[3].version:
                return entry[3]
            heappop(heap)
        return None

    def push(self, unit: Any) -> None:
        """Enters a unit under its present tag and version."""
        heap = self._due if unit.due else self.later
        heappush(heap, (unit.tag, unit.serial, unit.version, unit))
        if len(heap) > 2 * self.count + 16:
            heap[:] = [entry for entry in heap if entry[2] == entry[3].version]
            heapify(heap)

    def become_due(self, device_ns: int) -> list[Any]:
        """Moves the leases that the device clock has reached to the due leases, and returns them.

        Leases with equal requests often become due together.
        """
        heap = self.later
        came: list[Any] = []
        while heap and heap[0][0] <= device_ns:
            if len(came) == _FEW:
                return came + self._become_due_together(device_ns)
            entry = heappop(heap)
            if entry[2] == entry[3].version:
                heappush(self._due, entry)
                came.append(entry[3])
        return came

    def _become_due_together(self, device_ns: int) -> list[Any]:
        """As `become_due`, by one look at each entry instead of many heap operations."""
        heap = self.later
        reached = [e for e in heap if e[0] <= device_ns and e[2] == e[3].version]
        heap[:] = [entry for entry in heap if entry[0] > device_ns]
        heapify(heap)
        self._due += reached
        heapify(self._due)
        return [entry[3] for entry in reached]
