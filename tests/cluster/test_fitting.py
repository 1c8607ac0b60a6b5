"""Gangs of unlike members against brute force: up to 6 cards x 8 tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

import pytest
from helpers.counts import count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.samples import GIB, PERCENT, decide, node, pool_of, put, request
from rgpu_cluster.core.card import CardId, Labels
from rgpu_cluster.core.decision import Refusal
from rgpu_cluster.core.domains import Taken, bounds_of
from rgpu_cluster.core.fitting import Slot, fit
from rgpu_cluster.core.line import Entry, shape_of
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Client, Mode, Request
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.core.together import Placed, place_all
from rgpu_common.units import PPM

MOST_CARDS = 8
# Of each seed.
EXAMPLES = count("RGPU_CLUSTER_FITS", 25)


def together(pool: Pool, *requests: Request) -> Placed | Refusal:
    entries = [Entry(one, 0, i, True, "g", len(requests)) for i, one in enumerate(requests)]
    return place_all(pool, entries, Paths(), PRESETS["fgd"])


def plain(chance: random.Random, number: int, bounds: dict[str, int], most: int) -> Request:
    """A member that asks for time, mostly of one card."""
    share = chance.choice((0, 20, 30, 40, 50, 60, 70)) * PERCENT
    cards = min(most, chance.choice((1, 1, 1, 2)))
    return request(number, share_ppm=share, memory_bytes=GIB, cards=cards, **bounds)


def picky(chance: random.Random, number: int, bounds: dict[str, int], most: int) -> Request:
    """A member that asks for all that a request may ask for."""
    whole = chance.random() < 0.1
    labelled = chance.random() < 0.2
    return request(
        number,
        share_ppm=PPM if whole else chance.choice((0, 20, 30, 40, 50, 60, 70)) * PERCENT,
        memory_bytes=chance.choice((1, 1, 3, 5, 8)) * GIB,
        whole=whole,
        cards=min(most, chance.choice((1, 1, 1, 2, 3))),
        one_node=chance.random() < 0.4 and not any(bounds.values()),
        model=chance.choice(("", "", "", "H100", "A100")),
        labels=Labels(
            "" if whole or not labelled else chance.choice(("x", "y")),
            "",
            "e" if chance.random() < 0.05 else "",
        ),
        client=Client("", chance.choice(("r0", "r1"))),
        farthest=Mode.NEAR if chance.random() < 0.1 else Mode.ANY,
        **bounds,
    )


def gang_for(pool: Pool, chance: random.Random) -> list[Request]:
    """Up to 8 members with up to 8 cards, of about as much time as the pool has."""
    bounds = {"max_per_node": chance.choice((0,) * 6 + (2, 3, 4)),
              "max_per_rack": chance.choice((0,) * 8 + (3, 4))}  # fmt: skip
    free = sum(PPM - pool.load(card.id).used_ppm for card in pool.cards())
    member = chance.choice((plain, picky))
    wanted, gang, left = free * chance.uniform(0.6, 1.05), [], MOST_CARDS
    while left and (len(gang) < 2 or wanted > 0):
        one = member(chance, len(gang), bounds, left)
        gang.append(one)
        left, wanted = left - one.cards, wanted - one.cards * one.share_ppm
    return gang


def random_pool(chance: random.Random) -> Pool:
    """Three nodes in two racks with two to six cards in all, and leases on some."""
    pool = pool_of(
        node("a", chance.randint(1, 3), 16 * GIB, rack="r0"),
        node("b", chance.randint(0, 2), 16 * GIB, rack="r1"),
        node("c", 1, 12 * GIB, rack="r0", model="A100"),
    )
    for number, card in enumerate(list(pool.cards())):
        if chance.random() < 0.2:
            word = Labels(chance.choice(("", "", "x")), "", chance.choice(("", "", "e")))
            share = chance.choice((10, 40, 60)) * PERCENT
            put(pool, card.id, 100 + number, share_ppm=share, memory_bytes=GIB, labels=word)
    return pool


@dataclass
class Brute:
    """Every way to give each member its cards."""

    pool: Pool
    gang: list[Request]
    on: dict[CardId, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agree = cache(self._agree)

    def possible(self, at: int = 0) -> bool:
        """Whether the members from `at` on fit beside the earlier ones."""
        if at == len(self.gang):
            return True
        return any(self.possible(at + 1) for _ in self._tries(at))

    def _tries(self, at: int) -> Iterator[None]:
        """Puts a member on each choice of cards in turn."""
        asked = self.gang[at]
        fitting = [card.id for card in self.pool.cards() if self._fits(card.id, at)]
        for some in combinations(fitting, asked.cards):
            if asked.one_node and len({card.node for card in some}) > 1:
                continue
            for card in some:
                self.on[card] = (*self.on.get(card, ()), at)
            if self._kept():
                yield
            for card in some:
                self.on[card] = self.on[card][:-1]

    def _fits(self, card: CardId, at: int) -> bool:
        asked, there = self.gang[at], self.pool.card(card)
        rack = self.pool.node(card.node).rack
        if asked.farthest is Mode.NEAR and rack != asked.client.rack:
            return False
        load, mine = self.pool.load(card), (*self.on.get(card, ()), at)
        time = load.used_ppm + sum(self.gang[one].share_ppm for one in mine)
        memory = load.used_bytes + sum(self.gang[one].memory_bytes for one in mine)
        alone = len(mine) == 1 and load.idle
        if any(self.gang[one].whole for one in mine) and not alone:
            return False
        room = time <= PPM and memory <= there.memory_bytes and asked.model in ("", there.model)
        return room and self.agree(card, frozenset(mine))

    def _agree(self, card: CardId, mine: frozenset[int]) -> bool:
        """Whether there is an order in which each accepts the labels of those before it."""
        return any(
            self._accepts(card, mine - {last}, last) and self.agree(card, mine - {last})
            for last in mine
        ) or not mine  # fmt: skip

    def _accepts(self, card: CardId, before: frozenset[int], last: int) -> bool:
        load, wish = self.pool.load(card), self.gang[last].labels
        others = [self.gang[one].labels for one in before]
        if load.idle and not others:
            return True
        exclusions = {one.exclusion for one in others} | ({load.exclusion} - {None})
        affinities = {*load.affinity, *(one.affinity for one in others)}
        return exclusions == {wish.exclusion} and (not wish.affinity or wish.affinity in affinities)

    def _kept(self) -> bool:
        nodes = [self.pool.node(card.node) for card, mine in self.on.items() for _ in mine]
        bounds = bounds_of(self.gang)
        sites = (
            (bounds.per_node, Counter(one.name for one in nodes)),
            (bounds.per_rack, Counter((one.zone, one.rack) for one in nodes)),
        )
        return all(not most or max(count.values()) <= most for most, count in sites)


@pytest.mark.parametrize("seed", range(20))
def test_a_gang_of_unlike_members_is_placed_if_it_can_be(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(EXAMPLES):
        pool = random_pool(chance)
        gang = gang_for(pool, chance)
        before = {card.id: pool.holdings(card.id) for card in pool.cards()}
        answer = together(pool, *gang)
        possible = Brute(pool_before(pool, before), gang).possible()
        assert isinstance(answer, Refusal) != possible, gang
        if isinstance(answer, Refusal):
            assert before == {card.id: pool.holdings(card.id) for card in pool.cards()}
        else:
            check(pool, gang, answer, before)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_gang_that_fills_all_cards_is_placed(data: st.DataObject) -> None:
    """The cards are cut into pieces, and equal pieces of several cards are one member."""
    cards = data.draw(st.integers(2, 6))
    pool = pool_of(node("a", cards // 2, 16 * GIB), node("b", cards - cards // 2, 16 * GIB))
    pieces: Counter[int] = Counter()
    for _ in range(cards):
        cut = data.draw(st.sampled_from(((100,), (50, 50), (60, 40), (30, 30, 40), (70, 30))))
        pieces.update(dict.fromkeys(cut, 1) if len(set(cut)) == len(cut) else Counter(cut))
    gang: list[Request] = []
    for share, left in sorted(pieces.items()):
        while left:
            together_of = data.draw(st.integers(1, 2)) if share == 60 and left > 1 else 1
            left -= together_of
            gang.append(
                request(len(gang), share_ppm=share * PERCENT, memory_bytes=GIB, cards=together_of)
            )
    answer = together(pool, *data.draw(st.permutations(gang)))
    assert not isinstance(answer, Refusal), gang
    assert {pool.load(card.id).used_ppm for card in pool.cards()} == {PPM}


def pool_before(pool: Pool, before: dict[CardId, tuple]) -> Pool:
    """The same pool without the gang."""
    made = Pool()
    for one in pool.nodes():
        made.report(one, {card.id: before[card.id] for card in one.cards})
    return made


def check(pool: Pool, gang: list[Request], placed: Placed, before: dict[CardId, tuple]) -> None:
    """Asserts that what was found is a way to place them."""
    brute = Brute(pool_before(pool, before), gang)
    where = {decision.request.id: decision.chosen.cards for _, decision in placed}
    for at, asked in enumerate(gang):
        cards = where[asked.id]
        assert len(set(cards)) == asked.cards
        assert not asked.one_node or len({card.node for card in cards}) == 1
        for card in cards:
            brute.on[card] = (*brute.on.get(card, ()), at)
    assert brute._kept()
    for card, mine in brute.on.items():
        brute.on[card] = mine[:-1]
        assert brute._fits(card, mine[-1])
        brute.on[card] = mine


# By hand.


def test_members_that_greed_would_put_together_are_put_apart() -> None:
    """The largest first, each on the fullest card, ends with 30 % and 30 % for a 40 %."""
    pool = pool_of(node("a", 2, 16 * GIB))
    shares = (40, 40, 30, 30, 30, 30)
    gang = [
        request(i, share_ppm=share * PERCENT, memory_bytes=GIB) for i, share in enumerate(shares)
    ]
    answer = together(pool, *gang)
    assert not isinstance(answer, Refusal)
    assert {pool.load(card.id).used_ppm for card in pool.cards()} == {PPM}


def test_equal_members_with_two_cards_each_are_not_all_put_on_the_same_two() -> None:
    pool = pool_of(node("a"), node("b"), node("c"))
    gang = [request(i, share_ppm=50 * PERCENT, cards=2) for i in range(3)]
    assert decide(pool, gang[0]).chosen.cards
    assert not isinstance(together(pool, *gang), Refusal)
    assert all(pool.load(card.id).used_ppm == PPM for card in pool.cards())


def test_a_search_that_takes_too_long_gives_up() -> None:
    """Three of 34 % do not fit on two cards, which no sum shows."""
    pool = pool_of(node("a", 6, 80 * GIB))
    gang = [
        request(i, share_ppm=(51 + i) * PERCENT, memory_bytes=GIB, max_per_node=9) for i in range(7)
    ]
    shapes = dict.fromkeys(map(shape_of, gang), True)
    there = pool.node("a")
    slots = [Slot(card, there, pool.load(card.id), shapes) for card in pool.cards()]
    assert fit(gang, slots, Taken(bounds_of(gang)), steps=100) is None
    assert fit(gang[:6], slots, Taken(bounds_of(gang))) is not None


def test_bandwidth_of_a_node_is_shared_by_its_members() -> None:
    def at(name: str, cards: int) -> object:
        return node(name, cards, 80 * GIB, bandwidth_bps=64_000)

    pool = pool_of(at("a", 2), at("b", 1))
    gang = [
        request(1, share_ppm=60 * PERCENT, bandwidth_bps=32_000),
        request(2, share_ppm=60 * PERCENT, bandwidth_bps=33_000),
        request(3, share_ppm=60 * PERCENT, bandwidth_bps=32_000),
    ]
    answer = together(pool, *gang)
    assert not isinstance(answer, Refusal)
    alone = next(d.chosen.cards for _, d in answer if d.request.id == "run-2")
    assert alone == (CardId("b", 0),)
    pool = pool_of(at("a", 2), at("b", 1))
    assert isinstance(together(pool, *gang[:2], replace(gang[1], id="run-4")), Refusal)
