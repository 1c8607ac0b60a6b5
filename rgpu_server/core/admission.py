"""Decides whether a lease fits, on which device, and which leases have to make room for it.

A lease fits on a device if the sums of memory and of share requests stay within the device and its
tenant may hold that much. Other leases make room in this order. Empty leases that nobody was
granted end at once. Borrowed shares become 0; those leases run on with idle time. Borrowed memory
is announced to be reclaimed, and the owner has to wait. The last two happen only for amounts that
the asking tenant owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

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


class _Table(Struct):
    """One attempt: the holdings that remain, and those that have made room."""

    kept: list[Holding]
    dropped: list[Holding] = field(default_factory=list)
    weakened: list[Holding] = field(default_factory=list)
    noticed: list[Holding] = field(default_factory=list)


class _Short(Struct, frozen=True):
    """The amounts that are missing on the device and in the tenant's quota.

    owned: whether the share, and the memory, is within what the asking tenant owns.
    """

    device: Amount
    quota: Amount
    owned: tuple[bool, bool]

    def __bool__(self) -> bool:
        return self.device != NOTHING or self.quota != NOTHING

    @property
    def refused(self) -> bool:
        """True if the tenant lacks quota for an amount that it does not own."""
        return any(short and not own for short, own in zip(self.quota, self.owned, strict=True))

    def only(self, which: int) -> _Short:
        """Returns the missing share (0) or memory (1), if the tenant owns it and can reclaim it."""
        mask = tuple(i == which and own for i, own in enumerate(self.owned))
        return _Short(where(mask, self.device), where(mask, self.quota), self.owned)

    def less_than(self, other: _Short) -> bool:
        """True if any of the four amounts is smaller here than in `other`."""
        mine, theirs = (*self.device, *self.quota), (*other.device, *other.quota)
        return any(m < t for m, t in zip(mine, theirs, strict=True))


class Admission:
    """Makes plans; `Lending` carries them out."""

    def __init__(self, devices: Sequence[Device], policy: Policy, quotas: Quotas) -> None:
        self._devices = devices
        self._policy = policy
        self.quotas = quotas

    def plan(self, ask: Ask, holdings: Sequence[Holding], claims: Sequence[Claim]) -> Plan:
        """Returns the plan that disturbs other leases least. If the ask names no device and several
        plans are equal, the plan is for the device with the most free memory.

        Raises:
            RefusedError: the ask does not fit, not even if all leases that must make room did so.
                The sentence says how much is missing and how much would fit.
        """
        wanted = self.wanted(ask, lambda: holdings)
        plans = [self._plan_on(device, ask, holdings, claims) for device in wanted]
        best = min(plans, key=disturbance)
        if best.fits or (best.wait and not best.refusal):
            return best
        raise self._refusal(best, ask, holdings, claims)

    def possible(self, ask: Ask) -> list[int]:
        """Returns the devices on which the ask would fit if there were no other lease;
        RefusedError: none.
        """
        wanted = self.wanted(ask, list)
        fitting = [d.ordinal for d in wanted if self._plan_on(d, ask, (), ()).fits]
        if not fitting:
            self.plan(ask, (), ())
        return fitting

    def wanted(self, ask: Ask, holdings: Callable[[], Sequence[Holding]]) -> list[Device]:
        """Returns the devices on which the ask may be placed if there is room; RefusedError: none.

        Looks at the holdings only for tenants that own a quota, so that it is cheap for all others.
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
        """True if the ask would take room of the device for which claims wait in line."""
        if not ask.bars:
            return False
        quota, owned = ask.quota_on(device), (False, False)
        if self.quotas.owned(ask.tenant, device.model) is not None:
            # The tenant's own empty leases make room for the ask.
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
        verdict = short(table.kept)
        if verdict:
            _give_way(table.kept, table.dropped, _idle(table.kept), _gone, short)
            if ask.may_reclaim:
                self._reclaim(table, there, short)
            verdict = short(table.kept)
        # An owner need not wait for borrowed memory if the device has enough without it.
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
            free=over(over(capacity(device), total(here)), kept_for_others),
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
        missing = over(use, capacity(device))
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
            # Leases whose memory is being reclaimed already come first.
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
            others = []  # a running lease stays on its device
        if plan.refusal:
            hint = elsewhere([other for other in others if other.fits])
            return RefusedError(Code.TENANT_LIMIT, plan.refusal + hint)
        return full(plan, others)

    def _in_pool(self, tenant: str, device: Device) -> bool:
        pools = self.quotas.policy_of(tenant).pools
        return not pools or device.pool in pools


def _holding(device: Device, ask: Ask) -> Holding:
    """Returns what the tenant would hold on the device."""
    quota = ask.quota_on(device)
    amount = Amount(quota.share_request_ppm, quota.memory_bytes)
    return Holding("", ask.tenant, device.ordinal, amount, ask.number, quota.priority)


def _too_large(ask: Ask, device: Device) -> bool:
    """True if the ask needs more memory than the device has in all."""
    return ask.quota_on(device).memory_bytes > max(device.memory_bytes, ask.before.memory_bytes)


def _give_way(
    kept: list[Holding],
    given: list[Holding],
    candidates: list[Holding],
    after: Callable[[Holding], Holding | None],
    short: Callable[[list[Holding]], _Short],
) -> None:
    """Makes candidates give way, in order, as long as something is missing and the step helps.

    `after` returns what is left of a candidate. At the end, candidates that turn out not to be
    needed are put back.
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
    return holding._replace(amount=Amount(0, holding.amount.memory_bytes))


def _memoryless(holding: Holding) -> Holding:
    """Returns the holding without its memory. A lease keeps its share until its last
    session ends.
    """
    return holding._replace(amount=Amount(holding.amount.share_ppm, 0))


def _still(table: _Table) -> list[Holding]:
    """Returns the holdings before the leases whose memory is being reclaimed have ended."""
    going = {h.lease for h in table.noticed}
    return [*(h for h in table.kept if h.lease not in going), *table.noticed]


def _current(kept: list[Holding], holding: Holding) -> Holding:
    """Returns the present holding of the same lease, which may have lost its share meanwhile."""
    return next(h for h in kept if h.lease == holding.lease)


def _idle(holdings: Iterable[Holding]) -> list[Holding]:
    return sorted((h for h in holdings if h.idle), key=lambda h: h.number)


def _on(device: Device, holdings: Iterable[Holding]) -> list[Holding]:
    return [h for h in holdings if h.device == device.ordinal]


def _kept_for_others(
    device: Device, here: list[Holding], claims: list[Claim], owned: tuple[bool, bool]
) -> Amount:
    """Returns the room that is kept for owners that wait, beyond the memory that is being reclaimed
    for them. Amounts that the asking tenant owns are not kept from it.
    """
    waiting = sum_of([claim.amount for claim in claims if claim.device == device.ordinal])
    room = over(waiting, total(h for h in here if h.noticed))
    return where((not owned[0], not owned[1]), room)


def capacity(device: Device) -> Amount:
    """Returns what a device has in all."""
    return Amount(PPM, device.memory_bytes)
