"""What tenants may have of the whole cluster, and when one may borrow what is another's.

A tenant within its quota is owed its cards. It may hold more if it borrows, but only while no other
tenant waits for cards that it is owed. What is borrowed is taken back: leases shrink or end for a
tenant that is owed the room (`pressure`). A reservation may last long, so it never borrows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_cluster.core.usage import Use
from rgpu_common.key_kinds import Flag, MaybeDevices, MaybeSeconds, MaybeSize
from rgpu_common.keys import key
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
        "memory", MaybeSize(), None,
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


class Quotas:
    """The quotas of a cluster. of_tenant: by name; "*" is for every tenant without a row."""

    def __init__(self, of_tenant: Mapping[str, TenantQuota]) -> None:
        self._of_tenant = of_tenant

    def __bool__(self) -> bool:
        return bool(self._of_tenant)

    def names(self) -> Iterable[str]:
        """Returns the tenants that have a row."""
        return self._of_tenant.keys()

    def of(self, tenant: str) -> TenantQuota:
        """Returns the quota of a tenant."""
        return self._of_tenant.get(tenant) or self._of_tenant.get(OTHERS) or TenantQuota()

    def owns(self, tenant: str) -> bool:
        """Returns whether a part of the cluster is the tenant's own."""
        quota = self.of(tenant)
        return quota.share_ppm is not None or quota.memory_bytes is not None


class Accounts:
    """What each tenant has, and who waits for what is its own."""

    def __init__(self, quotas: Quotas, pool: Pool) -> None:
        self._quotas = quotas
        self._pool = pool
        self._largest: Largest = {}
        # Requests within their tenants' quotas that have found no card: tenant and model.
        self._owed: set[tuple[str, str]] = set()
        self.begin()

    def begin(self) -> None:
        """Forgets who waits, because all requests in line are tried again."""
        self._owed.clear()
        self._largest = largest_cards(self._pool) if self._quotas else {}

    def borrows(self, request: Request) -> bool:
        """Returns whether the request goes beyond its tenant's quota."""
        return bool(self._quotas) and bool(self._beyond(request.tenant, self._wish([request])))

    def owed(self, request: Request) -> bool:
        """Returns whether the request is within what its tenant owns."""
        return self._quotas.owns(request.tenant) and not self.borrows(request)

    def beyond(self, tenant: str, gone: Use) -> bool:
        """Returns whether a tenant has more than its quota when so much of it is gone."""
        use = self._pool.usage.of(tenant)
        use.add(gone, -1)
        return bool(self._exceeds(tenant, use))

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
        if not quota.borrow or any(request.reserved for request in requests):
            alone = self._exceeds(tenant, wish)
            least = "" if not quota.borrow else ", and borrows for runs alone, not to reserve"
            return f"tenant {tenant} may have {alone or beyond} in this cluster{least}", not alone
        model = requests[0].model
        for other, theirs in sorted(self._owed):
            if other != tenant and (not model or not theirs or model == theirs):
                return f"tenant {tenant} can only borrow, and another waits for its own", True
        return "", True

    def not_placed(self, request: Request) -> None:
        """Notes that a request finds no card now."""
        if self.owed(request):
            self._owed.add((request.tenant, request.model))

    def _wish(self, requests: Iterable[Request]) -> Use:
        wish = Use()
        for request in requests:
            wish.add(wish_of(request, self._largest))
        return wish

    def _beyond(self, tenant: str, wish: Use) -> str:
        """Returns the bound that the tenant would pass with `wish`, in words; "" for none."""
        used = self._pool.usage.of(tenant)
        sum_of = Use(used.share_ppm + wish.share_ppm, used.memory_bytes + wish.memory_bytes)
        return self._exceeds(tenant, sum_of)

    def _exceeds(self, tenant: str, use: Use) -> str:
        quota = self._quotas.of(tenant)
        if quota.share_ppm is not None and use.share_ppm > quota.share_ppm:
            return f"shares of {quota.share_ppm / PPM:g} cards in all"
        if quota.memory_bytes is not None and use.memory_bytes > quota.memory_bytes:
            return f"{format_bytes(quota.memory_bytes)} in all"
        return ""
