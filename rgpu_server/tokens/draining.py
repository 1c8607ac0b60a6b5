"""Leases that an earlier token loop granted the device.  Their work must end before a new grant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.tokens.fence import Fence
from rgpu_server.tokens.page import Phase

if TYPE_CHECKING:
    from rgpu_server.tokens.fence import Tell
    from rgpu_server.tokens.seats import Seat


class Draining:
    """The leases whose work has not ended yet; false when there is none."""

    def __init__(self, max_kernel_ns: int, tell: Tell) -> None:
        self._max_kernel_ns = max_kernel_ns
        self._tell = tell
        self._fences: dict[Seat, Fence] = {}

    def __bool__(self) -> bool:
        return bool(self._fences)

    def __contains__(self, seat: Seat) -> bool:
        return seat in self._fences

    def add(self, seat: Seat) -> None:
        """Adds a lease whose page holds a grant of the earlier loop."""
        self._fences[seat] = Fence(seat, self._max_kernel_ns, self._tell, patient=True)

    def drop(self, seat: Seat) -> bool:
        """Removes a lease that has ended.  Returns True if it was the last lease here."""
        return self._fences.pop(seat, None) is not None and not self._fences

    def look(self, seat: Seat) -> bool:
        """Removes the lease if its work has ended.  Returns True if it was the last lease here."""
        fence = self._fences.get(seat)
        if fence is None or not fence.drained():
            return False
        del self._fences[seat]
        seat.say(Phase.NONE)
        return not self._fences

    def look_at_all(self) -> None:
        """Calls `look` for every lease."""
        for seat in list(self._fences):
            self.look(seat)

    def press(self, now: int) -> bool:
        """Ends workers whose time is over (`Fence`).  Returns True if none is left after that."""
        done = False
        for seat, fence in list(self._fences.items()):
            fence.press(now)
            done = self.look(seat) or done
        return done

    def slip(self, by: int) -> None:
        """As `DeviceTokens.slip`."""
        for fence in self._fences.values():
            fence.slip(by)
