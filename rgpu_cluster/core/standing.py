"""How each tenant that the operator has named stands against its quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_cluster.core.quotas import OTHERS, Quotas, TenantQuota, largest_cards, wish_of
from rgpu_cluster.core.usage import Use, use_of

if TYPE_CHECKING:
    from rgpu_cluster.core.line import Line
    from rgpu_cluster.core.pool import Pool


class Standing(Struct):
    """reserved: the part of what it has. waits: what its requests in line ask for."""

    quota: TenantQuota
    has: Use = field(default_factory=Use)
    reserved: Use = field(default_factory=Use)
    waits: Use = field(default_factory=Use)

    @property
    def borrowed(self) -> Use:
        """What it has beyond its quota."""
        quota = self.quota
        share = 0 if quota.share_ppm is None else self.has.share_ppm - quota.share_ppm
        memory = 0 if quota.memory_bytes is None else self.has.memory_bytes - quota.memory_bytes
        return Use(max(share, 0), max(memory, 0))


def standings_of(quotas: Quotas, pool: Pool, line: Line) -> dict[str, Standing]:
    """Returns the standing of each tenant with a table of its own, so that their number is bounded
    by the configuration and not by the clients.
    """
    found = {
        name: Standing(quotas.of(name), has=pool.usage.of(name))
        for name in quotas.names()
        if name != OTHERS
    }
    if not found:
        return found
    for card in pool.cards():
        for holding in pool.holdings(card.id):
            standing = found.get(holding.tenant)
            if standing is not None and holding.reserved:
                standing.reserved.add(use_of(card, holding))
    largest = largest_cards(pool)
    for entry in line:
        standing = found.get(entry.request.tenant)
        if standing is not None:
            standing.waits.add(wish_of(entry.request, largest))
    return found
