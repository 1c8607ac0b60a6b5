"""Who gives way to a request that finds no card, and by how much. Pure.

A lease is elastic if its owner said the least that it accepts. It shrinks for requests of at least
its own priority, and never below that least. If the tenant that asks is owed the cards, leases of
tenants beyond their quotas shrink whatever their priority, and end if that is not enough.
"""

from __future__ import annotations

from itertools import chain, combinations, islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

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
    from rgpu_cluster.core.node import Site
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


class Way(Struct, frozen=True):
    """One card, how far it is, and what leases on it give. No gives: the card has room already."""

    card: CardId
    mode: Mode
    predicted: Predicted
    gives: tuple[Give, ...]
    harm: tuple[int, ...]


class Rules(Struct, frozen=True):
    """Who may be asked.

    busy: leases that give way to somebody else already. beyond: whether a tenant has more than its
    quota, if so much of it is gone. use: what ends with a lease. owed: the asking tenant is within
    its quota. told: leases that were told that they end for this request.
    """

    beyond: Callable[[str, Use], bool]
    use: Callable[[str], Use] = lambda lease: Use()
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
    """Returns the card for a request of one on which the least harm is done; [] if leases cannot
    make room.
    """
    found = []
    for card, at in reached(pool, request, paths, giving_cards(pool, rules)).items():
        there, held = pool.card(card), pool.holdings(card)
        gives = on_card(there, held, request, rules)
        if gives is not None:
            harm = harm_of(there, gives, {one.lease: one for one in held})
            found.append(Way(card, at[0], at[1], gives, harm))
    found.sort(key=lambda way: (way.harm, way.mode, way.predicted.slowdown_ppm, way.card))
    return found[:1]


def giving_cards(pool: Pool, rules: Rules) -> set[CardId]:
    """Returns the cards on which a lease might give way to somebody."""
    usage = pool.usage
    found = set(usage.elastic_cards())
    if rules.owed:
        for tenant in usage.tenants():
            if rules.beyond(tenant, Use()):
                found.update(usage.cards_of(tenant))
    return found


def reached(
    pool: Pool, request: Request, paths: Paths, cards: Iterable[CardId]
) -> dict[CardId, tuple[Mode, Predicted]]:
    """Returns those of the cards that could serve a request, and how far they are."""
    on: dict[str, list[CardId]] = {}
    for card in cards:
        on.setdefault(card.node, []).append(card)
    sites: dict[Site, tuple[Mode, Predicted] | None] = {}
    found = {}
    for name, some in on.items():
        node = pool.node(name)
        if node is None or name in request.barred:
            continue
        site = site_of(node)
        if name == request.client.node:
            at = _home(site, request)
        else:
            if site not in sites:
                sites[site] = _reach(site, request, paths)
            at = sites[site]
            if node.bandwidth_bps and pool.free_bandwidth(node) < request.bandwidth_bps:
                continue
        if at is not None:
            usable = (card for card in some if filters.of_kind(pool.card(card), request) is None)
            found.update(dict.fromkeys(usable, at))
    return found


def _home(site: Site, request: Request) -> tuple[Mode, Predicted] | None:
    """Returns how far the program's own node is, None if it takes no new leases."""
    mode = Mode.PASSTHROUGH if request.whole else Mode.LOCAL
    return None if filters.of_site(site) is not None else (mode, HERE)


def _reach(site: Site, request: Request, paths: Paths) -> tuple[Mode, Predicted] | None:
    """Returns how far nodes of a site are from the program; None: they are too far, or take no new
    leases.
    """
    if filters.of_site(site) is not None:
        return None
    client = request.client
    mode = Mode.NEAR if client.rack and client.rack == site.rack else Mode.ANY
    predicted = paths.predict(client, site, request.profile)
    if filters.of_mode(mode, predicted.slowdown_ppm, request) is not None:
        return None
    return mode, predicted


def harm_of(card: Card, gives: Iterable[Give], holdings: dict[str, Holding]) -> tuple[int, ...]:
    """Orders ways: few ends, of low priority and late grants; then little that shrinks."""
    ends = [holdings[give.lease] for give in gives if give.ends]
    taken = 0
    for give in gives:
        had = holdings[give.lease]
        taken += had.share_ppm - give.share_ppm
        taken += (had.memory_bytes - give.memory_bytes) * PPM // card.memory_bytes
    highest = max((one.priority for one in ends), default=0)
    latest = min((since_of(one) for one in ends), default=0)
    return len(ends), highest, -latest, taken


def since_of(holding: Holding) -> int:
    """Returns when a lease was granted, in seconds since 1970."""
    # One whose daemon has not said since when it has the lease is the youngest.
    return holding.since or 1 << 62


def on_card(
    card: Card, holdings: Sequence[Holding], request: Request, rules: Rules
) -> tuple[Give, ...] | None:
    """Returns what the leases of a card give, or None: they cannot make room for the request."""
    smaller = shrunk(card, holdings, request, rules)
    if smaller is not None or not rules.owed:
        return smaller
    order = sorted(
        (h for h in holdings if rules.ends(h, request, Use())),
        key=lambda h: (h.lease not in rules.told, h.priority, -since_of(h), h.lease),
    )
    for ended in _fewest(order, rules):
        left = [one for one in holdings if one not in ended]
        smaller = shrunk(card, left, request, rules)
        if smaller is not None:
            return (*(Give(one.lease, card.id, 0, 0, ends=True) for one in ended), *smaller)
    return None


def _fewest(order: Sequence[Holding], rules: Rules) -> Iterator[tuple[Holding, ...]]:
    """Yields the leases that may end together, few first. Of very many leases not all choices."""
    sizes = range(1, len(order) + 1)
    choices = chain.from_iterable(combinations(order, size) for size in sizes)
    for ended in chain(islice(choices, _MOST_CHOICES), (tuple(order[:n]) for n in sizes)):
        tenants = {one.tenant for one in ended}
        if all(
            may_end(t, [rules.use(h.lease) for h in ended if h.tenant == t], rules) for t in tenants
        ):
            yield ended


def use_of_lease(pool: Pool, lease: str) -> Use:
    """Returns what ends with a lease, on all of its cards."""
    use = Use()
    for card in pool.leases()[lease]:
        had = pool.holding(card, lease)
        assert had is not None, "a lease is on its cards"
        use.add(use_of(pool.card(card), had))
    return use


def may_end(tenant: str, uses: Sequence[Use], rules: Rules) -> bool:
    """Returns whether a tenant has more than its quota until the last of its leases ends.

    uses: what ends with each of them.
    """
    gone = Use()
    for use in uses:
        gone.add(use)
    for last in uses:
        others = Use(gone.share_ppm, gone.memory_bytes)
        others.add(last, -1)
        if rules.beyond(tenant, others):
            return True
    return False


def shrunk(
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
    rows.sort(key=lambda row: (-row[1].priority, row[0], since_of(row[1]), row[1].lease))
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
