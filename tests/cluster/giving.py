"""Brute force: whether leases could give way to a request, and whether they have grown again.

Said without the functions that decide it: every set of leases of every card is looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, combinations

from msgspec.structs import replace

from cluster.world import World
from rgpu_cluster.core.card import Card, CardId, Holding
from rgpu_cluster.core.request import Request
from rgpu_common.units import PPM


def use_on(card: Card, one: Holding) -> tuple[int, int]:
    """The time, in parts of a GPU, and the memory of one lease."""
    if one.whole:
        return card.part_ppm, card.memory_bytes
    return one.share_ppm * card.part_ppm // PPM, one.memory_bytes


def use_of_tenant(world: World, tenant: str) -> tuple[int, int]:
    """The time and memory that a tenant has of the cluster."""
    pool = world.manager.pool
    rows = [
        use_on(card, one)
        for card in pool.cards()
        for one in pool.holdings(card.id)
        if one.tenant == tenant
    ]
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def beyond(world: World, tenant: str, gone: tuple[int, int] = (0, 0)) -> bool:
    """Whether a tenant has more than its quota, if so much of it is gone."""
    quota = world.quotas.of(tenant)
    time, memory = use_of_tenant(world, tenant)
    return (quota.share_ppm is not None and time - gone[0] > quota.share_ppm) or (
        quota.memory_bytes is not None and memory - gone[1] > quota.memory_bytes
    )


def kept_from_others(world: World, tenant: str) -> tuple[int, int]:
    """What nobody else can have of the cards that a tenant has by a word for itself."""
    pool, time, memory = world.manager.pool, 0, 0
    for card in pool.cards():
        mine = [one for one in pool.holdings(card.id) if one.tenant == tenant]
        if any(one.labels.exclusion for one in mine):
            uses = [use_on(card, one) for one in mine]
            time += card.part_ppm - sum(use[0] for use in uses)
            memory += card.memory_bytes - sum(use[1] for use in uses)
    return time, memory


def owed(world: World, *asked: Request) -> bool:
    """Whether requests of one tenant are within what it owns."""
    tenant = asked[0].tenant
    if not world.quotas.owns(tenant):
        return False
    cards = {card.mig: card for card in world.manager.pool.cards()}
    time, memory = kept_from_others(world, tenant)
    for one in asked:
        card = cards.get(one.mig)
        part, size = (PPM, 0) if card is None else (card.part_ppm, card.memory_bytes)
        alone = bool(one.labels.exclusion) and not one.whole
        share = PPM if one.whole or alone else one.share_ppm
        time += one.cards * (share * part // PPM)
        memory += one.cards * (size if alone else one.memory_bytes)
    return not beyond(world, tenant, (-time, -memory))


def _borrowed(world: World, one: Holding, asked: Request) -> bool:
    return one.tenant != asked.tenant and not one.reserved and beyond(world, one.tenant)


def _may_end(world: World, ends: tuple[Holding, ...]) -> bool:
    """Whether each tenant has more than its quota until its last lease ends, with all its cards."""
    pool = world.manager.pool
    for tenant in {one.tenant for one in ends}:
        sizes = []
        for lease in {one.lease for one in ends if one.tenant == tenant}:
            there = [pool.card(card) for card in pool.leases()[lease]]
            rows = [use_on(card, h) for card in there for h in pool.holdings(card.id)
                    if h.lease == lease]  # fmt: skip
            sizes.append((sum(row[0] for row in rows), sum(row[1] for row in rows)))
        total = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        if not any(beyond(world, tenant, (total[0] - t, total[1] - m)) for t, m in sizes):
            return False
    return True


def _room(card: Card, left: list[Holding], asked: Request, owes: set[str]) -> bool:
    """Whether the request fits beside leases that are as small as they may be for it."""
    if any(one.whole for one in left) or (asked.whole and left):
        return False
    if any(one.labels.exclusion != asked.labels.exclusion for one in left):
        return False
    time = memory = 0
    for one in left:
        shrinks = one.elastic is not None and (one.priority <= asked.priority or one.lease in owes)
        assert one.elastic is not None or not shrinks
        time += min(one.share_ppm, one.elastic.least_ppm) if shrinks else one.share_ppm
        memory += min(one.memory_bytes, one.elastic.least_bytes) if shrinks else one.memory_bytes
    return time + asked.share_ppm <= PPM and memory + asked.memory_bytes <= card.memory_bytes


def _gives_way(world: World, card: Card, asked: Request) -> bool:
    if card.mig != asked.mig:
        return False
    holdings = world.manager.pool.holdings(card.id)
    others = []
    if owed(world, asked):
        others = [one for one in holdings if _borrowed(world, one, asked)]
    subsets = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    return any(
        _may_end(world, ends)
        and _room(
            card, [one for one in holdings if one not in ends], asked,
            {one.lease for one in others},
        )
        for ends in subsets
    )  # fmt: skip


def somebody_gives_way(world: World, gang: list[Request]) -> bool:
    """Whether the rule says that leases make room for a request, or for all of a gang."""
    if len(gang) > 1 or gang[0].cards > 1:
        return Giving(world, gang).possible()
    return any(
        _gives_way(world, card, gang[0])
        for node in world.manager.pool.nodes()
        if not node.taints and node.name not in gang[0].barred
        for card in node.cards
    )


@dataclass
class Giving:
    """Every set of borrowed leases that may end, and then every way to give the members cards."""

    world: World
    gang: list[Request]
    left: int = 20_000
    on: dict[CardId, list[int]] = field(default_factory=dict)
    held: dict[CardId, list[Holding]] = field(default_factory=dict)

    def possible(self) -> bool:
        """Whether there is a way. Of very many sets and ways not all are looked at."""
        pool, ends = self.world.manager.pool, self._ends()
        for ended in chain.from_iterable(combinations(ends, n) for n in range(len(ends) + 1)):
            if self._within(ended):
                self.held = {
                    card.id: [one for one in pool.holdings(card.id) if one.lease not in ended]
                    for card in pool.cards()
                    if not pool.node(card.id.node).taints
                }
                if self._place(0):
                    return True
        return False

    def _owes(self) -> bool:
        return owed(self.world, *self.gang)

    def _ends(self) -> list[str]:
        """The leases that may end; none if they are more than the manager tries all sets of."""
        pool = self.world.manager.pool
        found = {
            one.lease
            for card in pool.cards()
            for one in pool.holdings(card.id)
            if self._owes() and _borrowed(self.world, one, self.gang[0])
        }
        return sorted(found) if len(found) <= 7 else []

    def _within(self, ended: tuple[str, ...]) -> bool:
        pool = self.world.manager.pool
        held = {h.lease: h for card in pool.cards() for h in pool.holdings(card.id)}
        return _may_end(self.world, tuple(held[lease] for lease in ended))

    def _place(self, at: int) -> bool:
        if at == len(self.gang):
            return True
        asked, pool = self.gang[at], self.world.manager.pool
        fitting = [card for card in self.held if self._fits(pool.card(card), at)]
        for some in combinations(fitting, asked.cards):
            self.left -= 1
            if self.left < 0:
                return False
            if asked.one_node and len({card.node for card in some}) > 1:
                continue
            for card in some:
                self.on.setdefault(card, []).append(at)
            found = self._kept() and self._place(at + 1)
            for card in some:
                self.on[card].pop()
            if found:
                return True
        return False

    def _fits(self, card: Card, at: int) -> bool:
        asked = self.gang[at]
        if card.mig != asked.mig or card.id.node in asked.barred:
            return False
        lowest = min(one.priority for one in self.gang)
        owes = {
            one.lease
            for one in self.held[card.id]
            if self._owes() and _borrowed(self.world, one, asked)
        }
        others = [self.gang[i] for i in self.on.get(card.id, ())]
        if others and (asked.whole or any(one.whole for one in others)):
            return False
        both = replace(asked, priority=lowest)
        taken = [
            Holding(one.id, one.tenant, one.share_ppm, one.memory_bytes, one.labels, one.whole)
            for one in others
        ]
        return _room(card, [*self.held[card.id], *taken], both, owes)

    def _kept(self) -> bool:
        nodes = {card: self.world.manager.pool.node(card.node) for card in self.on}
        each = [
            (nodes[card].name, (nodes[card].zone, nodes[card].rack), nodes[card].zone)
            for card, mine in self.on.items()
            for _ in mine
        ]
        for place, name in enumerate(("max_per_node", "max_per_rack", "max_per_zone")):
            most = min(filter(None, (getattr(one, name) for one in self.gang)), default=0)
            if most and max(Counter(one[place] for one in each).values()) > most:
                return False
        return True


def check_grown(world: World) -> None:
    """No lease of a tenant without a quota is small beside free room."""
    pool = world.manager.pool
    for card in pool.cards():
        holdings = pool.holdings(card.id)
        time = sum(one.share_ppm for one in holdings)
        memory = sum(one.memory_bytes for one in holdings)
        for one in holdings:
            if one.elastic is None or world.quotas.owns(one.tenant):
                continue
            assert one.share_ppm >= one.elastic.wanted_ppm or time >= PPM, one
            assert one.memory_bytes >= one.elastic.wanted_bytes or memory >= card.memory_bytes
