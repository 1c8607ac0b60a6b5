"""What tenants have of a pool, kept up to date with each lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_cluster.core.card import gpu_ppm
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from rgpu_cluster.core.card import Card, Holding


@dataclass(slots=True)
class Use:
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
        # How many leases on cards may shrink.
        self.elastic = 0

    def add_card(self, card: Card, sign: int = 1) -> None:
        """Notes that a card has come; sign -1: that it is gone."""
        self.total.add(Use(card.part_ppm, card.memory_bytes), sign)

    def add(self, card: Card, holding: Holding, sign: int = 1) -> None:
        """Notes that a lease is on a card; sign -1: that it is no longer."""
        tenant = holding.tenant
        self.elastic += sign * (holding.elastic is not None)
        self._leases[tenant] = self._leases.get(tenant, 0) + sign
        self._of.setdefault(tenant, Use()).add(use_of(card, holding), sign)
        if not self._leases[tenant]:
            del self._leases[tenant], self._of[tenant]

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
