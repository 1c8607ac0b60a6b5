"""Tenants' quotas: how much each tenant owns of a model of device, and how much it borrows from
others.

All functions look at a list of holdings; nothing here changes anything. Share and memory are
counted separately: a lease may borrow its memory and own its share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rgpu_common.units import format_bytes, format_share
from rgpu_server.core.model import Amount, Code, RefusedError
from rgpu_server.core.policy import TenantPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rgpu_server.core.model import Device
    from rgpu_server.core.policy import Policy

NOTHING = Amount()
EVERYBODY = "*"


class Holding(NamedTuple):
    """What a lease holds of a device. A tuple, because each change of a lease makes one of each.

    number: its place in the order of grants. idle: it is empty and makes room at once. active: it
    has not ended. noticed: its memory is being reclaimed.
    """

    lease: str
    tenant: str
    device: int
    amount: Amount
    number: int
    priority: int = 0
    idle: bool = False
    active: bool = True
    noticed: bool = False


class Verdict(Struct, frozen=True):
    """Whether a tenant may hold an amount, for share and memory separately.

    owned: the amount is within the tenant's own quota, so that others have to return what they
    borrowed of it. short: how much is missing; where `owned`, how much others have to return.
    """

    owned: tuple[bool, bool]
    short: Amount = NOTHING


class Quotas:
    """The quotas of all tenants over the devices of a server."""

    def __init__(
        self, devices: Sequence[Device], policy: Policy, tenants: Mapping[str, TenantPolicy]
    ) -> None:
        self._models = {device.ordinal: device.model for device in devices}
        self._policy = policy
        self._tenants = tenants

    def policy_of(self, tenant: str) -> TenantPolicy:
        """Returns the tenant's table, else the table for all tenants (`*`), else one without
        ceilings.
        """
        found = self._tenants.get(tenant) or self._tenants.get(EVERYBODY)
        return found if found is not None else TenantPolicy()

    def owned(self, tenant: str, model: str) -> Amount | None:
        """Returns what a tenant owns of the devices of a model; None: it has no ceiling there."""
        quota = self.policy_of(tenant).quota
        if quota is None:
            return None if self._policy.absent_tenant_unlimited else NOTHING
        if model not in quota:
            return None if self._policy.absent_model_unlimited else NOTHING
        return quota[model]

    def bounds(self, tenant: str, model: str) -> bool:
        """True if what a tenant may hold of a model depends on what leases hold."""
        policy = self.policy_of(tenant)
        ceilings = policy.memory_bytes, policy.share_ppm
        return self.owned(tenant, model) is not None or ceilings != (None, None)

    def held(self, tenant: str, model: str, holdings: Iterable[Holding]) -> Amount:
        """Returns what the leases of a tenant hold on the devices of a model."""
        return total(h for h in holdings if h.tenant == tenant and self._models[h.device] == model)

    def balance(
        self, model: str, holdings: Sequence[Holding], claims: Mapping[str, Amount]
    ) -> tuple[Amount, Amount]:
        """Returns (the borrowed amount, the amount that owners leave idle and lend) of a model.

        Memory that is being reclaimed counts as returned. `claims`: tenant -> the amount that it
        has asked back and will soon hold, which it does not lend.
        """
        sums: dict[str, list[int]] = {}
        for h in holdings:
            if self._models[h.device] == model:
                use = sums.setdefault(h.tenant, [0, 0])
                use[0] += h.amount.share_ppm
                use[1] += 0 if h.noticed else h.amount.memory_bytes
        uses = {tenant: Amount(*use) for tenant, use in sums.items()}
        borrowed, lent = NOTHING, NOTHING
        for tenant, amount in uses.items():
            own = self.owned(tenant, model)
            if own is not None:
                borrowed = plus(borrowed, over(amount, own))
        for tenant, policy in self._tenants.items():
            if tenant != EVERYBODY and policy.lend and policy.quota and model in policy.quota:
                taken = plus(uses.get(tenant, NOTHING), claims.get(tenant, NOTHING))
                lent = plus(lent, over(policy.quota[model], taken))
        return borrowed, lent

    def judge(
        self,
        ask: Holding,
        grows: tuple[bool, bool],
        holdings: Sequence[Holding],
        claims: Mapping[str, Amount],
    ) -> Verdict:
        """Returns whether a tenant may hold `ask` beside `holdings`. Only sizes that grow are
        judged.
        """
        model = self._models[ask.device]
        own = self.owned(ask.tenant, model)
        others = {tenant: claim for tenant, claim in claims.items() if tenant != ask.tenant}
        if own is None:
            return Verdict((False, False))
        after = [*holdings, ask]
        more = where(grows, over(self.held(ask.tenant, model, after), own))
        borrowed, lent = self.balance(model, after, others)
        short = over(borrowed, lent)
        owned = (not more.share_ppm, not more.memory_bytes)
        policy = self.policy_of(ask.tenant)
        if not policy.borrow:
            return Verdict(owned, Amount(*map(max, more, where(grows, where(owned, short)))))
        limits = policy.borrow_limit
        beyond = [0 if x is None else max(m - x, 0) for m, x in zip(more, limits, strict=True)]
        return Verdict(owned, Amount(*map(max, beyond, where(grows, short))))

    def borrowing(self, holdings: Sequence[Holding]) -> tuple[set[str], set[str]]:
        """Returns the leases whose share, and whose memory, is beyond what their tenant owns.

        Leases count in the order of grants: a lease is owned as long as it fits into its tenant's
        quota.
        """
        marks: tuple[set[str], set[str]] = (set(), set())
        taken: dict[tuple[str, str], list[int]] = {}
        for h in sorted(holdings, key=lambda h: h.number):
            model = self._models[h.device]
            own = self.owned(h.tenant, model)
            if own is None:
                continue
            sums = taken.setdefault((h.tenant, model), [0, 0])
            for which in (0, 1):
                if sums[which] + h.amount[which] <= own[which]:
                    sums[which] += h.amount[which]
                elif h.amount[which]:
                    marks[which].add(h.lease)
        return marks

    def check_ceilings(self, ask: Holding, holdings: Iterable[Holding]) -> None:
        """Refuses an ask that exceeds the tenant's ceilings over all devices."""
        policy = self.policy_of(ask.tenant)
        held = total(h for h in holdings if h.tenant == ask.tenant)
        rows: tuple[tuple[str, int | None, int, int, Callable[[int], str]], ...] = (
            ("", policy.memory_bytes, held.memory_bytes, ask.amount.memory_bytes, format_bytes),
            ("a share of ", policy.share_ppm, held.share_ppm, ask.amount.share_ppm, format_share),
        )
        for what, ceiling, has, more, form in rows:
            if ceiling is None or not more or has + more <= ceiling:
                continue
            if more > ceiling:
                raise RefusedError(
                    Code.TENANT_LIMIT,
                    f"tenant {ask.tenant!r} may lease {what}{form(ceiling)} in all, and "
                    f"{form(more)} was asked for, so waiting does not help; ask for less, or ask "
                    "the operator for more",
                )
            free = max(ceiling - has, 0)
            raise RefusedError(
                Code.TENANT_LIMIT,
                f"tenant {ask.tenant!r} may lease {what}{form(ceiling)}, and {form(free)} of it is "
                f"free: {form(more - free)} too little for {form(more)} more",
            )

    def refusal(
        self, ask: Holding, holdings: Sequence[Holding], claims: Mapping[str, Amount]
    ) -> str:
        """Returns a sentence that says why a tenant may not hold `ask`, how much is missing and
        what would fit.
        """
        model = self._models[ask.device]
        own = self.owned(ask.tenant, model) or NOTHING
        policy = self.policy_of(ask.tenant)
        if own == NOTHING and not policy.borrow:
            return self._no_quota(ask.tenant, model)
        held = self.held(ask.tenant, model, holdings)
        borrowed, lent = self.balance(model, holdings, claims)
        parts = []
        most = self._most(ask.tenant, model)
        for which, form in ((0, format_share), (1, format_bytes)):
            asked = ask.amount[which]
            if not asked or held[which] + asked <= own[which]:
                continue
            if asked > most[which]:
                return (
                    f"tenant {ask.tenant!r} may hold at most {form(most[which])} of {model!r}, and "
                    f"{form(asked)} was asked for, so waiting does not help; ask for less, or ask "
                    "the operator for more"
                )
            free = max(own[which] - held[which], 0)
            if policy.borrow:
                idle = max(lent[which] - borrowed[which] - free, 0)
                limit = policy.borrow_limit[which]
                if limit is not None:
                    idle = min(idle, max(limit - max(held[which] - own[which], 0), 0))
                free += idle
            if asked > free:
                parts.append(
                    f"{form(asked)} is {form(asked - free)} too much: it owns {form(own[which])}, "
                    f"holds {form(held[which])}, and {form(free)} fits"
                )
        why = "; ".join(parts) or "others have borrowed what it asks for"
        loan = "with what others leave idle" if policy.borrow else "and it may not borrow"
        return f"tenant {ask.tenant!r} is at its quota of {model!r}: {why}, {loan}"

    def _most(self, tenant: str, model: str) -> Amount:
        """Returns how much of a model a tenant with a quota could hold if no other tenant held
        anything.
        """
        own, policy = self.owned(tenant, model) or NOTHING, self.policy_of(tenant)
        if not policy.borrow:
            return own
        named = tenant in self._tenants and policy.lend
        lent = over(self.balance(model, (), {})[1], own if named else NOTHING)
        loans = (
            idle if limit is None else min(idle, limit)
            for idle, limit in zip(lent, policy.borrow_limit, strict=True)
        )
        return plus(own, Amount(*loans))

    def _no_quota(self, tenant: str, model: str) -> str:
        if self.policy_of(tenant).quota is None:
            return (
                f"tenant {tenant!r} has no quota and this server serves only tenants that have one "
                "(quota.absent_tenant); name another tenant or ask the operator"
            )
        return (
            f"tenant {tenant!r} has no quota of {model!r} (quota.absent_model); "
            "use another device or ask the operator"
        )


def plus(a: Amount, b: Amount) -> Amount:
    """Returns the sum."""
    return Amount(a.share_ppm + b.share_ppm, a.memory_bytes + b.memory_bytes)


def minus(a: Amount, b: Amount) -> Amount:
    """Returns the difference."""
    return Amount(a.share_ppm - b.share_ppm, a.memory_bytes - b.memory_bytes)


def over(a: Amount, b: Amount) -> Amount:
    """Returns by how much `a` exceeds `b`; 0 where it does not."""
    return Amount(max(a.share_ppm - b.share_ppm, 0), max(a.memory_bytes - b.memory_bytes, 0))


def total(holdings: Iterable[Holding]) -> Amount:
    """Returns the sum of the amounts of holdings."""
    return sum_of([h.amount for h in holdings])


def sum_of(amounts: Sequence[Amount]) -> Amount:
    """Returns the sum."""
    return Amount(sum(a.share_ppm for a in amounts), sum(a.memory_bytes for a in amounts))


def where(mask: Sequence[bool], amount: Amount) -> Amount:
    """Returns the amount with 0 in place of the parts whose `mask` is False."""
    return Amount(*(a if m else 0 for a, m in zip(amount, mask, strict=True)))
