"""What tenants may have of the whole cluster, and when one may borrow what is another's.

A tenant within its quota is owed its cards. It may hold more if it borrows, but only while no other
tenant waits for cards that it is owed. What is borrowed is taken back: leases shrink or end for a
tenant that is owed the room (`pressure`). A reservation may last long, so it never borrows. And a
card that a tenant keeps from others by `exclusion` counts as a whole when it asks for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_cluster.core.usage import Use, use_of
from rgpu_common.key_kinds import Flag, Integer, MaybeDevices, MaybeMemory, MaybeSeconds
from rgpu_common.keys import key
from rgpu_common.sharing import MAX_PRIORITY
from rgpu_common.units import PPM, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

OTHERS = "*"
_DAY = 86400


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """One tenant's part of the cluster. None: no bound."""

    share_ppm: int | None = key(
        "share", MaybeDevices(), None,
        "How large the shares of the tenant's leases may be together, in cards of the cluster. A "
        "MIG slice counts as its part of a GPU.",
        unset="no bound",
    )  # fmt: skip
    memory_bytes: int | None = key(
        "memory", MaybeMemory(), None,
        "How much memory the tenant's leases may have together.", unset="no bound",
    )  # fmt: skip
    borrow: bool = key(
        "borrow", Flag(), False,
        "The tenant may have more while no other tenant waits for what is its own.",
    )  # fmt: skip
    grace_seconds: float | None = key(
        "grace_seconds", MaybeSeconds(0, _DAY), None,
        "How long before a lease of this tenant ends for its owner that is announced.",
        unset="`reclaim.grace_seconds`",
    )  # fmt: skip
    max_priority: int = key(
        "max_priority", Integer(0, MAX_PRIORITY), MAX_PRIORITY,
        "The highest priority that a request of the tenant may ask for. Servers have a bound of "
        "their own.",
    )  # fmt: skip


# By MIG profile: the memory of the largest card, and what part of a GPU it is.
Largest = dict[str, tuple[int, int]]


def largest_cards(pool: Pool) -> Largest:
    """Returns the largest card of each MIG profile; "" is for whole GPUs."""
    found: Largest = {}
    for card in pool.cards():
        size = card.memory_bytes, card.part_ppm
        found[card.mig] = max(found.get(card.mig, size), size)
    return found


def wish_of(request: Request, largest: Largest) -> Use:
    """Returns what a request asks for; some ask for a part of a card's memory."""
    memory, part = largest.get(request.mig, (0, PPM))
    share = (PPM if request.whole else request.share_ppm) * part // PPM
    return Use(request.cards * share, request.cards * request.memory_on(memory))


def _whole_cards(request: Request, largest: Largest) -> Use:
    """Returns the cards of a request as a whole."""
    memory, part = largest.get(request.mig, (0, PPM))
    return Use(request.cards * part, request.cards * memory)


def _why_not_borrowed(requests: Sequence[Request], quota: TenantQuota) -> str:
    """Returns why requests cannot be for what is borrowed, as the end of a sentence; else ""."""
    if quota.borrow and any(request.reserved for request in requests):
        return ", and borrows for runs alone, not to reserve"
    if any(request.labels.exclusion for request in requests):
        return ", and cards that it keeps from others by exclusion count as a whole"
    return ""


class Quotas:
    """The quotas of a cluster. of_tenant: by name; "*" is for every tenant without a row."""

    def __init__(self, of_tenant: Mapping[str, TenantQuota]) -> None:
        self._of_tenant = of_tenant

    def replace(self, of_tenant: Mapping[str, TenantQuota]) -> None:
        """Takes other quotas from now on. Leases that are beyond them stay as what is borrowed."""
        self._of_tenant = of_tenant

    def __bool__(self) -> bool:
        return bool(self._of_tenant)

    def names(self) -> Iterable[str]:
        """Returns the tenants that have a row."""
        return self._of_tenant.keys()

    def of(self, tenant: str) -> TenantQuota:
        """Returns the quota of a tenant."""
        return self._of_tenant.get(tenant) or self._of_tenant.get(OTHERS) or TenantQuota()

    def why_not(self, request: Request) -> str:
        """Returns why a tenant may not ask so, whatever there is in the pool; "" if it may.

        A server would refuse it as well, but only after leases have made room for it.
        """
        most = self.of(request.tenant).max_priority
        if request.priority <= most:
            return ""
        return (
            f"a priority of {request.priority} was asked for, and tenant {request.tenant} may have "
            f"{most} at most; lower --priority"
        )

    def owns(self, tenant: str) -> bool:
        """Returns whether a part of the cluster is the tenant's own."""
        quota = self.of(tenant)
        return quota.share_ppm is not None or quota.memory_bytes is not None


def only_borrows(tenant: str) -> str:
    """Returns why a tenant does not get what goes beyond its quota."""
    return f"tenant {tenant} can only borrow, and another waits for its own"


class Accounts:
    """What each tenant has, and who waits for what is its own."""

    def __init__(self, quotas: Quotas, pool: Pool) -> None:
        self._quotas = quotas
        self._pool = pool
        self._largest: Largest = {}
        # Requests within their tenants' quotas that have found no card: tenant and model.
        self._owed: set[tuple[str, str]] = set()
        self.begin()

    def __bool__(self) -> bool:
        """Returns whether any tenant has a quota."""
        return bool(self._quotas)

    def begin(self) -> None:
        """Forgets who waits, because all requests in line are tried again."""
        self._owed.clear()
        self._largest = largest_cards(self._pool) if self._quotas else {}

    def borrows(self, *requests: Request) -> bool:
        """Returns whether these requests of one tenant go beyond its quota."""
        if not self._quotas:
            return False
        return bool(self._beyond(requests[0].tenant, self._wish(requests)))

    def owed(self, *requests: Request) -> bool:
        """Returns whether these requests of one tenant are together within what it owns."""
        tenant = requests[0].tenant
        owns = self._quotas.owns(tenant)
        return owns and not self._beyond(tenant, self._wish(requests))

    def beyond(self, tenant: str, gone: Use) -> bool:
        """Returns whether a tenant has more than its quota when so much of it is gone."""
        use = self._pool.usage.of(tenant)
        use.add(gone, -1)
        return bool(self._exceeds(tenant, use))

    def borrowers(self) -> dict[str, Use]:
        """Returns what the tenants have that have more than their quotas."""
        if not self._quotas:
            return {}
        usage = self._pool.usage
        return {one: usage.of(one) for one in usage.tenants() if self._exceeds(one, usage.of(one))}

    def may_grow(self, tenant: str, more: Use) -> bool:
        """Returns whether a lease of a tenant may grow now."""
        use = self._pool.usage.of(tenant)
        use.add(more)
        if not self._exceeds(tenant, use):
            return True
        return self._quotas.of(tenant).borrow and all(one == tenant for one, _ in self._owed)

    def grace_ns(self, tenant: str, usual_ns: int) -> int:
        """Returns how long before its lease ends a tenant is told."""
        seconds = self._quotas.of(tenant).grace_seconds
        return usual_ns if seconds is None else round(seconds * 1e9)

    def why_not(self, requests: Sequence[Request]) -> tuple[str, bool]:
        """Returns why these requests of one tenant may have no cards now, and whether that can
        pass; "" if they may.
        """
        tenant = requests[0].tenant
        if not self._quotas:
            return "", True
        wish = self._wish(requests)
        beyond = self._beyond(tenant, wish)
        if not beyond:
            return "", True
        quota = self._quotas.of(tenant)
        # What is borrowed must be able to return soon.
        why = _why_not_borrowed(requests, quota)
        if not quota.borrow or why:
            alone = self._exceeds(tenant, wish)
            do = "ask for less, or for a larger quota"
            if not alone:
                do = "others of its leases have to end first"
            has = f"tenant {tenant} may have {alone or beyond} in this cluster{why}"
            return f"{has}; {do}", not alone
        model = requests[0].model
        for other, theirs in sorted(self._owed):
            if other != tenant and (not model or not theirs or model == theirs):
                return only_borrows(tenant), True
        return "", True

    def not_placed(self, *requests: Request) -> None:
        """Notes that a request, or a gang, finds no cards now."""
        if self.owed(*requests):
            self._owed.update((request.tenant, request.model) for request in requests)

    def _wish(self, requests: Iterable[Request]) -> Use:
        wish = Use()
        for request in requests:
            alone = request.labels.exclusion and not request.whole
            wish.add((_whole_cards if alone else wish_of)(request, self._largest))
        return wish

    def _has(self, tenant: str) -> Use:
        """Returns what a tenant has, or keeps from others by `exclusion`: such cards count as a
        whole.
        """
        use = self._pool.usage.of(tenant)
        for one in self._pool.usage.exclusive_cards(tenant):
            card = self._pool.card(one)
            use.add(Use(card.part_ppm, card.memory_bytes))
            for holding in self._pool.holdings(one):
                if holding.tenant == tenant:
                    use.add(use_of(card, holding), -1)
        return use

    def _beyond(self, tenant: str, wish: Use) -> str:
        """Returns the bound that the tenant would pass with `wish`, in words; "" for none."""
        used = self._has(tenant)
        sum_of = Use(used.share_ppm + wish.share_ppm, used.memory_bytes + wish.memory_bytes)
        return self._exceeds(tenant, sum_of)

    def _exceeds(self, tenant: str, use: Use) -> str:
        quota = self._quotas.of(tenant)
        if quota.share_ppm is not None and use.share_ppm > quota.share_ppm:
            cards = "1 card" if quota.share_ppm == PPM else f"{quota.share_ppm / PPM:g} cards"
            return f"shares of {cards} in all"
        if quota.memory_bytes is not None and use.memory_bytes > quota.memory_bytes:
            return f"{format_bytes(quota.memory_bytes)} in all"
        return ""
