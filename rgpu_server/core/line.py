"""The line of claims that wait for room: first come, first served, on each device.

A claim is served when it fits and no earlier claim waits for the same devices. The room that the
first claim of a device misses is kept for it: new leases that do not wait in line do not take that
room, unless they are within their tenant's own quota (`bars`). The room is kept for a minute
(`quota.claim_seconds`), and for each tenant once in ten minutes. After that the claim keeps its
place, and bars only its own tenant. A claim that is short of its own tenant's quota also bars only
its own tenant.

Claims are tried again only when their answer may have changed. The caller says when that is so, and
the line does when a claim that barred others has left (`due`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.units import format_seconds
from rgpu_server.core.bars import WAIT_HINT, Turns
from rgpu_server.core.model import Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_server.core.bars import Bars
    from rgpu_server.core.events import ClaimRequested
    from rgpu_server.core.model import Quota
    from rgpu_server.core.policy import Policy

# Reasons of a refusal that can go away when others make room.
WORTH_WAITING = frozenset(
    {
        Code.NO_MEMORY,
        Code.NO_SHARE,
        Code.LENT,
        Code.TENANT_LIMIT,
        Code.SERVER_FULL,
        Code.LEASE_FULL,
        Code.IN_LINE,
    }
)
_NO_ROOM = (Code.NO_MEMORY, Code.NO_SHARE, Code.LENT)


class Waiter(Struct):
    """A claim in line.

    devices: those on which it could be granted. quota: the ceilings that it asks for. since, until:
    seconds of the caller's clock. why: the last refusal. place: the place that it was told last; 0:
    none yet. blocks: it barred other claims when it was tried last.
    """

    event: ClaimRequested
    devices: frozenset[int]
    quota: Quota
    since: float
    until: float
    why: Refusal
    place: int = 0
    blocks: bool = False


class Line:
    """All claims in line, first come first."""

    def __init__(self, policy: Policy, bars: Bars) -> None:
        self._bars = bars
        self._waiters: dict[int, Waiter] = {}
        self._turns = Turns(policy.claim_seconds)
        # When the next claim stops barring other tenants; None: no claim bars them.
        self._turn_ends: float | None = None
        # Tenants whose first claim is short of their own quota.
        self._short: set[str] = set()
        # _unblocked: a claim that barred others has left. _moved: places have changed.
        self._unblocked = self._moved = False

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(tuple(self._waiters.values()))

    def join(self, waiter: Waiter, now: float) -> None:
        """Adds a claim at the end of the line."""
        self._waiters[waiter.event.claim] = waiter
        self._moved = True
        if waiter.event.tenant not in self._short:
            self._stand(waiter, now)

    def leave(self, claim: int) -> Waiter | None:
        """Removes a claim from the line and returns it; None if it was not in line."""
        waiter = self._waiters.pop(claim, None)
        if waiter is not None:
            self._unblocked |= waiter.blocks
            self._moved = True
        return waiter

    def due(self, now: float) -> bool:
        """True if claims must be tried again because the line itself has changed."""
        return self._unblocked or (self._turn_ends is not None and self._turn_ends <= now)

    @property
    def wants_place(self) -> bool:
        """True if a claim waits for a free place for a session."""
        return any(waiter.why.code is Code.SERVER_FULL for waiter in self._waiters.values())

    def next_deadline(self) -> float | None:
        """Returns the next time at which a claim's wait ends, or a claim stops barring other
        tenants.
        """
        times = [waiter.until for waiter in self._waiters.values()]
        if times and self._turn_ends is not None:
            times.append(self._turn_ends)
        return min(times, default=None)

    def serve(
        self, try_one: Callable[[ClaimRequested], Refusal | None], now: float
    ) -> list[Waiter]:
        """Tries the claims in order and sets the bars anew.

        `try_one` returns None for a claim that was granted. Returns the claims that were refused
        for good and have left the line; their `why` is the refusal.
        """
        self.forget_bars()
        for waiter in self:
            waiter.blocks = False
            if waiter.event.tenant in self._short:
                continue
            refusal = try_one(waiter.event)
            if refusal is None:
                self.leave(waiter.event.claim)
                continue
            waiter.why = for_who_waits(refusal)
            self._stand(waiter, now)
            if refusal.code is Code.SERVER_FULL:
                break
        hopeless = [waiter for waiter in self if waiter.why.code not in WORTH_WAITING]
        for waiter in hopeless:
            self.leave(waiter.event.claim)
        self._unblocked = False
        return hopeless

    def forget_bars(self) -> None:
        """Removes all bars until claims are tried again."""
        self._bars.clear()
        self._turn_ends = None
        self._short.clear()
        self._unblocked = False

    def _stand(self, waiter: Waiter, now: float) -> None:
        """Bars later claims after a refusal, as far as the reason of the refusal demands."""
        code, tenant = waiter.why.code, waiter.event.tenant
        waiter.blocks = code is not Code.IN_LINE
        if code in _NO_ROOM:
            ends = self._turns.ends_at(tenant, now)
            memory, everybody = code is not Code.NO_SHARE, ends is not None
            self._bars.add(waiter.devices, memory=memory, tenant=tenant, everybody=everybody)
            times = [time for time in (self._turn_ends, ends) if time is not None]
            self._turn_ends = min(times, default=None)
        elif code is Code.TENANT_LIMIT:
            self._short.add(tenant)

    def late(self, now: float) -> list[Waiter]:
        """Removes and returns the claims whose wait is over."""
        late = [waiter for waiter in self if waiter.until <= now]
        for waiter in late:
            self.leave(waiter.event.claim)
            sentence = f"{waiter.why.sentence} (waited for {format_seconds(now - waiter.since)})"
            waiter.why = Refusal(waiter.why.code, sentence)
        return late

    def moved(self) -> list[tuple[Waiter, int]]:
        """Returns the claims whose place has changed since they were told, each with the number of
        claims in the same line.
        """
        if not self._moved:
            return []
        self._moved = False
        every, before, moved = self.lengths(), Lengths(), []
        for waiter in self._waiters.values():
            place = 1 + before.of(waiter)
            before.add(waiter)
            if place != waiter.place:
                waiter.place = place
                moved.append((waiter, every.of(waiter)))
        return moved

    def lengths(self) -> Lengths:
        """Returns how many claims wait in each line."""
        lengths = Lengths()
        for waiter in self._waiters.values():
            lengths.add(waiter)
        return lengths


class Lengths:
    """Counts how many claims wait in the same line as a claim.

    Two claims are in the same line if both may have the same device, or if both are of one tenant.
    There are few different sets of devices, so the counts are kept by set.
    """

    def __init__(self) -> None:
        self._all = Counter[frozenset[int]]()
        self._own: defaultdict[str, Counter[frozenset[int]]] = defaultdict(Counter)

    def add(self, waiter: Waiter) -> None:
        """Counts a claim."""
        self._all[waiter.devices] += 1
        self._own[waiter.event.tenant][waiter.devices] += 1

    def of(self, waiter: Waiter) -> int:
        """Returns how many of the counted claims wait in the line of this claim."""
        own = self._own[waiter.event.tenant].items()
        here = sum(n for devices, n in self._all.items() if devices & waiter.devices)
        return here + sum(n for devices, n in own if not devices & waiter.devices)


def for_who_waits(refusal: Refusal) -> Refusal:
    """Returns a refusal without the advice to wait."""
    return Refusal(refusal.code, refusal.sentence.removesuffix(WAIT_HINT))
