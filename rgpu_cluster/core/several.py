"""Several cards for one request: close together on one node, else on as few nodes as possible."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from rgpu_cluster.core import topology
from rgpu_cluster.core.decision import Candidate
from rgpu_cluster.core.found import Found, order
from rgpu_cluster.core.request import Mode
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.core.score import Score, Scorer

# Two cards that are one level farther apart cost as much as a fiftieth of a card.
LEVEL_PPM = 20_000
# How many nodes are compared. The nodes of one class are equal, so a few show the differences.
NODES = 4


class Cards:
    """The cards that can take the request, with their classes."""

    def __init__(self, pool: Pool, request: Request, found: Sequence[Found]) -> None:
        self.ordered = sorted(found, key=order)
        self._pool = pool
        self._home = request.client.node
        self._barred = request.barred
        self._found = {(f.kind, f.site, f.state, f.mode <= Mode.LOCAL): f for f in found}

    def of(self, card: CardId) -> Found | None:
        """Returns the class of a card, None if the card cannot take the request."""
        if card.node in self._barred:
            return None
        where = (*self._pool.classes.where(card), card.node == self._home)
        return self._found.get(where)

    def on(self, name: str) -> list[CardId]:
        """Returns the cards of a node that can take the request."""
        node = self._pool.node(name)
        assert node is not None
        return [card.id for card in node.cards if self.of(card.id) is not None]

    def each(self) -> Iterator[CardId]:
        """Yields every card, those of the best classes first."""
        for found in self.ordered:
            for card in found.members:
                if card.node not in self._barred and (
                    found.mode <= Mode.LOCAL or card.node != self._home
                ):
                    yield card


def choose(pool: Pool, request: Request, scorer: Scorer, found: Sequence[Found]) -> list[Candidate]:
    """Returns the best places for all cards of the request, best first; empty if there is none."""
    cards = Cards(pool, request, found)
    if not request.max_per_node or request.max_per_node >= request.cards:
        on_one = [
            _candidate(pool, scorer, cards, cards.on(name), request.cards)
            for name in _nodes_with_room(request, cards)
        ]
        if on_one:
            return sorted(on_one, key=lambda candidate: (candidate.score.total, candidate.cards))
    if request.one_node:
        return []
    on_many = _on_many_nodes(request, cards, pool)
    if on_many is None:
        return []
    return [_candidate(pool, scorer, cards, on_many, request.cards)]


def _nodes_with_room(request: Request, cards: Cards) -> list[str]:
    """Returns up to NODES nodes with enough fitting cards, from the best classes on.

    All cards of one class are on nodes with the same number of idle cards, so for whole cards one
    node speaks for its class.
    """
    names: list[str] = []
    for found in cards.ordered:
        for card in found.members:
            if (
                card.node in names
                or card.node in request.barred
                or (found.mode >= Mode.NEAR and card.node == request.client.node)
            ):
                continue
            if request.whole and found.state.idle_cards < request.cards:
                break
            if len(cards.on(card.node)) >= request.cards:
                names.append(card.node)
                if request.whole:
                    break
            if len(names) == NODES:
                return names
    return names


def _on_many_nodes(request: Request, cards: Cards, pool: Pool) -> list[CardId] | None:
    """Takes the nodes with the most fitting cards, so that as few nodes as possible take part."""
    by_node: dict[str, list[CardId]] = defaultdict(list)
    for card in cards.each():
        by_node[card.node].append(card)
    cap = request.max_per_node or request.cards
    chosen: list[CardId] = []
    for name in sorted(by_node, key=lambda name: (-min(len(by_node[name]), cap), name)):
        count = min(request.cards - len(chosen), cap, len(by_node[name]))
        chosen += _closest(pool, by_node[name], count)
        if len(chosen) == request.cards:
            return chosen
    return None


def _closest(pool: Pool, cards: Sequence[CardId], count: int) -> list[CardId]:
    return [card.id for card in topology.closest([pool.card(card) for card in cards], count)]


def _candidate(
    pool: Pool, scorer: Scorer, cards: Cards, fitting: Sequence[CardId], count: int
) -> Candidate:
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


def _sum(scorer: Scorer, classes: Sequence[Found], levels: int) -> Score:
    """Returns the terms of all cards together, and of their distance from each other."""
    terms = [scorer.terms(f.kind, f.state, f.mode, f.predicted.slowdown_ppm) for f in classes]
    total = terms[0]
    for score in terms[1:]:
        total = total + score
    return replace(total, distance=scorer.weights.distance * levels * LEVEL_PPM // PPM)
