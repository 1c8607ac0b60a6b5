"""Several cards for one request: close together on one node, else on as few nodes as possible."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.core import topology
from rgpu_cluster.core.decision import Candidate, Rejected
from rgpu_cluster.core.filters import Reason
from rgpu_cluster.core.found import Found, order
from rgpu_cluster.core.request import Mode
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.domains import Taken
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.core.score import Score, Scorer

# Two cards that are one level farther apart cost as much as a fiftieth of a card.
LEVEL_PPM = 20_000
# How many nodes are compared. The nodes of one class are equal, so a few show the differences.
NODES = 4


class Cards:
    """The cards that can take the request, with their classes.

    closed: nodes of which it takes none. taken: what the other requests of its gang have.
    """

    def __init__(
        self,
        pool: Pool,
        request: Request,
        found: Sequence[Found],
        closed: Container[str],
        taken: Taken,
    ) -> None:
        self.ordered = sorted(found, key=order)
        self.taken = taken
        self._pool = pool
        self._home = request.client.node
        self._closed = closed
        self._found = {(f.kind, f.site, f.state, f.mode <= Mode.LOCAL): f for f in found}

    def of(self, card: CardId) -> Found | None:
        """Returns the class of a card, None if the card cannot take the request."""
        if card.node in self._closed:
            return None
        where = (*self._pool.classes.where(card), card.node == self._home)
        return self._found.get(where)

    def on(self, name: str) -> list[CardId]:
        """Returns the cards of a node that can take the request."""
        return [card.id for card in self.node(name).cards if self.of(card.id) is not None]

    def node(self, name: str) -> Node:
        """Returns a node of the pool."""
        node = self._pool.node(name)
        assert node is not None
        return node

    def each(self) -> Iterator[CardId]:
        """Yields every card, those of the best classes first."""
        for found in self.ordered:
            for card in found.members:
                if card.node not in self._closed and (
                    found.mode <= Mode.LOCAL or card.node != self._home
                ):
                    yield card

    def by_node(self) -> dict[str, list[CardId]]:
        """Returns every card by its node, the nodes with cards of the best classes first."""
        found: dict[str, list[CardId]] = defaultdict(list)
        for card in self.each():
            found[card.node].append(card)
        return found


def choose(pool: Pool, request: Request, scorer: Scorer, cards: Cards) -> list[Candidate]:
    """Returns the best places for all cards of the request, best first; empty if there is none."""
    on_one = [
        candidate_of(pool, scorer, cards, cards.on(name), request.cards)
        for name in _nodes_with_room(request, cards)
    ]
    if on_one or request.one_node:
        return sorted(on_one, key=_rank)
    by_node = cards.by_node()
    # The fewest nodes, and the nodes with the best cards.
    fullest = sorted(by_node, key=lambda name: (-_most(cards, by_node, name), name))
    ways = [
        _on_nodes(pool, cards, by_node, names, request.cards, cards.taken.copy())
        for names in (fullest, list(by_node))
    ]
    chosen = {tuple(sorted(way)) for way in ways if len(way) == request.cards}
    places = (candidate_of(pool, scorer, cards, some, request.cards) for some in chosen)
    return sorted(places, key=_rank)


def left_out(pool: Pool, request: Request, cards: Cards) -> Iterator[Rejected]:
    """Yields why cards are of no use which could take the request if they were enough."""
    by_node = cards.by_node()
    if request.one_node:
        if by_node:
            yield Rejected(Reason.FEW, sum(map(len, by_node.values())))
        return
    taken, every = cards.taken.copy(), sum(map(len, by_node.values()))
    used = set(_on_nodes(pool, cards, by_node, by_node, every, taken))
    for name, some in by_node.items():
        reason = taken.why_not(cards.node(name))
        if reason is not None:
            yield Rejected(reason, len(set(some) - used))


def _nodes_with_room(request: Request, cards: Cards) -> list[str]:
    """Returns up to NODES nodes with enough fitting cards, from the best classes on.

    All cards of one class are on nodes with the same number of idle cards, so for whole cards one
    node speaks for its class.
    """
    names: list[str] = []
    tried: set[str] = set()
    for found in cards.ordered:
        for card in found.members:
            if card.node in tried or cards.of(card) is not found:
                continue
            if request.whole and found.state.idle_cards < request.cards:
                break
            tried.add(card.node)
            if cards.taken.most(cards.node(card.node), request.cards) < request.cards:
                continue
            if len(cards.on(card.node)) >= request.cards:
                names.append(card.node)
                if request.whole:
                    break
            if len(names) == NODES:
                return names
    return names


def _most(cards: Cards, by_node: dict[str, list[CardId]], name: str) -> int:
    return cards.taken.most(cards.node(name), len(by_node[name]))


def _on_nodes(
    pool: Pool,
    cards: Cards,
    by_node: dict[str, list[CardId]],
    names: Iterable[str],
    wanted: int,
    taken: Taken,
) -> list[CardId]:
    """Takes `wanted` cards of the nodes in this order, or as many as `taken` allows."""
    chosen: list[CardId] = []
    for name in names:
        node = cards.node(name)
        count = taken.most(node, min(wanted - len(chosen), len(by_node[name])))
        if count:
            taken.take(node, count)
            chosen += _closest(pool, by_node[name], count)
    return chosen


def _closest(pool: Pool, cards: Sequence[CardId], count: int) -> list[CardId]:
    return [card.id for card in topology.closest([pool.card(card) for card in cards], count)]


def candidate_of(
    pool: Pool, scorer: Scorer, cards: Cards, fitting: Sequence[CardId], count: int
) -> Candidate:
    """Returns the place that `count` of these cards of a node, or exactly these cards, are."""
    chosen = tuple(sorted(_closest(pool, fitting, count) if len(fitting) > count else fitting))
    classes = [found for found in map(cards.of, chosen) if found is not None]
    farthest = max(classes, key=lambda found: (found.mode, found.predicted.slowdown_ppm))
    levels = topology.spread_of([pool.card(card) for card in chosen])
    return Candidate(
        cards=chosen,
        mode=farthest.mode,
        slowdown_ppm=farthest.predicted.slowdown_ppm,
        transport=farthest.predicted.transport,
        measured=farthest.predicted.measured,
        score=_sum(scorer, classes, levels),
    )


def _rank(candidate: Candidate) -> tuple[int, tuple[CardId, ...]]:
    return candidate.score.total, candidate.cards


def _sum(scorer: Scorer, classes: Sequence[Found], levels: int) -> Score:
    """Returns the terms of all cards together, and of their distance from each other."""
    terms = [scorer.terms(f.kind, f.state, f.mode, f.predicted.slowdown_ppm) for f in classes]
    total = terms[0]
    for score in terms[1:]:
        total = total + score
    return replace(total, distance=scorer.weights.distance * levels * LEVEL_PPM // PPM)
