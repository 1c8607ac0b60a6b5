"""What tenants may have of the whole cluster, and when one may borrow what is another's.

A tenant within its quota is owed its cards. It may hold more if it borrows, but only while no other
tenant waits for cards that it is owed. Nothing is taken back: what is borrowed returns when its
lease ends. A reservation may last long, so it never borrows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_cluster.core.card import gpu_ppm
from rgpu_common.key_kinds import Flag, MaybeDevices, MaybeSize
from rgpu_common.keys import key
from rgpu_common.units import PPM, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

OTHERS = "*"


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


@dataclass(slots=True)
class Use:
    """What a tenant has, or asks for."""

    share_ppm: int = 0
    memory_bytes: int = 0

    def add(self, other: Use) -> None:
        """Adds what another has."""
        self.share_ppm += other.share_ppm
        self.memory_bytes += other.memory_bytes


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
    """What each tenant has while requests are dealt out."""

    def __init__(self, quotas: Quotas, pool: Pool) -> None:
        self._quotas = quotas
        self._used: dict[str, Use] = {}
        self._largest = largest_cards(pool)
        # Requests within their tenants' quotas that have found no card: tenant and model.
        self._owed: list[tuple[str, str]] = []
        for card in pool.cards() if quotas else ():
            for holding in pool.holdings(card.id):
                self._of(holding.tenant).add(Use(gpu_ppm(card, holding), holding.memory_bytes))

    def borrows(self, request: Request) -> bool:
        """Returns whether the request goes beyond its tenant's quota."""
        return bool(self._quotas) and bool(self._beyond(request.tenant, self._wish([request])))

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
        for other, theirs in self._owed:
            if other != tenant and (not model or not theirs or model == theirs):
                return f"tenant {tenant} can only borrow, and another waits for its own", True
        return "", True

    def placed(self, request: Request) -> None:
        """Notes that a request has cards."""
        self._of(request.tenant).add(self._wish([request]))

    def not_placed(self, request: Request) -> None:
        """Notes that a request finds no card now."""
        if self._quotas.owns(request.tenant) and not self.borrows(request):
            self._owed.append((request.tenant, request.model))

    def _of(self, tenant: str) -> Use:
        return self._used.setdefault(tenant, Use())

    def _wish(self, requests: Iterable[Request]) -> Use:
        wish = Use()
        for request in requests:
            wish.add(wish_of(request, self._largest))
        return wish

    def _beyond(self, tenant: str, wish: Use) -> str:
        """Returns the bound that the tenant would pass with `wish`, in words; "" for none."""
        used = self._of(tenant)
        sum_of = Use(used.share_ppm + wish.share_ppm, used.memory_bytes + wish.memory_bytes)
        return self._exceeds(tenant, sum_of)

    def _exceeds(self, tenant: str, use: Use) -> str:
        quota = self._quotas.of(tenant)
        if quota.share_ppm is not None and use.share_ppm > quota.share_ppm:
            return f"shares of {quota.share_ppm / PPM:g} cards in all"
        if quota.memory_bytes is not None and use.memory_bytes > quota.memory_bytes:
            return f"{format_bytes(quota.memory_bytes)} in all"
        return ""
