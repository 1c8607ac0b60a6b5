"""Who gives way to several cards or to a gang: enough for all of it, or nobody. Pure.

`pressure` says who may be asked, and by how much a lease shrinks. Here the members of a gang take
cards one after another, each those on which leases give least. If that fails, `fitting` searches
all ways, with every lease as small as it may become. Only then leases end that are borrowed: the
fewest that suffice.
"""

from __future__ import annotations

from itertools import chain, combinations, islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.core.card import load_of
from rgpu_cluster.core.fitting import MOST_CARDS, Slot, fit
from rgpu_cluster.core.line import shape_of
from rgpu_cluster.core.place import look
from rgpu_cluster.core.pressure import (
    Give,
    Way,
    giving_cards,
    harm_of,
    may_end,
    reached,
    shrunk,
    since_of,
)
from rgpu_cluster.core.request import Mode, holding_of
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.core.usage import Use

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from rgpu_cluster.core.card import CardId, Holding
    from rgpu_cluster.core.domains import Taken
    from rgpu_cluster.core.paths import Paths, Predicted
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.pressure import Rules
    from rgpu_cluster.core.request import Request

# So many sets of leases that end are tried, of so many leases at most; then one after another.
_MOST_CHOICES, _MOST_ENDS = 128, 64
# Of the cards that could serve a request, those on which leases give least are looked at.
_MOST_WAYS = 512

Plan = list[list[Way]]


def plan(pool: Pool, requests: Sequence[Request], paths: Paths, rules: Rules, taken: Taken) -> Plan:
    """Returns the cards of each request, with what leases on them give; [] if they cannot make room
    for all of them.

    Leases shrink for requests of the lowest priority of the gang. taken: the cards that count for
    its bounds already.
    """
    lowest = min(request.priority for request in requests)
    asked = [r if r.priority == lowest else replace(r, priority=lowest) for r in requests]
    table = _Table(pool, asked, paths, rules, taken)
    found = _Trial(table, taken).run()
    if found is None and rules.owed:
        found = _with_ends(table, taken)
    return found or []


class _Table:
    """What each shape of request finds: for each card that it reaches, what leases give."""

    def __init__(
        self, pool: Pool, requests: Sequence[Request], paths: Paths, rules: Rules, taken: Taken
    ) -> None:
        self.pool = pool
        self.requests = requests
        self.rules = rules
        self.shapes = {shape_of(request): request for request in requests}
        giving = giving_cards(pool, rules)
        self.reached: dict[Request, dict[CardId, tuple[Mode, Predicted]]] = {}
        for shape, request in self.shapes.items():
            # And the best of those that have room already.
            free = look(pool, request, paths, PRESETS["fgd"], taken).cards.each()
            some = giving.union(islice(free, _MOST_WAYS))
            self.reached[shape] = reached(pool, request, paths, some)
        self.ways: dict[Request, dict[CardId, Way]] = {}
        for shape, cards in self.reached.items():
            ways = (self.way(shape, card, pool.holdings(card)) for card in cards)
            best = sorted((way for way in ways if way is not None), key=_order)[:_MOST_WAYS]
            self.ways[shape] = {way.card: way for way in best}

    def way(self, shape: Request, card: CardId, holdings: Sequence[Holding]) -> Way | None:
        """Returns what the leases of a card give to one request; None: not enough."""
        at = self.reached[shape].get(card)
        there = self.pool.card(card)
        gives = None
        if at is not None:
            gives = shrunk(there, holdings, self.shapes[shape], self.rules)
        if at is None or gives is None:
            return None
        return Way(card, *at, gives, harm_of(there, gives, {h.lease: h for h in holdings}))

    def least(self, holdings: Iterable[Holding]) -> list[Holding]:
        """Returns the leases of a card, each as small as it may become."""
        return [
            replace(
                one,
                share_ppm=min(one.share_ppm, one.elastic.least_ppm),
                memory_bytes=min(one.memory_bytes, one.elastic.least_bytes),
            )
            if one.elastic is not None and self.rules.shrinks(one, self.requests[0])
            else one
            for one in holdings
        ]


def _order(way: Way) -> tuple[object, ...]:
    return way.harm, way.mode, way.predicted.slowdown_ppm, way.card


class _Trial:
    """The cards as they are when some leases have ended, and members have taken theirs."""

    def __init__(self, table: _Table, taken: Taken, ended: Collection[str] = ()) -> None:
        self._table = table
        self._pool = table.pool
        self._taken = taken
        self._ended = ended
        self._begin()

    def _begin(self) -> None:
        self._ways = {shape: dict(ways) for shape, ways in self._table.ways.items()}
        # Of cards on which something has changed: the leases, and what they give.
        self._on: dict[CardId, list[Holding]] = {}
        self._given: dict[CardId, Way] = {}
        self._bandwidth: dict[str, int] = {}
        for lease in self._ended:
            for card in self._pool.leases()[lease]:
                self._look_again(card)

    def _holdings(self, card: CardId) -> list[Holding]:
        if card not in self._on:
            held = self._pool.holdings(card)
            self._on[card] = [one for one in held if one.lease not in self._ended]
        return self._on[card]

    def _look_again(self, card: CardId) -> None:
        before = self._given.get(card)
        for shape, ways in self._ways.items():
            way = self._table.way(shape, card, self._holdings(card))
            ways.pop(card, None)
            if way is not None and before is not None:
                harm = tuple(now - had for now, had in zip(way.harm, before.harm, strict=True))
                way = replace(way, harm=harm)
            if way is not None:
                ways[card] = way

    def run(self) -> Plan | None:
        """Returns the cards of all requests, or None."""
        requests = self._table.requests
        chosen = self._one_by_one()
        if chosen is None and len(requests) > 1:
            chosen = fit(requests, self._slots(), self._taken)
            self._begin()
            for request, cards in zip(requests, chosen or (), strict=False):
                self._take(request, cards)
        return None if chosen is None else self._plan(chosen)

    def _one_by_one(self) -> list[list[CardId]] | None:
        requests, taken = self._table.requests, self._taken.copy()
        order = sorted(
            range(len(requests)), key=lambda at: (-requests[at].cards, *_size(requests[at]))
        )
        chosen: dict[int, list[CardId]] = {}
        for at in order:
            cards = self._least_harm(requests[at], taken)
            if cards is None:
                return None
            chosen[at] = cards
            self._take(requests[at], cards)
        return [chosen[at] for at in range(len(requests))]

    def _least_harm(self, request: Request, taken: Taken) -> list[CardId] | None:
        """Returns the cards for one request, and notes them in `taken`."""
        ways = sorted(self._ways[shape_of(request)].values(), key=_order)
        if not request.one_node:
            return self._from(ways, request, taken)
        on: dict[str, list[Way]] = {}
        for way in ways:
            on.setdefault(way.card.node, []).append(way)
        enough = [some for some in on.values() if len(some) >= request.cards]
        for some in sorted(enough, key=lambda some: [way.harm for way in some[: request.cards]]):
            cards = self._from(some, request, taken)
            if cards is not None:
                return cards
        return None

    def _from(self, ways: Iterable[Way], request: Request, taken: Taken) -> list[CardId] | None:
        trial, cards, reserved = taken.copy(), [], dict(self._bandwidth)
        for way in ways:
            node = self._pool.node(way.card.node)
            assert node is not None, "a way is on a node of the pool"
            wanted = request.bandwidth_bps if way.mode >= Mode.NEAR else 0
            after = reserved.get(node.name, 0) + wanted
            narrow = wanted and node.bandwidth_bps and after > self._pool.free_bandwidth(node)
            if narrow or not trial.most(node, 1):
                continue
            trial.take(node)
            reserved[node.name] = after
            cards.append(way.card)
            if len(cards) == request.cards:
                for card in cards:
                    there = self._pool.node(card.node)
                    assert there is not None
                    taken.take(there)
                return cards
        return None

    def _take(self, request: Request, cards: Iterable[CardId]) -> None:
        """Puts a member on its cards."""
        shape = shape_of(request)
        for card in cards:
            way = self._table.way(shape, card, self._holdings(card))
            assert way is not None, "a member was given a card without room"
            self._given[card] = way
            if way.mode >= Mode.NEAR:
                used = self._bandwidth.get(card.node, 0)
                self._bandwidth[card.node] = used + request.bandwidth_bps
            mine = holding_of(request, self._pool.card(card).memory_bytes)
            self._holdings(card).append(replace(mine, elastic=None))
            self._look_again(card)

    def _slots(self) -> list[Slot]:
        """Returns the cards for the search, as free as they may become."""
        self._begin()
        shapes = self._ways
        each = max(MOST_CARDS // len(shapes), 1)
        usable: dict[CardId, dict[Request, bool]] = {}
        for ways in shapes.values():
            for way in sorted(ways.values(), key=_order)[:each]:
                usable[way.card] = {}
        slots = []
        for card, there in usable.items():
            for shape, ways in shapes.items():
                if card in ways:
                    there[shape] = ways[card].mode >= Mode.NEAR
            node = self._pool.node(card.node)
            assert node is not None, "a way is on a node of the pool"
            free = self._pool.free_bandwidth(node) if node.bandwidth_bps else None
            load = load_of(self._table.least(self._holdings(card)))
            slots.append(Slot(self._pool.card(card), node, load, there, free))
        return slots

    def _plan(self, chosen: Sequence[Sequence[CardId]]) -> Plan:
        """Returns the cards with what is given on them, each gift once."""
        found: Plan = []
        open_cards = dict(self._given)
        for request, cards in zip(self._table.requests, chosen, strict=True):
            reached = self._table.reached[shape_of(request)]
            row = []
            for card in sorted(cards):
                way = open_cards.pop(card, None)
                gives = () if way is None else (*self._ends_on(card), *way.gives)
                row.append(Way(card, *reached[card], gives, ()))
            found.append(row)
        return found

    def _ends_on(self, card: CardId) -> Iterator[Give]:
        for one in self._pool.holdings(card):
            if one.lease in self._ended:
                yield Give(one.lease, card, 0, 0, ends=True)


def _size(request: Request) -> tuple[int, int]:
    return -request.share_ppm, -request.memory_bytes


# Leases that end.


def _with_ends(table: _Table, taken: Taken) -> Plan | None:
    """Returns what is possible if borrowed leases end, the fewest first."""
    order = _borrowed(table)
    sizes = range(1, len(order) + 1)
    choices = chain.from_iterable(combinations(order, size) for size in sizes)
    for ended in islice(choices, _MOST_CHOICES):
        if _may_end(table, ended):
            found = _Trial(table, taken, ended).run()
            if found is not None:
                return found
    if 2 ** len(order) - 1 <= _MOST_CHOICES:
        return None
    return _one_after_another(table, taken, order)


def _one_after_another(table: _Table, taken: Taken, order: Sequence[str]) -> Plan | None:
    """Ends leases until there is room, and then lets those go on that need not end."""
    ended: list[str] = []
    found = None
    for lease in order:
        if _may_end(table, (*ended, lease)):
            ended.append(lease)
            found = _Trial(table, taken, ended).run()
            if found is not None:
                break
    for lease in list(ended) if found is not None else ():
        fewer = [one for one in ended if one != lease]
        without = _Trial(table, taken, fewer).run()
        if without is not None:
            ended, found = fewer, without
    return found


def _borrowed(table: _Table) -> list[str]:
    """Returns the leases that may end for the requests: those that were told, then those of low
    priority, then the youngest.
    """
    pool, rules = table.pool, table.rules
    cards = set().union(*table.reached.values())
    found = {
        one.lease: one
        for card in cards
        for one in pool.holdings(card)
        if rules.ends(one, table.requests[0], Use())
    }
    order = sorted(
        found.values(),
        key=lambda h: (h.lease not in rules.told, h.priority, -since_of(h), h.lease),
    )
    return [one.lease for one in order[:_MOST_ENDS]]


def _may_end(table: _Table, leases: Collection[str]) -> bool:
    """Returns whether each tenant has more than its quota until the last of its leases ends."""
    uses: dict[str, list[Use]] = {}
    for lease in leases:
        card = next(iter(table.pool.leases()[lease]))
        had = table.pool.holding(card, lease)
        assert had is not None, "a lease is on its cards"
        uses.setdefault(had.tenant, []).append(table.rules.use(lease))
    return all(may_end(tenant, some, table.rules) for tenant, some in uses.items())
