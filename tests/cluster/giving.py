"""Brute force: whether leases could give way to a request, and whether they have grown again.

Said without the functions that decide it: every set of leases of every card is looked at.
"""

from __future__ import annotations

from itertools import chain, combinations

from cluster.world import World
from rgpu_cluster.core.card import Card, Holding
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


def owed(world: World, asked: Request) -> bool:
    """Whether a request is within what its tenant owns."""
    if not world.quotas.owns(asked.tenant):
        return False
    card = next((c for c in world.manager.pool.cards() if c.mig == asked.mig), None)
    part = PPM if card is None else card.part_ppm
    share = (PPM if asked.whole else asked.share_ppm) * part // PPM
    wish = -asked.cards * share, -asked.cards * asked.memory_bytes
    return not beyond(world, asked.tenant, wish)


def _may_end(world: World, ends: tuple[Holding, ...], card: Card) -> bool:
    for tenant in {one.tenant for one in ends}:
        mine = [one for one in ends if one.tenant == tenant]
        sizes = [use_on(card, one) for one in mine]
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
        others = [
            one for one in holdings if one.tenant != asked.tenant and beyond(world, one.tenant)
        ]
    subsets = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    return any(
        _may_end(world, ends, card)
        and _room(
            card, [one for one in holdings if one not in ends], asked,
            {one.lease for one in others},
        )
        for ends in subsets
    )  # fmt: skip


def somebody_gives_way(world: World, asked: Request) -> bool:
    """Whether the rule says that leases make room for a request."""
    enough = {
        node.name: sum(_gives_way(world, card, asked) for card in node.cards)
        for node in world.manager.pool.nodes()
        if not node.taints and node.name not in asked.barred
    }
    if asked.cards > 1 and not asked.one_node:
        return False
    return any(count >= asked.cards for count in enough.values())


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
