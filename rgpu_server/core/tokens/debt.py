"""What the leases of one payer (a tenant) owe together for time beyond their requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rgpu_server.core.tokens.siblings import Siblings

if TYPE_CHECKING:
    from rgpu_server.core.tokens.clock import Clocks


class Claimant(Protocol):
    """A lease, as far as its payer looks at it (`Unit`)."""

    tag: int
    rate_ppb: int
    due: bool


@dataclass(slots=True, eq=False)
class Payer:
    """One payer on one device.  Its balance is what its due leases are owed minus its debt.  Its
    leases are served from their requests only while the balance is not negative.

    leases: how many of its leases are on the device.
    rate_ppb: the sum of their rates; the last one stays when the last lease leaves, so that a debt
    is worked off meanwhile.
    debt: device time x PPB that a lease had beyond its request and that is not worked off yet.
    paid_at: the device clock up to which the debt has been worked off.
    spent_until: up to here on the device clock the requests of leases that were not due went into
    the debt, so none of them earns sleep credit for that time as well.
    due_rate, due_sum: the sums of rate and of rate x tag over its due leases.  A lease is due when
    it waits for the device or holds it and its own tag is not ahead of the device clock.
    opens: the key when it was last looked at.
    version: queue entries with another one are stale.  serial: order of last service.
    """

    name: str
    clocks: Clocks
    serial: int = 0
    leases: int = 0
    rate_ppb: int = 1
    debt: int = 0
    paid_at: int = 0
    spent_until: int = 0
    due_rate: int = 0
    due_sum: int = 0
    opens: int = 0
    version: int = 0
    waiting: Siblings = field(default_factory=Siblings)

    def settle(self) -> None:
        """Works the debt off up to now.  The requests of leases that are not due pay for it; those
        of due leases pay by what they are owed, which the balance counts.
        """
        if not self.debt:
            return
        now, rate = self.clocks.device_ns, self.rate_ppb - self.due_rate
        if now > self.paid_at:
            paid = min(self.debt, rate * (now - self.paid_at))
            self.debt -= paid
            self.spent_until = now if self.debt else self.paid_at + paid // rate
            self.paid_at = now

    def owes(self, device_ns: int) -> bool:
        """Whether there is a debt that counts on the device clock device_ns."""
        return self.debt > (self.rate_ppb - self.due_rate) * (device_ns - self.paid_at)

    def count(self, unit: Claimant) -> None:
        """The unit is due from now on."""
        if self.debt:
            self.settle()
        unit.due = True
        self.due_rate += unit.rate_ppb
        self.due_sum += unit.rate_ppb * unit.tag

    def uncount(self, unit: Claimant) -> None:
        """The unit is not due any more."""
        if unit.due:
            if self.debt:
                self.settle()
            unit.due = False
            self.due_rate -= unit.rate_ppb
            self.due_sum -= unit.rate_ppb * unit.tag

    def forgo(self, unit: Claimant, tag: int) -> None:
        """A due unit gives up what it is owed up to `tag`, at most the device clock: that pays the
        debt as far as there is one, and the rest is nobody's.
        """
        if not unit.due:
            unit.tag = max(unit.tag, tag)
        elif tag > unit.tag:
            self.settle()
            given = unit.rate_ppb * (tag - unit.tag)
            self.debt -= min(self.debt, given)
            unit.tag = tag
            self.due_sum += given

    def serve_lent(self, unit: Claimant, tag: int) -> None:
        """Moves a unit's tag for service from surplus that the payer passed on to it: that takes
        nothing from another payer, so the balance stays.
        """
        self.forgo(unit, min(tag, self.clocks.device_ns))
        if tag > unit.tag:
            self.uncount(unit)
            unit.tag = tag

    def sleep(self, unit: Claimant) -> None:
        """The unit does not wait any more: of what it is owed only what pays the debt is used."""
        if unit.due:
            self.settle()
            owed = self.clocks.device_ns - unit.tag
            self.forgo(unit, unit.tag + min(owed, -(-self.debt // unit.rate_ppb)))
            self.uncount(unit)

    def retag(self, unit: Claimant, tag: int) -> None:
        """Moves a unit's tag for service.  The part ahead of the device clock becomes a debt of
        the payer.
        """
        now, before = self.clocks.device_ns, unit.tag
        if tag <= before:
            return
        if tag <= now:
            if unit.due:
                self.due_sum += unit.rate_ppb * (tag - before)
        else:
            self.uncount(unit)
            if self.debt:
                self.settle()
            else:
                self.paid_at = now
            self.debt += (tag - max(before, now)) * unit.rate_ppb
        unit.tag = tag

    def free_at(self) -> int:
        """The device clock at which the balance of one with a debt is no longer negative."""
        idle_rate = self.rate_ppb - self.due_rate
        return (self.due_sum + self.debt + idle_rate * self.paid_at) // self.rate_ppb

    def claim(self, unit: Claimant) -> int:
        """The device clock from which the unit may be served from its request."""
        return max(unit.tag, self.free_at()) if self.debt else unit.tag

    def key(self) -> int:
        """Its place among payers: the mean tag of its due leases, later while it has a debt; not
        before one of its waiting leases may be served.
        """
        if self.waiting.due is None:
            self.opens = self.claim(self.waiting.first())
        elif self.debt:
            self.opens = self.free_at()
        else:
            self.opens = self.due_sum // self.due_rate
        return self.opens

    def place(self, unit: Claimant) -> int:
        """The same for a unit that does not wait in it: its holder or a newcomer."""
        if unit.due and not self.debt:
            return self.due_sum // self.due_rate
        return self.claim(unit)

    def refresh(self) -> int:
        """Counts the waiting leases that have become due, and returns the key."""
        waiting, now = self.waiting, self.clocks.device_ns
        while waiting.later and (unit := waiting.pop_due(now)) is not None:
            self.count(unit)
            waiting.push_due(unit)
        return self.key()

    def admit(self, unit: Claimant) -> None:
        """A unit waits from now on."""
        self.waiting.count += 1
        if unit.tag <= self.clocks.device_ns:
            self.count(unit)
            self.waiting.push_due(unit)
        else:
            self.waiting.push_later(unit)
