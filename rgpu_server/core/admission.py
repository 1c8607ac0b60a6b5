"""Whether a lease fits, where, and who has to give way for it.

A lease fits on a device if the sums of memory and of share requests stay within it and its tenant
may hold it.  In this order others make room: empty leases that nobody was granted go at once;
borrowed shares become 0, so that their leases run on with what is idle; borrowed memory is
announced to be reclaimed, and its owner has to wait.  The last two only for what the asking tenant
owns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM, Amount, Code, RefusedError
from rgpu_server.core.placement import find
from rgpu_server.core.plans import Plan, disturbance
from rgpu_server.core.quota import NOTHING, Holding, Quotas, over, plus, sum_of, total, where
from rgpu_server.core.shortage import barred, elsewhere, full, never_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rgpu_server.core.claims import Claim
    from rgpu_server.core.model import Device
    from rgpu_server.core.plans import Ask
    from rgpu_server.core.policy import Policy


@dataclass(slots=True)
class _Table:
    """One try: who is still there, and who has given way."""

    kept: list[Holding]
    dropped: list[Holding] = field(default_factory=list)
    weakened: list[Holding] = field(default_factory=list)
    noticed: list[Holding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Short:
    """What is missing on the device, and of the quota.  owned: the asker's own, of each."""

    device: Amount
    quota: Amount
    owned: tuple[bool, bool]

    def __bool__(self) -> bool:
        return self.device != NOTHING or self.quota != NOTHING

    @property
    def refused(self) -> bool:
        """True if it is more than the tenant may borrow."""
        return any(short and not own for short, own in zip(self.quota, self.owned, strict=True))

    def only(self, which: int) -> _Short:
        """Returns what can be reclaimed: of the share (0) or of the memory (1)."""
        mask = tuple(i == which and own for i, own in enumerate(self.owned))
        return _Short(where(mask, self.device), where(mask, self.quota), self.owned)

    def less_than(self, other: _Short) -> bool:
        """True if this is better in something that was missing."""
        mine, theirs = (*self.device, *self.quota), (*other.device, *other.quota)
        return any(m < t for m, t in zip(mine, theirs, strict=True))


class Admission:
    """Plans; `Lending` carries them out."""

    def __init__(self, devices: Sequence[Device], policy: Policy, quotas: Quotas) -> None:
        self._devices = devices
        self._policy = policy
        self.quotas = quotas

    def plan(self, ask: Ask, holdings: Sequence[Holding], claims: Sequence[Claim]) -> Plan:
        """Returns the plan that disturbs least; with no device asked for, on the emptiest.

        Raises:
            RefusedError: it does not fit, not even if all who must have given way; the sentence
                says by how much and what would fit.
        """
        wanted = self.wanted(ask, lambda: holdings)
        plans = [self._plan_on(device, ask, holdings, claims) for device in wanted]
        best = min(plans, key=disturbance)
        if best.fits or (best.wait and not best.refusal):
            return best
        raise self._refusal(best, ask, holdings, claims)

    def possible(self, ask: Ask) -> list[int]:
        """Returns the devices on which the ask would fit alone; RefusedError: there is none."""
        wanted = self.wanted(ask, list)
        fitting = [d.ordinal for d in wanted if self._plan_on(d, ask, (), ()).fits]
        if not fitting:
            self.plan(ask, (), ())
        return fitting

    def wanted(self, ask: Ask, holdings: Callable[[], Sequence[Holding]]) -> list[Device]:
        """Returns the devices on which the ask may be placed if there is room; RefusedError: none.

        Cheap, but for tenants that own something: only for those it looks at the holdings.
        """
        allowed = self._allowed(ask)
        large = [device for device in allowed if not _too_large(ask, device)]
        if not large:
            mine = [d for d in self._devices if self._in_pool(ask.tenant, d)]
            raise never_fits(ask, allowed, [d for d in mine if not _too_large(ask, d)])
        free = [device for device in large if not self._keeps_out(device, ask, holdings)]
        if not free:
            raise barred(large)
        return free

    def _keeps_out(
        self, device: Device, ask: Ask, holdings: Callable[[], Sequence[Holding]]
    ) -> bool:
        """True if claims in line wait for what the ask would take of the device."""
        if not ask.bars:
            return False
        quota, owned = ask.quota_on(device), (False, False)
        if self.quotas.owned(ask.tenant, device.model) is not None:
            # The tenant's own empty leases make way for the ask.
            there = [h for h in holdings() if not (h.idle and h.tenant == ask.tenant)]
            owned = self.quotas.judge(_holding(device, ask), (True, True), there, {}).owned
        return ask.bars.keep_out(device, quota, ask.tenant, owned)

    def _allowed(self, ask: Ask) -> list[Device]:
        pools = self.quotas.policy_of(ask.tenant).pools
        devices = list(self._devices)
        if ask.ordinal is not None:
            devices = [find(self._devices, ask.ordinal)]
        allowed = [device for device in devices if self._in_pool(ask.tenant, device)]
        if allowed:
            return allowed
        where = f"device {devices[0].ordinal} is in {devices[0].pool!r}"
        remedy = "leave the device out or ask the operator"
        if ask.ordinal is None:
            where = "no device of this server is in one of them"
            remedy = "ask the operator for another pool, or use another server"
        raise RefusedError(
            Code.TENANT_LIMIT,
            f"tenant {ask.tenant!r} may use devices of the pools {', '.join(pools)}, "
            f"and {where}; {remedy}",
        )

    def _plan_on(
        self, device: Device, ask: Ask, holdings: Sequence[Holding], claims: Sequence[Claim]
    ) -> Plan:
        quota, there = ask.quota_on(device), _holding(device, ask)
        others = [c for c in claims if c.tenant != ask.tenant and c.model == device.model]
        mine = {claim.tenant: claim.amount for claim in others}

        def short(kept: list[Holding]) -> _Short:
            return self._short(device, ask, there, kept, others)

        table = _Table(list(holdings))
        _give_way(table.kept, table.dropped, _idle(table.kept), _gone, short)
        if ask.may_reclaim:
            self._reclaim(table, there, short)
        verdict = short(table.kept)
        # An owner does not wait for memory of which the device has enough.
        late = short(_still(table)).device if table.noticed else NOTHING
        here = _on(device, table.kept)
        kept_for_others = _kept_for_others(device, here, others, verdict.owned)
        refusal = self.quotas.refusal(there, table.kept, mine) if verdict.refused else ""
        return Plan(
            device=device,
            quota=quota,
            dropped=tuple(h.lease for h in table.dropped),
            weakened=tuple(h.lease for h in table.weakened),
            noticed=tuple(h.lease for h in table.noticed if not h.noticed),
            wait=late != NOTHING and verdict.device == NOTHING,
            free=over(over(_capacity(device), total(here)), kept_for_others),
            missing=verdict.device,
            refusal=refusal,
        )

    def _short(
        self,
        device: Device,
        ask: Ask,
        there: Holding,
        kept: list[Holding],
        claims: list[Claim],
    ) -> _Short:
        grows = (
            there.amount.share_ppm > ask.before.share_ppm,
            there.amount.memory_bytes > ask.before.memory_bytes,
        )
        claimed = {claim.tenant: claim.amount for claim in claims}
        verdict = self.quotas.judge(there, grows, kept, claimed)
        here = _on(device, kept)
        use = plus(total(here), there.amount)
        use = plus(use, _kept_for_others(device, here, claims, verdict.owned))
        missing = over(use, _capacity(device))
        return _Short(where(grows, missing), verdict.short, verdict.owned)

    def _reclaim(
        self, table: _Table, there: Holding, short: Callable[[list[Holding]], _Short]
    ) -> None:
        if not short(table.kept):
            return
        shares, memories = self.quotas.borrowing([*table.kept, there])
        order = sorted(table.kept, key=lambda h: (h.priority, -h.number))
        weak = [h for h in order if h.lease in shares and h.amount.share_ppm and h.active]
        _give_way(table.kept, table.weakened, weak, _weaker, lambda kept: short(kept).only(0))
        if self._policy.reclaim_memory:
            # Those that are on their way out already come first.
            loans = [h for h in order if h.noticed]
            loans += [h for h in order if h.lease in memories and h.active and not h.noticed]
            loans = [_current(table.kept, h) for h in loans]
            _give_way(
                table.kept, table.noticed, loans, _memoryless, lambda kept: short(kept).only(1)
            )

    def _refusal(
        self, plan: Plan, ask: Ask, holdings: Sequence[Holding], claims: Sequence[Claim]
    ) -> RefusedError:
        others = [
            self._plan_on(device, replace(ask, may_reclaim=False), holdings, claims)
            for device in self._devices
            if device is not plan.device and self._in_pool(ask.tenant, device)
        ]
        if ask.before != NOTHING:
            others = []  # a running lease stays where it is
        if plan.refusal:
            hint = elsewhere([other for other in others if other.fits])
            return RefusedError(Code.TENANT_LIMIT, plan.refusal + hint)
        return full(plan, others)

    def _in_pool(self, tenant: str, device: Device) -> bool:
        pools = self.quotas.policy_of(tenant).pools
        return not pools or device.pool in pools


def _holding(device: Device, ask: Ask) -> Holding:
    """What the tenant would hold on the device."""
    quota = ask.quota_on(device)
    amount = Amount(quota.share_request_ppm, quota.memory_bytes)
    return Holding("", ask.tenant, device.ordinal, amount, ask.number, quota.priority)


def _too_large(ask: Ask, device: Device) -> bool:
    """True if the device has less memory in all than is asked for."""
    return ask.quota_on(device).memory_bytes > max(device.memory_bytes, ask.before.memory_bytes)


def _give_way(
    kept: list[Holding],
    given: list[Holding],
    candidates: list[Holding],
    after: Callable[[Holding], Holding | None],
    short: Callable[[list[Holding]], _Short],
) -> None:
    """Lets candidates give way, in order, as long as something is missing and it helps.

    `after`: what is left of one.  Who turns out not to have been needed stays.
    """
    missing = short(kept)
    for candidate in candidates:
        if not missing:
            break
        trial = _without(kept, candidate, after)
        left = short(trial)
        if left.less_than(missing):
            kept[:], missing = trial, left
            given.append(candidate)
    for spared in list(given[:-1]):
        trial = [*(h for h in kept if h.lease != spared.lease), spared]
        left = short(trial)
        if left.device == missing.device and left.quota == missing.quota:
            kept[:] = trial
            given.remove(spared)


def _without(
    kept: list[Holding], candidate: Holding, after: Callable[[Holding], Holding | None]
) -> list[Holding]:
    left = after(candidate)
    rest = [h for h in kept if h.lease != candidate.lease]
    return rest if left is None else [*rest, left]


def _gone(holding: Holding) -> None:
    return None


def _weaker(holding: Holding) -> Holding:
    return replace(holding, amount=Amount(0, holding.amount.memory_bytes))


def _memoryless(holding: Holding) -> Holding:
    """Until it ends it has its share."""
    return replace(holding, amount=Amount(holding.amount.share_ppm, 0))


def _still(table: _Table) -> list[Holding]:
    """Who is there before the noticed ones are gone."""
    going = {h.lease for h in table.noticed}
    return [*(h for h in table.kept if h.lease not in going), *table.noticed]


def _current(kept: list[Holding], holding: Holding) -> Holding:
    """It may have been weakened meanwhile."""
    return next(h for h in kept if h.lease == holding.lease)


def _idle(holdings: Iterable[Holding]) -> list[Holding]:
    return sorted((h for h in holdings if h.idle), key=lambda h: h.number)


def _on(device: Device, holdings: Iterable[Holding]) -> list[Holding]:
    return [h for h in holdings if h.device == device.ordinal]


def _kept_for_others(
    device: Device, here: list[Holding], claims: list[Claim], owned: tuple[bool, bool]
) -> Amount:
    """Room for those who wait, beyond what is on its way out for them; an owner need not leave
    it.
    """
    waiting = sum_of([claim.amount for claim in claims if claim.device == device.ordinal])
    room = over(waiting, total(h for h in here if h.noticed))
    return where((not owned[0], not owned[1]), room)


def _capacity(device: Device) -> Amount:
    return Amount(PPM, device.memory_bytes)
