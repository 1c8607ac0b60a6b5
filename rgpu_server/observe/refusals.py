"""Bounds how many lines are written of what costs a caller nothing: refusals, and changes that it
repeats.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from rgpu_server.core.failures import Failures

if TYPE_CHECKING:
    from collections.abc import Hashable

# More than a server has leases, times the changes of each.
_REMEMBERED = 16_384


class Refusals:
    """Counts the refusals of each caller, and says which are written, so that nobody fills the disk
    with them. The next line that is written says how many were left out.
    """

    def __init__(self) -> None:
        self._written = Failures(burst=100, per_minute=60.0)
        self._left_out = 0

    def left_out(self, whose: str, now: float) -> int | None:
        """Notes a refusal. Returns how many were left out before it; None: it is left out, too."""
        if not self._written.answered(whose, now):
            self._left_out += 1
            return None
        return self.told()

    def told(self) -> int:
        """Returns how many were left out, for a line that says so."""
        before, self._left_out = self._left_out, 0
        return before


class Repeats:
    """The same for changes that a caller can make again and again. The first of each is written,
    whatever the caller did before: no loop hides what else it does.
    """

    def __init__(self) -> None:
        self._again = Refusals()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def left_out(self, whose: str, change: Hashable, now: float) -> int | None:
        """Notes a change. Returns the same as `Refusals.left_out`."""
        known = (whose, change)
        if known in self._seen:
            self._seen.move_to_end(known)
            return self._again.left_out(whose, now)
        self._seen[known] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return self._again.told()
