"""Places one request: filters, then scores, classes of cards. Pure; `place` is the entrance."""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rgpu_cluster.core import feasible, filters, several
from rgpu_cluster.core.decision import MOST_NODES, Candidate, Decision, Refusal, Rejected
from rgpu_cluster.core.domains import Taken, bounds_of
from rgpu_cluster.core.found import Found, order
from rgpu_cluster.core.fragmentation import USUAL, Mix
from rgpu_cluster.core.paths import HERE, Paths, Predicted
from rgpu_cluster.core.request import Mode
from rgpu_cluster.core.score import PRESETS, Scorer, Weights

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.classes import Kind, Members, State
    from rgpu_cluster.core.node import Site
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

# How many alternatives an explanation shows.
ALTERNATIVES = 3


class Search:
    """One look at all classes of a pool for one request.

    taken: what other requests have that are placed together with it. closed: the nodes of which it
    takes no card, and why.
    """

    def __init__(
        self, pool: Pool, paths: Paths, request: Request, scorer: Scorer, taken: Taken
    ) -> None:
        self.found: list[Found] = []
        self.rejected: list[Rejected] = []
        self.taken = taken
        self.closed = dict.fromkeys(taken.full_nodes(), filters.Reason.PER_NODE)
        self.closed |= dict.fromkeys(sorted(request.barred), filters.Reason.BARRED)
        self._pool = pool
        self.paths = paths
        self._request = request
        self._scorer = scorer
        # The program's own node is judged by itself: it is nearer than the site it belongs to.
        self._home: dict[tuple[Kind, Site, State], tuple[CardId, ...]] = {}
        if request.client.node not in self.closed:
            for card in _cards_of(pool, request.client.node):
                where = pool.classes.where(card)
                self._home[where] = (*self._home.get(where, ()), card)
        self._closed = Counter(
            (pool.classes.where(card), reason)
            for name, reason in self.closed.items()
            for card in _cards_of(pool, name)
        )

    def run(self) -> None:
        """Fills `found` and `rejected`."""
        for kind, site, states in self._pool.classes.groups():
            reason = filters.of_kind(kind, self._request) or filters.of_site(site)
            reason = reason or self.taken.of_site(site)
            if reason is not None:
                named = reason in filters.OF_NODE
                self.rejected += (
                    Rejected(reason, len(members), _nodes_of(members) if named else ())
                    for members in states.values()
                )
                continue
            for where, cards in self._home.items():
                if where[:2] == (kind, site):
                    mode = Mode.PASSTHROUGH if self._request.whole else Mode.LOCAL
                    self._consider(mode, HERE, kind, site, {where[2]: cards}, {})
            self._elsewhere(kind, site, states)

    def _elsewhere(self, kind: Kind, site: Site, states: Mapping[State, Members]) -> None:
        """Considers the cards that are not on the program's own node."""
        client = self._request.client
        without = {
            where[2]: len(cards) for where, cards in self._home.items() if where[:2] == (kind, site)
        }
        for (where, why), count in self._closed.items():
            if where[:2] == (kind, site):
                without[where[2]] = without.get(where[2], 0) + count
                self.rejected.append(Rejected(why, count))
        mode = Mode.NEAR if client.rack and client.rack == site.rack else Mode.ANY
        predicted = self.paths.predict(client, site, self._request.profile)
        reason = filters.of_mode(mode, predicted.slowdown_ppm, self._request)
        if reason is None:
            self._consider(mode, predicted, kind, site, states, without)
            return
        for state, members in states.items():
            self.rejected.append(Rejected(reason, len(members) - without.get(state, 0)))

    def _consider(
        self,
        mode: Mode,
        predicted: Predicted,
        kind: Kind,
        site: Site,
        states: Mapping[State, Members | tuple[CardId, ...]],
        without: Mapping[State, int],
    ) -> None:
        """Filters and scores the classes of one kind and site, less `without` cards of each."""
        request, near = self._request, self._scorer.near
        far = self._scorer.far(mode, predicted.slowdown_ppm)
        for state, members in states.items():
            count = len(members)
            if without and count == without.get(state):
                continue
            reason = filters.of_state(state, kind, request, mode)
            if reason is None:
                total = far + near(kind, state)
                self.found.append(Found(total, mode, predicted, kind, site, state, members))
            else:
                self.rejected.append(Rejected(reason, count - without.get(state, 0)))


def _nodes_of(members: Members) -> tuple[str, ...]:
    """Returns the nodes of some cards of a class: of more than are named, if there are more."""
    names: dict[str, None] = {}
    for card in members:
        names[card.node] = None
        if len(names) > MOST_NODES:
            break
    return tuple(names)


def _cards_of(pool: Pool, name: str) -> list[CardId]:
    node = pool.node(name)
    return [] if node is None else [card.id for card in node.cards]


def place(
    pool: Pool,
    request: Request,
    paths: Paths,
    weights: Weights = PRESETS["fgd"],
    mix: Mix = USUAL,
    taken: Taken | None = None,
) -> Decision | Refusal:
    """Returns where a request is placed, or why it cannot be placed now.

    taken: what other requests have that are placed together with it; without it, it is alone.
    """
    scorer = Scorer(request, weights, mix)
    search = Search(pool, paths, request, scorer, taken or Taken(bounds_of([request])))
    search.run()
    if request.cards > 1:
        cards = several.Cards(pool, request, search.found, search.closed, search.taken)
        chosen = several.choose(pool, request, scorer, cards)
        if not chosen:
            search.rejected += several.left_out(pool, request, cards)
        return _answer(pool, request, search, chosen)
    best = heapq.nsmallest(ALTERNATIVES + 1, search.found, key=order)
    chosen = [_candidate(request, scorer, found, search.closed) for found in best]
    return _answer(pool, request, search, chosen)


def fits(pool: Pool, request: Request, paths: Paths, card: CardId) -> bool:
    """Returns whether a card can take a request for one."""
    node = pool.node(card.node)
    if node is None or card.node in request.barred:
        return False
    kind, site, state = pool.classes.where(card)
    if filters.of_kind(kind, request) is not None or filters.of_site(site) is not None:
        return False
    client = request.client
    mode = Mode.NEAR if client.rack and client.rack == site.rack else Mode.ANY
    if client.node == card.node:
        mode = Mode.PASSTHROUGH if request.whole else Mode.LOCAL
    if filters.of_state(state, kind, request, mode) is not None:
        return False
    slowdown = paths.predict(client, site, request.profile).slowdown_ppm
    return filters.of_mode(mode, slowdown, request) is None


class Look(NamedTuple):
    """The cards that can take a request, and why the others cannot."""

    cards: several.Cards
    rejected: list[Rejected]


def look(pool: Pool, request: Request, paths: Paths, weights: Weights, taken: Taken) -> Look:
    """Returns all cards that can take a request, without choosing.

    taken: what other requests have that are placed together with it.
    """
    search = Search(pool, paths, request, Scorer(request, weights, USUAL), taken)
    search.run()
    cards = several.Cards(pool, request, search.found, search.closed, search.taken)
    return Look(cards, search.rejected)


def _candidate(request: Request, scorer: Scorer, found: Found, closed: Container[str]) -> Candidate:
    number = zlib.crc32(request.id.encode())
    card = found.pick(number, request.client.node, closed)
    slowdown = found.predicted.slowdown_ppm
    return Candidate(
        cards=(card,),
        mode=found.mode,
        slowdown_ppm=slowdown,
        transport=found.predicted.transport,
        measured=found.predicted.measured,
        score=scorer.terms(found.kind, found.state, found.mode, slowdown),
        equal=len(found.members) - 1,
    )


def _answer(
    pool: Pool, request: Request, search: Search, chosen: list[Candidate]
) -> Decision | Refusal:
    if chosen:
        return Decision(
            request, chosen[0], pool.generation, tuple(chosen[1:]), tuple(search.rejected)
        )
    possible = feasible.would_fit(pool.nodes(), request, search.paths)
    remedy = feasible.WAITS if possible else feasible.remedy(pool, request, search.paths)
    return Refusal(request, pool.generation, tuple(search.rejected), possible, remedy)
