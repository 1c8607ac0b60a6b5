"""What the leases of one payer (a tenant) owe together for device time beyond their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from rgpu_server.core.tokens.siblings import Siblings

if TYPE_CHECKING:
    from rgpu_server.core.tokens.clock import Clocks


class Claimant(Protocol):
    """What a payer reads and changes of a lease (`Unit`)."""

    tag: int
    rate_ppb: int
    due: bool


class Payer(Struct, eq=False):
    """The account of one payer on one device.

    A lease is due when it waits for the device or holds it and its tag is not ahead of the device
    clock.  The balance of a payer is what its due leases are owed minus its debt.  While the
    balance is negative, no lease of the payer is served from its request.

    leases: how many of its leases are on the device.
    leaving: how many of its leases have left while they are being fenced.
    rate_ppb: the sum of their rates.  When the last lease leaves, the sum stays, so that the debt
        is worked off in the meantime.
    debt: device time x PPB that leases had beyond their requests, as far as it is not worked off.
    paid_at: the device clock up to which the debt has been worked off.
    spent_until: up to here on the device clock, the requests of leases that were not due paid the
        debt.  Such a lease earns no sleep credit for that time.
    due_rate, due_sum: the sums of rate and of rate x tag over the due leases.
    waiting: the leases that wait.
    opens, head: the key, and the waiting lease that goes first, as `refresh` last found them.
    version: queue entries with another version are stale.
    serial: rises with each service, as `Unit.serial`.
    """

    name: str
    clocks: Clocks
    serial: int = 0
    leases: int = 0
    leaving: int = 0
    rate_ppb: int = 1
    debt: int = 0
    paid_at: int = 0
    spent_until: int = 0
    due_rate: int = 0
    due_sum: int = 0
    opens: int = 0
    version: int = 0
    head: Any = None
    waiting: Siblings = field(default_factory=Siblings)

    def settle(self) -> None:
        """Works the debt off up to now.

        The requests of leases that are not due pay for the debt.  Due leases pay for it by what
        they are owed, which the balance counts already.
        """
        if not self.debt:
            return
        now, rate = self.clocks.device_ns, self.rate_ppb - self.due_rate
        if now > self.paid_at:
            paid = rate * (now - self.paid_at)
            if paid < self.debt:
                self.debt -= paid
                self.spent_until = now
            else:
                self.spent_until = self.paid_at + self.debt // rate
                self.debt = 0
            self.paid_at = now

    def owes(self, device_ns: int) -> bool:
        """True if a part of the debt is left when the device clock is device_ns."""
        return self.debt > (self.rate_ppb - self.due_rate) * (device_ns - self.paid_at)

    def count(self, unit: Claimant) -> None:
        """The unit becomes due."""
        if self.debt:
            self.settle()
        unit.due = True
        self.due_rate += unit.rate_ppb
        self.due_sum += unit.rate_ppb * unit.tag

    def uncount(self, unit: Claimant) -> None:
        """The unit is no longer due."""
        if unit.due:
            if self.debt:
                self.settle()
            unit.due = False
            self.due_rate -= unit.rate_ppb
            self.due_sum -= unit.rate_ppb * unit.tag

    def forgo(self, unit: Claimant, tag: int) -> None:
        """The unit gives up what it is owed up to `tag`, which for a due unit is at most the device
        clock.  What a due unit gives up pays the payer's debt; the rest is lost.
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
        """Moves a unit's tag for surplus that the payer passed on to this unit.  This service takes
        nothing from another payer, so it makes no debt.
        """
        self.forgo(unit, min(tag, self.clocks.device_ns))
        if tag > unit.tag:
            self.uncount(unit)
            unit.tag = tag

    def sleep(self, unit: Claimant) -> None:
        """The unit stops waiting.  What it is owed pays the debt; the rest stays with the unit."""
        if unit.due:
            self.settle()
            owed = self.clocks.device_ns - unit.tag
            self.forgo(unit, unit.tag + min(owed, -(-self.debt // unit.rate_ppb)))
            self.uncount(unit)

    def retag(self, unit: Claimant, tag: int) -> None:
        """Moves a unit's tag for service from its request.  The part of the service ahead of the
        device clock becomes a debt of the payer.
        """
        now, before = self.clocks.device_ns, unit.tag
        if tag <= before:
            return
        if tag <= now:
            if unit.due:
                self.due_sum += unit.rate_ppb * (tag - before)
        else:
            if unit.due:
                self.uncount(unit)
            if self.debt:
                self.settle()
            else:
                self.paid_at = now
            self.debt += (tag - max(before, now)) * unit.rate_ppb
        unit.tag = tag

    def free_at(self) -> int:
        """The device clock at which the balance of a payer in debt is no longer negative."""
        idle_rate = self.rate_ppb - self.due_rate
        return (self.due_sum + self.debt + idle_rate * self.paid_at) // self.rate_ppb

    def claim(self, unit: Claimant) -> int:
        """The device clock from which the unit may be served from its request."""
        return max(unit.tag, self.free_at()) if self.debt else unit.tag

    def refresh(self) -> int:
        """Counts the waiting leases that have become due, and returns the payer's key: its place
        among payers.  At least one lease must wait.

        The key is the mean tag of the due leases, or `free_at` while there is a debt.  It is never
        earlier than the claim of the lease that goes first.
        """
        waiting, now = self.waiting, self.clocks.device_ns
        if waiting.later and waiting.later[0][0] <= now:
            for unit in waiting.become_due(now):
                self.count(unit)
        self.head = head = waiting.first()
        if self.debt:
            opens = self.free_at()
            if not head.due and head.tag > opens:
                opens = head.tag
        elif head.due:
            opens = self.due_sum // self.due_rate
        else:
            opens = head.tag
        self.opens = opens
        return opens

    def place(self, unit: Claimant) -> int:
        """The payer's key as far as it depends on a unit that does not wait in a queue: the holder,
        or a unit that begins to wait.
        """
        if unit.due and not self.debt:
            return self.due_sum // self.due_rate
        return self.claim(unit)

    def admit(self, unit: Claimant) -> None:
        """The unit waits from now on.  It may have been due already, because it held the device or
        waited under another tag.
        """
        self.waiting.count += 1
        reached = unit.tag <= self.clocks.device_ns
        if unit.due != reached:
            if reached:
                self.count(unit)
            else:
                self.uncount(unit)
        elif reached and self.debt:
            self.settle()
        self.waiting.push(unit)
