"""Leases that an earlier token loop let run.  No lease is granted anything before they drained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.tokens.fence import Fence
from rgpu_server.tokens.page import Phase

if TYPE_CHECKING:
    from rgpu_server.tokens.fence import Tell
    from rgpu_server.tokens.seats import Seat


class Draining:
    """True while such a lease is left."""

    def __init__(self, max_kernel_ns: int, tell: Tell) -> None:
        self._max_kernel_ns = max_kernel_ns
        self._tell = tell
        self._fences: dict[Seat, Fence] = {}

    def __bool__(self) -> bool:
        return bool(self._fences)

    def __contains__(self, seat: Seat) -> bool:
        return seat in self._fences

    def add(self, seat: Seat) -> None:
        """The lease's page says that it may run."""
        self._fences[seat] = Fence(seat, self._max_kernel_ns, self._tell, patient=True)

    def drop(self, seat: Seat) -> bool:
        """The lease is gone.  Returns True if it was the last one to wait for."""
        return self._fences.pop(seat, None) is not None and not self._fences

    def look(self, seat: Seat) -> bool:
        """Looks whether the lease has drained.  Returns True if it was the last one to wait for."""
        fence = self._fences.get(seat)
        if fence is None or not fence.drained():
            return False
        del self._fences[seat]
        seat.say(Phase.NONE)
        return not self._fences

    def look_at_all(self) -> None:
        """Looks at every lease."""
        for seat in list(self._fences):
            self.look(seat)

    def press(self, now: int) -> bool:
        """Ends what does not drain by itself.  Returns True if the last lease has drained now."""
        done = False
        for seat, fence in list(self._fences.items()):
            fence.press(now)
            done = self.look(seat) or done
        return done

    def slip(self, by: int) -> None:
        """As `DeviceTokens.slip`."""
        for fence in self._fences.values():
            fence.slip(by)
