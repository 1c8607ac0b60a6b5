"""Whether requests fit on cards together: a search of every way, up to a bound. Pure.

`together` first gives each request the best cards that the earlier ones left. That
finds a place for nearly all gangs, and may miss one: the first member may take the only cards that
the second can use. This search goes through the cards, and for each card through the sets of
members that the card can take at once. A state is what the members still need; one that led to
nothing is not looked at again. It counts its steps and gives up after MOST_STEPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rgpu_cluster.core import filters
from rgpu_cluster.core.card import load_with
from rgpu_cluster.core.classes import State
from rgpu_cluster.core.line import shape_of
from rgpu_cluster.core.request import Mode, holding_of
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rgpu_cluster.core.card import Card, CardId, Load
    from rgpu_cluster.core.domains import Taken
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.request import Request

# Enough for every gang of up to 8 cards in all on up to 6 cards (tests/cluster/test_fitting.py).
MOST_STEPS = 6_000
# The search looks at no more cards than this.
MOST_CARDS = 64


class Slot(Struct, frozen=True):
    """One card. load: what is on it at least. usable: which shapes may be on it, and whether they
    reserve bandwidth of its node there. bandwidth_bps: what of that is free; None: it is unknown.
    """

    card: Card
    node: Node
    load: Load
    usable: Mapping[Request, bool]
    bandwidth_bps: int | None = None


class _Used(NamedTuple):
    """What the members have taken of the zone, rack and node that the search is in."""

    zone: int = 0
    rack: int = 0
    node: int = 0
    bandwidth_bps: int = 0


# For each shape: how many cards each of its members still needs, most first, without zeros.
_Needs = tuple[tuple[int, ...], ...]
# Of a shape, how many of the members that need so many cards take the card.
_Pick = tuple[int, int, int]


class _GivenUpError(Exception):
    """The search took too many steps."""


def fit(
    requests: Sequence[Request], slots: Sequence[Slot], taken: Taken, steps: int = MOST_STEPS
) -> list[list[CardId]] | None:
    """Returns cards for each request, or None: there are none, or the search gave up.

    taken: the cards that count for the bounds already.
    """
    search = _Search(requests, slots, taken, steps)
    try:
        picks = search.run(0, search.start, _Used())
    except _GivenUpError:
        return None
    return None if picks is None else search.assign(picks)


class _Search:
    def __init__(
        self, requests: Sequence[Request], slots: Sequence[Slot], taken: Taken, steps: int
    ) -> None:
        self._members: dict[Request, list[int]] = {}
        for number, request in enumerate(requests):
            self._members.setdefault(shape_of(request), []).append(number)
        # On an idle card a member with an affinity must be the first.
        self._shapes = sorted(self._members, key=lambda shape: not shape.labels.affinity)
        self.start: _Needs = tuple(
            (shape.cards,) * len(self._members[shape]) for shape in self._shapes
        )
        self._slots = sorted(slots, key=lambda slot: (*_site(slot), slot.card.id))
        self._left = [taken.left(slot.node) for slot in self._slots]
        self._bounded = any(left is not None for one in self._left for left in one)
        self._reserves = any(
            shape.bandwidth_bps and slot.bandwidth_bps is not None
            for slot in self._slots
            for shape in self._shapes
        )
        self._usable = [[shape in slot.usable for shape in self._shapes] for slot in self._slots]
        # If nothing but room counts, a card that takes more is never worse.
        self._greedy = not (
            self._bounded or self._reserves or any(s.one_node for s in self._shapes)
        )
        self._failed: set[tuple[int, _Needs, _Used]] = set()
        self._steps = steps
        self._rest = self._sums()

    def _sums(self) -> list[tuple[int, ...]]:
        """Returns for each slot what it and the later ones have: time, memory, and how many cards
        each shape can use.
        """
        rows = [
            (
                max(PPM - slot.load.used_ppm, 0),
                max(slot.card.memory_bytes - slot.load.used_bytes, 0),
                *map(int, usable),
            )
            for slot, usable in zip(reversed(self._slots), reversed(self._usable), strict=True)
        ]
        sums = [(0,) * (len(self._shapes) + 2)]
        for row in rows:
            sums.append(tuple(map(sum, zip(sums[-1], row, strict=True))))
        return sums[::-1]

    def run(self, at: int, needs: _Needs, used: _Used) -> list[tuple[_Pick, ...]] | None:
        """Returns what each slot from `at` on takes, so that nobody needs more; else None."""
        if not any(needs):
            return []
        if self._hopeless(at, needs):
            return None
        used = self._enter(at, used)
        state = at, needs, used
        if state in self._failed:
            return None
        for picks, after, then in self._ways(at, needs, used):
            found = self.run(at + 1, after, then) if self._may_leave(at, after) else None
            if found is not None:
                return [picks, *found]
        self._failed.add(state)
        return None

    def _hopeless(self, at: int, needs: _Needs) -> bool:
        """Returns whether the slots from `at` on are too few or too full for what is needed."""
        time, memory, *usable = self._rest[at]
        for shape, wanted, most in zip(self._shapes, needs, usable, strict=True):
            if wanted and wanted[0] > most:
                return True
            cards = sum(wanted)
            time -= cards * shape.share_ppm
            memory -= cards * shape.memory_bytes
        return time < 0 or memory < 0

    def _enter(self, at: int, used: _Used) -> _Used:
        """Returns what counts at a slot: what was taken elsewhere is another place's."""
        if not at:
            return used
        here, before = _site(self._slots[at]), _site(self._slots[at - 1])
        same = [left == right for left, right in zip(here, before, strict=True)]
        return _Used(
            used.zone if same[0] else 0,
            used.rack if all(same[:2]) else 0,
            used.node if all(same) else 0,
            used.bandwidth_bps if all(same) else 0,
        )

    def _may_leave(self, at: int, needs: _Needs) -> bool:
        """Returns whether the search may go on: a request for one node has all of its cards."""
        last = at + 1 == len(self._slots) or _site(self._slots[at]) != _site(self._slots[at + 1])
        return not last or not any(
            shape.one_node and any(0 < left < shape.cards for left in wanted)
            for shape, wanted in zip(self._shapes, needs, strict=True)
        )

    def _ways(
        self, at: int, needs: _Needs, used: _Used
    ) -> Iterator[tuple[tuple[_Pick, ...], _Needs, _Used]]:
        """Yields what a slot may take, most first; what is needed then, and what is used."""
        slot = self._slots[at]
        there = [
            (number, left, needs[number].count(left))
            for number, usable in enumerate(self._usable[at])
            if usable
            for left in dict.fromkeys(needs[number])
        ]
        for picks, load in self._picks(slot, there, slot.load):
            self._steps -= 1
            if self._steps < 0:
                raise _GivenUpError
            if self._greedy and self._takes_more(slot, there, picks, load):
                continue
            then = self._use(at, picks, used)
            if then is not None:
                yield picks, _less(needs, picks), then

    def _picks(
        self, slot: Slot, there: Sequence[_Pick], load: Load
    ) -> Iterator[tuple[tuple[_Pick, ...], Load]]:
        if not there:
            yield (), load
            return
        (number, left, count), *others = there
        loads = [load]
        while len(loads) <= count:
            more = _with(slot, loads[-1], self._shapes[number])
            if more is None:
                break
            loads.append(more)
        for taken in range(len(loads) - 1, -1, -1):
            for picks, after in self._picks(slot, others, loads[taken]):
                yield (((number, left, taken), *picks) if taken else picks), after

    def _takes_more(
        self, slot: Slot, there: Sequence[_Pick], picks: Sequence[_Pick], load: Load
    ) -> bool:
        had = {(number, left): count for number, left, count in picks}
        return any(
            had.get((number, left), 0) < count
            and _with(slot, load, self._shapes[number]) is not None
            for number, left, count in there
        )

    def _use(self, at: int, picks: Sequence[_Pick], used: _Used) -> _Used | None:
        """Returns what is used when a slot takes this; None: a bound forbids it."""
        if not (self._bounded or self._reserves):
            return used
        slot, cards = self._slots[at], sum(count for _, _, count in picks)
        bandwidth = sum(
            count * self._shapes[number].bandwidth_bps
            for number, _, count in picks
            if slot.usable[self._shapes[number]]
        )
        then = _Used(
            used.zone + cards, used.rack + cards, used.node + cards, used.bandwidth_bps + bandwidth
        )
        within = all(
            left is None or count <= left
            for left, count in zip((*self._left[at], slot.bandwidth_bps), then, strict=True)
        )
        return then if within or not picks else None

    def assign(self, taken: Sequence[tuple[_Pick, ...]]) -> list[list[CardId]]:
        """Returns the cards of each request."""
        left = {number: shape.cards for shape in self._shapes for number in self._members[shape]}
        cards: dict[int, list[CardId]] = {number: [] for number in left}
        for slot, picks in zip(self._slots, taken, strict=False):
            chosen = []
            for shape, needed, count in picks:
                members = self._members[self._shapes[shape]]
                chosen += [one for one in members if left[one] == needed][:count]
            for one in chosen:
                left[one] -= 1
                cards[one].append(slot.card.id)
        return [cards[number] for number in sorted(cards)]


def _site(slot: Slot) -> tuple[str, str, str]:
    return slot.node.zone, slot.node.rack, slot.node.name


def _less(needs: _Needs, picks: Sequence[_Pick]) -> _Needs:
    """Returns what is needed after a card was given to these. The rows stay in order."""
    rows = list(needs)
    # Of a shape those that need least come last in `picks`, and nobody is to be counted twice.
    for number, left, count in reversed(picks):
        row = rows[number]
        end = row.index(left) + row.count(left)
        fewer = (left - 1,) * count if left > 1 else ()
        rows[number] = row[: end - count] + fewer + row[end:]
    return tuple(rows)


def _with(slot: Slot, load: Load, shape: Request) -> Load | None:
    """Returns the load of a card that takes one more request; None: it has no room for that."""
    if filters.of_state(State(load, 0, 0, 0), slot.card, shape, Mode.LOCAL) is not None:
        return None
    return load_with(load, holding_of(shape, slot.card.memory_bytes))
