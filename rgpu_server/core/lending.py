"""Carries out the plans of admission: leases make room for others, and get back what was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_common.units import format_bytes
from rgpu_server.core.admission import Admission, capacity
from rgpu_server.core.claims import Claims
from rgpu_server.core.model import Amount, Code, LeaseState, RefusedError
from rgpu_server.core.placement import find
from rgpu_server.core.plans import Ask, Plan, disturbance
from rgpu_server.core.quota import NOTHING, Holding, minus, over, plus, where

# The leases whose share, and whose memory, is borrowed.
Loans = tuple[set[str], set[str]]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.core.lease import Lease
    from rgpu_server.core.lease_table import LeaseTable
    from rgpu_server.core.model import Device, Quota
    from rgpu_server.core.policy import Policy
    from rgpu_server.core.quota import Quotas


class Lending:
    """Makes room among the leases of `table`.  Times are seconds of the caller's clock."""

    def __init__(
        self, devices: Sequence[Device], policy: Policy, quotas: Quotas, table: LeaseTable
    ) -> None:
        self._devices = devices
        self._policy = policy
        self._quotas = quotas
        self._table = table
        self._admission = Admission(devices, policy, quotas)
        self._claims = Claims(policy)
        self._changed: dict[str, tuple[Lease, bool]] = {}
        self._noticed: list[Lease] = []
        self._room = False
        # The last answer of `borrowing`, and what of it is of each tenant.
        self._loans: Loans = (set(), set())
        self._loans_of: dict[str, Loans] = {}
        # Counts since the start how often room may have become free.
        self.changes = 0

    def take_changes(self) -> list[tuple[Lease, bool]]:
        """Returns the leases that lost their share, got it back or ended for others since the last
        call. True: the lease is gone.
        """
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def take_notices(self) -> list[Lease]:
        """Returns the leases that were told since the last call that their memory will be
        reclaimed.
        """
        noticed, self._noticed = self._noticed, []
        return noticed

    def admit(self, ask: Ask, lease: Lease | None, now: float) -> Plan:
        """Makes room for an ask and returns the plan. `lease`: the lease that changes; None for a
        new one.

        Raises:
            RefusedError: there is no room. Or there is none yet, and the tenant now has a claim to
                it.
        """
        if (easy := self._easy(ask, lease, now)) is not None:
            return easy
        holdings = self._table.holdings(lease)
        plan = self._admission.plan(ask, holdings, self._claims.current(now))
        amount = Amount(plan.quota.share_request_ppm, plan.quota.memory_bytes)
        more = Amount(
            amount.share_ppm if amount.share_ppm > ask.before.share_ppm else 0,
            amount.memory_bytes if amount.memory_bytes > ask.before.memory_bytes else 0,
        )
        there = Holding("", ask.tenant, plan.device.ordinal, more, ask.number)
        empty = {h.lease for h in holdings if h.idle and h.tenant == ask.tenant}
        try:
            self._quotas.check_ceilings(there, holdings)
        except RefusedError:
            self._quotas.check_ceilings(there, [h for h in holdings if h.lease not in empty])
            plan = replace(plan, dropped=tuple({*plan.dropped, *empty}))
        self._make_way(plan, now)
        if plan.wait:
            self._claims.add(ask.tenant, plan.device, amount, now)
            raise self._lent(plan, now)
        self._claims.met(ask.tenant, plan.device.model, amount)
        return plan

    def _easy(self, ask: Ask, lease: Lease | None, now: float) -> Plan | None:
        """Returns the best plan that disturbs nobody, if that needs no look at each lease: it grows
        in nothing, or there is room beside what all hold and nothing bounds its tenant. None: it
        does. Errors as `admit`.
        """
        if self._claims.current(now):
            return None
        plans = []
        for device in self._admission.wanted(ask, self._table.holdings):
            quota = ask.quota_on(device)
            amount = Amount(quota.share_request_ppm, quota.memory_bytes)
            grows = tuple(more > had for more, had in zip(amount, ask.before, strict=True))
            if any(grows) and self._quotas.bounds(ask.tenant, device.model):
                return None
            others = self._table.total_on(device.ordinal)
            if lease is not None and lease.device == device.ordinal:
                others = minus(others, lease.amount)
            if where(grows, over(plus(others, amount), capacity(device))) == NOTHING:
                plans.append(Plan(device, quota, free=over(capacity(device), others)))
        return min(plans, key=disturbance, default=None)

    def possible(self, ask: Ask) -> list[int]:
        """Returns the devices on which an ask would fit without other leases; RefusedError if there
        is none.
        """
        ordinals = self._admission.possible(ask)
        for ordinal in ordinals:
            quota = ask.quota_on(find(self._devices, ordinal))
            amount = Amount(quota.share_request_ppm, quota.memory_bytes)
            self._quotas.check_ceilings(Holding("", ask.tenant, ordinal, amount, 0), [])
        return ordinals

    def check_line(self, ask: Ask) -> None:
        """Raises RefusedError if all room that the ask could take is kept for claims in line."""
        self._admission.wanted(ask, self._table.holdings)

    def borrowing(self) -> Loans:
        """Returns the ids of the leases whose share, and whose memory, is borrowed.

        Each answer about a lease tells it. It is found out again for the tenants whose leases hold
        something else than before.
        """
        for tenant in self._table.moved:
            before = self._loans_of.pop(tenant, (set(), set()))
            now = self._quotas.borrowing(self._table.holdings_of(tenant))
            if any(now):
                self._loans_of[tenant] = now
            shares, memories = self._loans
            self._loans = ((shares - before[0]) | now[0], (memories - before[1]) | now[1])
        self._table.moved.clear()
        return self._loans

    def freed(self, lease: Lease) -> None:
        """Notes that a lease may hold less than before, so that `restore` looks again."""
        self._table.changed(lease)
        self._look_again()

    def _look_again(self) -> None:
        self._room = True
        self.changes += 1

    def dismiss(self, lease: Lease) -> None:
        """Ends an empty lease. Its key is free at once."""
        lease.state = LeaseState.EXPIRED
        self.drop(lease)
        self._changed[lease.id] = (lease, True)

    def drop(self, lease: Lease) -> None:
        """Removes a lease that has no session any more."""
        self._table.remove(lease)
        self._changed.pop(lease.id, None)
        self._look_again()

    def expire(self, now: float) -> None:
        """Removes the expired claims of owners."""
        if self._claims.expire(now):
            self._look_again()

    def ends(self) -> list[float]:
        """Returns the times at which `expire` has work to do."""
        return self._claims.ends()

    def restore(self, now: float) -> None:
        """Gives back what owners had taken, if there is room again: withdraws notices that are no
        longer needed, and returns shares, to the oldest lease first.
        """
        # A lease that makes room in here may make more than is needed.
        while self._room:
            self._room = False
            self._review_notices(now)
            self._restore_weak(now)

    def _restore_weak(self, now: float) -> None:
        if not self._table.weak:
            return
        weak = [
            x
            for x in self._table
            if x.state is LeaseState.ACTIVE and x.quota.share_request_ppm < x.asked_share_ppm
        ]
        for lease in weak:
            ask = Ask(
                lease.key.tenant, lease.device, always(lease.asked), lease.number, lease.amount
            )
            others = self._table.holdings(lease)
            back = Amount(lease.asked_share_ppm, 0)
            there = Holding("", lease.key.tenant, lease.device, back, lease.number)
            try:
                plan = self._admission.plan(ask, others, self._claims.current(now))
                # The tenant got other leases meanwhile, and may be at its ceiling without this
                # share.
                self._quotas.check_ceilings(there, others)
            except RefusedError:
                continue
            if plan.fits:
                self._make_way(plan, now)
                lease.quota = lease.asked
                self._table.changed(lease)
                self._changed[lease.id] = (lease, False)

    def _review_notices(self, now: float) -> None:
        """Withdraws notices of reclaiming that are no longer needed, and gives new ones.

        Borrowed memory may stay if no owner waits for it and owners leave at least as much idle.
        """
        memories = self.borrowing()[1]
        if not memories and all(x.reclaim_at is None for x in self._table):
            return
        wanted = {claim.model for claim in self._claims.current(now)}
        for model in {device.model for device in self._devices}:
            leases = [
                x
                for x in self._table
                if find(self._devices, x.device).model == model and x.state is LeaseState.ACTIVE
            ]
            leases.sort(key=lambda x: (-x.quota.priority, x.number))
            for lease in [x for x in leases if x.reclaim_at is not None]:
                when, lease.reclaim_at = lease.reclaim_at, None
                # If an earlier lease of its tenant has ended, this lease may be within the quota
                # now.
                if lease.id in memories and (model in wanted or self._overdrawn(model)):
                    lease.reclaim_at = when
            for lease in reversed([x for x in leases if x.id in memories]):
                if self._policy.reclaim_memory and self._overdrawn(model):
                    self._notice(lease, now)

    def _overdrawn(self, model: str) -> bool:
        borrowed, lent = self._quotas.balance(model, self._table.holdings(), {})
        return borrowed.memory_bytes > lent.memory_bytes

    def _make_way(self, plan: Plan, now: float) -> None:
        for lease in map(self._named, plan.dropped):
            self.dismiss(lease)
        for lease in map(self._named, plan.weakened):
            lease.quota = replace(lease.quota, share_request_ppm=0)
            self._table.changed(lease)
            self._changed[lease.id] = (lease, False)
        for lease in map(self._named, plan.noticed):
            self._notice(lease, now)

    def _named(self, lease_id: str) -> Lease:
        lease = self._table.get(lease_id)
        assert lease is not None, "a plan names only leases that exist"
        return lease

    def _notice(self, lease: Lease, now: float) -> None:
        if lease.reclaim_at is None:
            lease.reclaim_at = now + self._policy.reclaim_seconds
            self._noticed.append(lease)

    def _lent(self, plan: Plan, now: float) -> RefusedError:
        times = [x.reclaim_at - now for x in self._table if x.reclaim_at is not None]
        return RefusedError(
            Code.LENT,
            f"{format_bytes(plan.quota.memory_bytes)} of device {plan.device.ordinal} are lent to "
            f"others and have been asked back: try again in {max(times, default=0):.0f} s",
        )


def always(quota: Quota) -> Callable[[Device], Quota]:
    """Returns the same ceilings on every device."""
    return lambda _device: quota
