"""Who gives way to a request that finds no card, and by how much. Pure.

A lease is elastic if its owner said the least that it accepts. It shrinks for requests of at least
its own priority, and never below that least. If the tenant that asks is owed the cards, leases of
tenants beyond their quotas shrink whatever their priority, and end if that is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import TYPE_CHECKING, NamedTuple

from rgpu_cluster.core import filters
from rgpu_cluster.core.card import load_of
from rgpu_cluster.core.node import site_of
from rgpu_cluster.core.paths import HERE
from rgpu_cluster.core.request import Mode
from rgpu_cluster.core.usage import Use, use_of
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rgpu_cluster.core.card import Card, CardId, Holding
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Paths, Predicted
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

# How many sets of leases of one card are looked at to find the fewest that have to end.
_MOST_CHOICES = 512


class Give(NamedTuple):
    """What one lease gives on one card: what it has afterwards. ends: it ends."""

    lease: str
    card: CardId
    share_ppm: int
    memory_bytes: int
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """One card, how far it is, and what leases on it give. No gives: the card has room already."""

    card: CardId
    mode: Mode
    predicted: Predicted
    gives: tuple[Give, ...]
    harm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may be asked.

    busy: leases that give way to somebody else already. beyond: whether a tenant has more than its
    quota, if so much of it is gone. owed: the asking tenant is within its quota. told: leases that
    were told that they end for this request.
    """

    beyond: Callable[[str, Use], bool]
    owed: bool = False
    busy: Collection[str] = ()
    told: Collection[str] = ()

    def shrinks(self, holding: Holding, request: Request) -> bool:
        """Returns whether a lease shrinks for a request."""
        if holding.elastic is None or holding.lease in self.busy:
            return False
        return holding.priority <= request.priority or self.ends(holding, request, Use())

    def ends(self, holding: Holding, request: Request, gone: Use) -> bool:
        """Returns whether a lease ends for a request, after so much of its tenant's is gone."""
        if not self.owed or holding.tenant == request.tenant or holding.lease in self.busy:
            return False
        # A reservation was within its tenant's quota when it was made.
        return bool(holding.attempt) and not holding.reserved and self.beyond(holding.tenant, gone)


def ways(pool: Pool, request: Request, paths: Paths, rules: Rules) -> list[Way]:
    """Returns the cards for a request, those first on which the least harm is done; [] if leases
    cannot make room.
    """
    found = [
        way
        for node in pool.nodes()
        if node.name not in request.barred and filters.of_site(site_of(node)) is None
        for way in _on_node(pool, node, request, paths, rules)
    ]
    found.sort(key=lambda way: (way.harm, way.mode, way.predicted.slowdown_ppm, way.card))
    if request.cards == 1:
        return found[:1]
    return _together(found, request) if request.one_node else []


def _together(found: Sequence[Way], request: Request) -> list[Way]:
    """Returns the cards of one node for a request of several."""
    on: dict[str, list[Way]] = {}
    for way in found:
        on.setdefault(way.card.node, []).append(way)
    enough = [some[: request.cards] for some in on.values() if len(some) >= request.cards]
    return min(enough, key=lambda some: [way.harm for way in some], default=[])


def _on_node(pool: Pool, node: Node, request: Request, paths: Paths, rules: Rules) -> Iterable[Way]:
    client = request.client
    predicted = paths.predict(client, site_of(node), request.profile)
    mode = Mode.NEAR if client.rack and client.rack == node.rack else Mode.ANY
    if client.node == node.name:
        mode, predicted = (Mode.PASSTHROUGH if request.whole else Mode.LOCAL), HERE
    elif node.bandwidth_bps and pool.free_bandwidth(node) < request.bandwidth_bps:
        return
    if filters.of_mode(mode, predicted.slowdown_ppm, request) is not None:
        return
    for card in node.cards:
        if filters.of_kind(card, request) is None:
            gives = on_card(card, pool.holdings(card.id), request, rules)
            if gives is not None:
                by_lease = {h.lease: h for h in pool.holdings(card.id)}
                yield Way(card.id, mode, predicted, gives, _harm(card, gives, by_lease))


def _harm(card: Card, gives: Iterable[Give], holdings: dict[str, Holding]) -> tuple[int, ...]:
    """Orders ways: few ends, of low priority and late grants; then little that shrinks."""
    ends = [holdings[give.lease] for give in gives if give.ends]
    taken = 0
    for give in gives:
        had = holdings[give.lease]
        taken += had.share_ppm - give.share_ppm
        taken += (had.memory_bytes - give.memory_bytes) * PPM // card.memory_bytes
    highest = max((one.priority for one in ends), default=0)
    latest = min((_since(one) for one in ends), default=0)
    return len(ends), highest, -latest, taken


def _since(holding: Holding) -> int:
    # One whose daemon has not said since when it has the lease is the youngest.
    return holding.since or 1 << 62


def on_card(
    card: Card, holdings: Sequence[Holding], request: Request, rules: Rules
) -> tuple[Give, ...] | None:
    """Returns what the leases of a card give, or None: they cannot make room for the request."""
    shrunk = _shrunk(card, holdings, request, rules)
    if shrunk is not None:
        return shrunk
    order = sorted(
        (h for h in holdings if rules.ends(h, request, Use())),
        key=lambda h: (h.lease not in rules.told, h.priority, -_since(h), h.lease),
    )
    for ended in _fewest(card, order, rules):
        left = [one for one in holdings if one not in ended]
        shrunk = _shrunk(card, left, request, rules)
        if shrunk is not None:
            return (*(Give(one.lease, card.id, 0, 0, ends=True) for one in ended), *shrunk)
    return None


def _fewest(card: Card, order: Sequence[Holding], rules: Rules) -> Iterator[tuple[Holding, ...]]:
    """Yields the leases that may end together, few first. Of very many leases not all choices."""
    sizes = range(1, len(order) + 1)
    choices = chain.from_iterable(combinations(order, size) for size in sizes)
    for ended in chain(islice(choices, _MOST_CHOICES), (tuple(order[:n]) for n in sizes)):
        tenants = {one.tenant for one in ended}
        if all(_may_end([h for h in ended if h.tenant == t], card, rules) for t in tenants):
            yield ended


def _may_end(leases: Sequence[Holding], card: Card, rules: Rules) -> bool:
    """Returns whether a tenant has more than its quota until the last of these leases ends."""
    for last in leases:
        gone = Use()
        for one in leases:
            if one is not last:
                gone.add(use_of(card, one))
        if rules.beyond(last.tenant, gone):
            return True
    return False


def _shrunk(
    card: Card, holdings: Sequence[Holding], request: Request, rules: Rules
) -> tuple[Give, ...] | None:
    """Returns how leases shrink so that the request has room beside them, or None: it has not."""
    load = load_of(list(holdings))
    if load.whole or (request.whole and load.leases):
        return None
    if load.leases and filters.of_labels(load, request.labels) is not None:
        return None
    time = max(load.used_ppm + request.share_ppm - PPM, 0)
    wanted = request.memory_on(card.memory_bytes)
    memory = max(load.used_bytes + wanted - card.memory_bytes, 0)
    gives = []
    # Borrowed first, then those of low priority; of equal ones who has most beyond its least.
    order = sorted(
        (h for h in holdings if rules.shrinks(h, request)),
        key=lambda h: (not rules.ends(h, request, Use()), h.priority, -_slack(h), h.lease),
    )
    for holding in order:
        if not time and not memory:
            break
        assert holding.elastic is not None
        less = min(time, max(holding.share_ppm - holding.elastic.least_ppm, 0))
        fewer = min(memory, max(holding.memory_bytes - holding.elastic.least_bytes, 0))
        if less or fewer:
            time, memory = time - less, memory - fewer
            left = holding.share_ppm - less, holding.memory_bytes - fewer
            gives.append(Give(holding.lease, card.id, *left))
    return None if time or memory else tuple(gives)


def _slack(holding: Holding) -> int:
    assert holding.elastic is not None
    return holding.share_ppm - holding.elastic.least_ppm


def growth(
    card: Card, holdings: Sequence[Holding], may: Callable[[Holding, Use], bool]
) -> list[Give]:
    """Returns how leases that have shrunk grow into the free room of a card: those of high priority
    first, then those that have least of what they asked for, then the oldest. may: whether a lease
    may have so much more.
    """
    load = load_of(list(holdings))
    time, memory = PPM - load.used_ppm, card.memory_bytes - load.used_bytes
    rows = [(_part(one), one) for one in holdings if one.elastic is not None]
    rows.sort(key=lambda row: (-row[1].priority, row[0], _since(row[1]), row[1].lease))
    grown = []
    for _, one in rows:
        assert one.elastic is not None
        more = min(max(one.elastic.wanted_ppm - one.share_ppm, 0), max(time, 0))
        larger = min(max(one.elastic.wanted_bytes - one.memory_bytes, 0), max(memory, 0))
        if (more or larger) and one.attempt and may(one, Use(more, larger)):
            time, memory = time - more, memory - larger
            grown.append(Give(one.lease, card.id, one.share_ppm + more, one.memory_bytes + larger))
    return grown


def _part(one: Holding) -> int:
    """Returns the smaller part of what it asked for that a lease has, in ppm."""
    assert one.elastic is not None
    time = one.share_ppm * PPM // (one.elastic.wanted_ppm or 1)
    return min(time, one.memory_bytes * PPM // (one.elastic.wanted_bytes or 1), PPM)
