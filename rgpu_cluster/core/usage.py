"""What tenants have of a pool, kept up to date with each lease."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_cluster.core.card import gpu_ppm
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rgpu_cluster.core.card import Card, CardId, Holding


class Use(Struct):
    """What a tenant has, or asks for."""

    share_ppm: int = 0
    memory_bytes: int = 0

    def add(self, other: Use, sign: int = 1) -> None:
        """Adds what another has; sign -1: takes it away."""
        self.share_ppm += sign * other.share_ppm
        self.memory_bytes += sign * other.memory_bytes


def use_of(card: Card, holding: Holding) -> Use:
    """Returns what a lease has of a card. One that has the card alone has all of it."""
    memory = card.memory_bytes if holding.whole else holding.memory_bytes
    return Use(gpu_ppm(card, holding), memory)


class Usage:
    """What each tenant has, and what there is in all."""

    def __init__(self) -> None:
        self.total = Use()
        self._of: dict[str, Use] = {}
        self._leases: dict[str, int] = {}
        # Tenant -> how many of its leases are on each card; and of those of all that may shrink.
        self._cards_of: dict[str, Counter[CardId]] = {}
        self._elastic: Counter[CardId] = Counter()
        # Tenant -> how many of its leases on each card share it with leases of one word alone.
        self._exclusive: dict[str, Counter[CardId]] = {}

    def elastic_cards(self) -> Collection[CardId]:
        """Returns the cards with a lease that may shrink."""
        return self._elastic.keys()

    def cards_of(self, tenant: str) -> Collection[CardId]:
        """Returns the cards of a tenant's leases."""
        return self._cards_of.get(tenant, {}).keys()

    def exclusive_cards(self, tenant: str) -> Collection[CardId]:
        """Returns the cards that a tenant keeps from leases without its word for `exclusion`."""
        return self._exclusive.get(tenant, {}).keys()

    def add_card(self, card: Card, sign: int = 1) -> None:
        """Notes that a card has come; sign -1: that it is gone."""
        self.total.add(Use(card.part_ppm, card.memory_bytes), sign)

    def add(self, card: Card, holding: Holding, sign: int = 1) -> None:
        """Notes that a lease is on a card; sign -1: that it is no longer."""
        tenant = holding.tenant
        if holding.elastic is not None:
            _count(self._elastic, card.id, sign)
        _count(self._cards_of.setdefault(tenant, Counter()), card.id, sign)
        if holding.labels.exclusion:
            _count(self._exclusive.setdefault(tenant, Counter()), card.id, sign)
            if not self._exclusive[tenant]:
                del self._exclusive[tenant]
        self._leases[tenant] = self._leases.get(tenant, 0) + sign
        self._of.setdefault(tenant, Use()).add(use_of(card, holding), sign)
        if not self._leases[tenant]:
            del self._leases[tenant], self._of[tenant], self._cards_of[tenant]

    def tenants(self) -> Iterable[str]:
        """Returns the tenants that have leases."""
        return self._of

    def of(self, tenant: str) -> Use:
        """Returns what a tenant has."""
        use = self._of.get(tenant)
        return Use() if use is None else Use(use.share_ppm, use.memory_bytes)

    def dominant_share(self, tenant: str) -> int:
        """Returns the larger part of the pool that a tenant has, of time or memory, in ppm."""
        use = self._of.get(tenant)
        if use is None:
            return 0
        time = use.share_ppm * PPM // self.total.share_ppm
        return max(time, use.memory_bytes * PPM // self.total.memory_bytes)


def _count(counts: Counter[CardId], card: CardId, sign: int) -> None:
    counts[card] += sign
    if not counts[card]:
        del counts[card]
