"""The line of claims that wait for room: first come, first served, on each device.

A claim is served when it fits and no earlier claim waits for the same devices.  What the first
claim of a device misses there is kept for it: new leases that do not wait in line do not take it
(`bars`).  That holds for a minute (`quota.claim_seconds`), and for a tenant once in ten minutes;
then the claim keeps its place, and keeps back its own tenant only.  So does a claim that is short
of its own tenant's quota.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.units import format_seconds
from rgpu_server.core.bars import WAIT_HINT, Turns
from rgpu_server.core.model import Code, Refusal, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_server.core.bars import Bars
    from rgpu_server.core.events import ClaimRequested
    from rgpu_server.core.model import Policy

# What may be different later, because somebody else makes room.
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


@dataclass(slots=True)
class Waiter:
    """A claim in line.

    devices: where it could be.  since, until: seconds of the caller's clock.  place: as it was told
    last, 0: not yet.  why: the last refusal.
    """

    event: ClaimRequested
    devices: frozenset[int]
    since: float
    until: float
    why: Refusal
    place: int = 0


class Line:
    """All waiting claims, first come first."""

    def __init__(self, policy: Policy, bars: Bars) -> None:
        self._policy = policy
        self._bars = bars
        self._waiters: dict[int, Waiter] = {}
        self._turns = Turns(policy.claim_seconds)
        # When a claim stops barring other tenants; None: none does.
        self._turn_ends: float | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(tuple(self._waiters.values()))

    def join(self, waiter: Waiter) -> None:
        """The claim waits from now on; RefusedError if too many do."""
        self._check_room(waiter.event)
        self._waiters[waiter.event.claim] = waiter

    def leave(self, claim: int) -> bool:
        """The claim waits no longer.  False: it did not."""
        return self._waiters.pop(claim, None) is not None

    def next_deadline(self) -> float | None:
        """Returns when a claim has waited for as long as it wanted to, or bars others no longer."""
        times = [waiter.until for waiter in self._waiters.values()]
        if times and self._turn_ends is not None:
            times.append(self._turn_ends)
        return min(times, default=None)

    def serve(
        self, try_one: Callable[[ClaimRequested], Refusal | None], now: float
    ) -> list[Waiter]:
        """Tries the claims whose turn it is and sets the bars anew.  `try_one` returns None for a
        claim that was granted.  Returns those that need not wait on: a refusal that waiting cannot
        change is in `why`.
        """
        self._bars.clear()
        self._turn_ends = None
        tenants: set[str] = set()
        for waiter in self:
            tenant = waiter.event.tenant
            if tenant in tenants:
                continue
            refusal = try_one(waiter.event)
            if refusal is None:
                self.leave(waiter.event.claim)
                continue
            waiter.why = for_who_waits(refusal)
            if refusal.code in (Code.NO_MEMORY, Code.NO_SHARE, Code.LENT):
                self._bar(waiter, now, memory=refusal.code is not Code.NO_SHARE)
            elif refusal.code is Code.TENANT_LIMIT:
                tenants.add(tenant)
            elif refusal.code is Code.SERVER_FULL:
                break
        hopeless = [waiter for waiter in self if waiter.why.code not in WORTH_WAITING]
        for waiter in hopeless:
            self.leave(waiter.event.claim)
        return hopeless

    def _bar(self, waiter: Waiter, now: float, *, memory: bool) -> None:
        """Keeps what the claim misses from all other leases, or from those of its own tenant."""
        tenant = waiter.event.tenant
        ends = self._turns.ends_at(tenant, now)
        if ends is None:
            self._bars.add(waiter.devices, memory=memory, tenant=tenant)
            return
        self._bars.add(waiter.devices, memory=memory)
        self._turn_ends = ends if self._turn_ends is None else min(self._turn_ends, ends)

    def late(self, now: float) -> list[Waiter]:
        """Takes out the claims that have waited for as long as they wanted to."""
        late = [waiter for waiter in self if waiter.until <= now]
        for waiter in late:
            self.leave(waiter.event.claim)
            sentence = f"{waiter.why.sentence} (waited for {format_seconds(now - waiter.since)})"
            waiter.why = Refusal(waiter.why.code, sentence)
        return late

    def moved(self) -> list[Waiter]:
        """Returns the claims whose place has changed since they were told."""
        waiters, moved = list(self), []
        for i, waiter in enumerate(waiters):
            place = 1 + sum(_before(earlier, waiter) for earlier in waiters[:i])
            if place != waiter.place:
                waiter.place = place
                moved.append(waiter)
        return moved

    def behind(self, waiter: Waiter) -> int:
        """Returns how many wait in the same line, this one included."""
        return 1 + sum(_before(other, waiter) for other in self if other is not waiter)

    def _check_room(self, event: ClaimRequested) -> None:
        every, tenant, address = self._policy.max_waiting
        events = [waiter.event for waiter in self._waiters.values()]
        for who, there, most in (
            ("", len(events), every),
            (
                f" of tenant {event.tenant!r}",
                sum(e.tenant == event.tenant for e in events),
                tenant,
            ),
            (" from this address", sum(e.address == event.address for e in events), address),
        ):
            if there >= most:
                raise RefusedError(
                    Code.SERVER_FULL,
                    f"{there} claims{who} wait in line for room already, as many as may; try again "
                    "when one has been served",
                )


def for_who_waits(refusal: Refusal) -> Refusal:
    """Returns a refusal without the advice to wait."""
    return Refusal(refusal.code, refusal.sentence.removesuffix(WAIT_HINT))


def _before(earlier: Waiter, waiter: Waiter) -> bool:
    """True if both wait in one line: for a device that both may have, or for their tenant."""
    return bool(earlier.devices & waiter.devices) or earlier.event.tenant == waiter.event.tenant
