"""Requests that are placed together: all of a gang, or none."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.core import filters
from rgpu_cluster.core.decision import Decision, Refusal
from rgpu_cluster.core.domains import Taken, bounds_of
from rgpu_cluster.core.feasible import could_use
from rgpu_cluster.core.fitting import MOST_CARDS, Slot, fit
from rgpu_cluster.core.fragmentation import USUAL
from rgpu_cluster.core.line import shape_of
from rgpu_cluster.core.place import look, place
from rgpu_cluster.core.request import Mode, holding_of
from rgpu_cluster.core.score import Scorer
from rgpu_cluster.core.several import candidate_of
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rgpu_cluster.core.card import Card, CardId
    from rgpu_cluster.core.line import Entry
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.place import Look
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.core.score import Weights

# A gang that does not fit is tried in other orders: so often at most, with so many decisions.
_MOST_ORDERS, _MOST_DECISIONS = 8, 256

Placed = list[tuple["Entry", Decision]]


def place_all(
    pool: Pool,
    entries: Sequence[Entry],
    paths: Paths,
    weights: Weights,
    before: Iterable[CardId] = (),
) -> Placed | Refusal:
    """Places requests together and reserves their cards in the pool, for their next attempt.

    Those that are hardest to place come first. If one does not fit, it is placed before all others
    in a next try, because the others may have taken the only cards that it can use. If no order
    does, `fitting` searches on. Returns why one of them has no cards; then the pool is as before.
    before: cards that members of the gang have.
    """
    taken = Taken(bounds_of(entry.request for entry in entries))
    for card in before:
        _note(pool, card, taken)
    order = sorted(entries, key=_ease)
    first: Refusal | None = None
    for _ in range(_orders(order)):
        found = _place_in_order(pool, order, paths, weights, taken.copy())
        if not isinstance(found, tuple):
            return found
        failed, refusal = found
        first = first or refusal
        if failed == 0:
            break
        order.insert(0, order.pop(failed))
    assert first is not None
    requests = [entry.request for entry in entries]
    if len(requests) == 1 or not first.possible:
        return first
    if not _could_fit(pool, requests, paths):
        return replace(first, possible=False, remedy=_too_large(requests))
    return _searched(pool, entries, paths, weights, taken) or first


def _orders(entries: Sequence[Entry]) -> int:
    """Returns how many orders are tried. Members that are alike fit in each order or in none."""
    shapes = {shape_of(entry.request) for entry in entries}
    return max(min(_MOST_ORDERS, len(shapes), _MOST_DECISIONS // len(entries)), 1)


def _place_in_order(
    pool: Pool, order: Sequence[Entry], paths: Paths, weights: Weights, taken: Taken
) -> Placed | tuple[int, Refusal]:
    """Returns the places; else which entry has none, and why. Then the pool is as before."""
    placed: Placed = []
    for number, entry in enumerate(order):
        answer = place(pool, entry.request, paths, weights, taken=taken)
        if isinstance(answer, Refusal):
            for done, _ in placed:
                pool.release(done.request.id, undone=True)
            return number, answer
        _reserve(pool, entry, answer, taken)
        placed.append((entry, answer))
    return placed


def _searched(
    pool: Pool, entries: Sequence[Entry], paths: Paths, weights: Weights, taken: Taken
) -> Placed | None:
    """Places requests for which no order was right, if the search of all ways finds one."""
    looks = {
        shape_of(entry.request): look(pool, entry.request, paths, weights, taken)
        for entry in entries
    }
    found = fit([entry.request for entry in entries], _slots(pool, looks), taken)
    if found is None:
        return None
    placed: Placed = []
    for entry, chosen in zip(entries, found, strict=True):
        request = entry.request
        seen = looks[shape_of(request)]
        scorer = Scorer(request, weights, USUAL)
        best = candidate_of(pool, scorer, seen.cards, chosen, request.cards)
        decision = Decision(request, best, pool.generation, (), tuple(seen.rejected))
        placed.append((entry, decision))
    # All places were scored in the pool as it was.
    for entry, decision in placed:
        _reserve(pool, entry, decision, taken)
    return placed


def _slots(pool: Pool, looks: Mapping[Request, Look]) -> list[Slot]:
    """Returns the cards that the search looks at: as many of the best cards of each request."""
    usable: dict[CardId, dict[Request, bool]] = {}
    for seen in looks.values():
        for card in islice(seen.cards.each(), max(MOST_CARDS // len(looks), 1)):
            usable.setdefault(card, {})
    for card, there in usable.items():
        for shape, seen in looks.items():
            found = seen.cards.of(card)
            if found is not None:
                there[shape] = found.mode >= Mode.NEAR
    slots = []
    for card, there in usable.items():
        node = pool.node(card.node)
        assert node is not None, "a card of the pool is on a node of the pool"
        free = pool.free_bandwidth(node) if node.bandwidth_bps else None
        slots.append(Slot(pool.card(card), node, pool.load(card), there, free))
    return slots


def _reserve(pool: Pool, entry: Entry, decision: Decision, taken: Taken) -> None:
    request = entry.request
    bandwidth = request.bandwidth_bps if decision.chosen.mode >= Mode.NEAR else 0
    for card in decision.chosen.cards:
        memory = pool.card(card).memory_bytes
        pool.take(card, holding_of(request, memory, entry.attempt + 1), bandwidth)
        _note(pool, card, taken)


def _note(pool: Pool, card: CardId, taken: Taken) -> None:
    node = pool.node(card.node)
    if node is not None:
        taken.take(node)


def _ease(entry: Entry) -> tuple[int, int, int, int]:
    """Orders requests: those that few cards can take are first."""
    r = entry.request
    return -r.cards, -(PPM if r.whole else r.share_ppm), -r.memory_bytes, entry.number


def _could_fit(pool: Pool, requests: Sequence[Request], paths: Paths) -> bool:
    """Returns False if even an empty pool is too small for the gang. True is not certain."""
    wanted, taken = sum(request.cards for request in requests), Taken(bounds_of(requests))
    kinds = {replace(r, id="-", tenant="-", name="", cards=1, max_per_node=0, max_per_rack=0,
                     max_per_zone=0, one_node=False) for r in requests}  # fmt: skip
    for node in pool.nodes():
        usable = [request for request in kinds if could_use(node, request, paths)]
        room = sum(max((_times(card, r) for r in usable), default=0) for card in node.cards)
        count = taken.most(node, min(room, wanted))
        taken.take(node, count)
        wanted -= count
        if wanted <= 0:
            return True
    return False


def _times(card: Card, request: Request) -> int:
    """Returns how many cards of such requests one card could be at once."""
    if filters.of_kind(card, request) is not None:
        return 0
    if request.whole:
        return 1
    memory, many = request.memory_on(card.memory_bytes), 1 << 20
    by_time = PPM // request.share_ppm if request.share_ppm else many
    return min(by_time, card.memory_bytes // memory if memory else many)


def _too_large(requests: Sequence[Request]) -> str:
    cards, bounds = sum(request.cards for request in requests), bounds_of(requests)
    named = zip(bounds, ("zone", "rack", "node"), strict=True)
    limits = ", ".join(f"{most} in each {place}" for most, place in named if most)
    at_most = f" with at most {limits}" if limits else ""
    return (
        f"the pool has too few cards for the {cards} of this gang{at_most}; "
        + ("raise --max-per-rack and the like, " if limits else "make the gang smaller, ")
        + "or let other nodes join"
    )
