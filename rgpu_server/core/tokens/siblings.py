"""The waiting leases of one payer, in the order in which it lets them go."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

# (tag, serial, version, unit), as in queues.py.
_Entry = tuple[int, int, int, Any]


class Siblings:
    """Due leases first, those furthest behind their own requests before the others."""

    __slots__ = ("_due", "count", "later")

    def __init__(self) -> None:
        self._due: list[_Entry] = []
        self.later: list[_Entry] = []
        self.count = 0

    @property
    def due(self) -> Any:
        """The due lease that goes first, or None."""
        return _top(self._due)

    def first(self) -> Any:
        """The one that goes first, or will when it is due; there is one."""
        unit = self.due or _top(self.later)
        if unit is None:
            raise LookupError("no lease of this payer waits")
        return unit

    def push_due(self, unit: Any) -> None:
        self._push(self._due, (unit.tag, unit.serial, unit.version, unit))

    def push_later(self, unit: Any) -> None:
        self._push(self.later, (unit.tag, unit.serial, unit.version, unit))

    def pop_due(self, device_ns: int) -> Any:
        """Takes out a lease that is due by now and was not, or returns None."""
        unit = _top(self.later)
        if unit is None or self.later[0][0] > device_ns:
            return None
        heappop(self.later)
        return unit

    def _push(self, heap: list[_Entry], entry: _Entry) -> None:
        heappush(heap, entry)
        if len(heap) > 2 * self.count + 16:
            heap[:] = [entry for entry in heap if entry[2] == entry[3].version]
            heapify(heap)

    def __len__(self) -> int:
        """Entries, stale ones too."""
        return len(self._due) + len(self.later)


def _top(heap: list[_Entry]) -> Any:
    while heap:
        entry = heap[0]
        if entry[2] == entry[3].version:
            return entry[3]
        heappop(heap)
    return None
