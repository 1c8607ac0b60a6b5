"""Placement against a brute-force oracle on small pools, with random requests and departures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.samples import GIB, holding, node, pool_of
from rgpu_cluster.core.card import Card, CardId, Labels, Load
from rgpu_cluster.core.decision import Decision
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Client, Mode, Request
from rgpu_cluster.core.score import PRESETS
from rgpu_common.units import PPM

TENTH = PPM // 10
words = st.sampled_from(("", "x", "y"))
labels = st.builds(Labels, words, words, words).filter(
    lambda one: not one.affinity or one.affinity != one.anti_affinity
)


@st.composite
def requests(draw: st.DrawFn, number: int) -> Request:
    """A random request that does not contradict itself."""
    whole = draw(st.booleans())
    asked_labels = draw(labels)
    if whole:
        asked_labels = Labels("", asked_labels.anti_affinity, asked_labels.exclusion)
    home = draw(st.sampled_from(("", "n0")))
    one_node = draw(st.booleans())
    farthest = draw(st.sampled_from((Mode.NEAR, Mode.ANY) + ((Mode.LOCAL,) if home else ())))
    return Request(
        id=f"run-{number}",
        tenant="a",
        share_ppm=PPM if whole else draw(st.integers(0, 10)) * TENTH,
        memory_bytes=draw(st.integers(0, 10)) * GIB,
        cards=draw(st.integers(1, 3)),
        whole=whole,
        model=draw(st.sampled_from(("", "H100", "A100"))),
        client=Client(home, draw(st.sampled_from(("r0", "r1")))),
        farthest=farthest,
        labels=asked_labels,
        mig=draw(st.sampled_from(("", "", "1g.10gb"))),
        one_node=one_node,
        max_per_node=0 if one_node else draw(st.integers(0, 2)),
        max_per_rack=0 if one_node else draw(st.integers(0, 2)),
        max_per_zone=0 if one_node else draw(st.integers(0, 2)),
    )


def pools() -> Pool:
    """Eight cards on four nodes of three racks, two zones and two models; two are MIG slices.

    The racks r0 of the two zones are two racks.
    """
    return pool_of(
        node("n0", 2, 8 * GIB, rack="r0", zone="z0"),
        node("n1", 2, 8 * GIB, rack="r1", zone="z0"),
        node("n2", 1, 10 * GIB, rack="r0", zone="z1", model="A100"),
        replace(node("n3", 1, 8 * GIB, rack="r0", zone="z0"), cards=mixed("n3")),
    )


def mixed(name: str) -> tuple[Card, ...]:
    """A GPU, and two slices of another one."""
    slice_of = Card(CardId(name, 1), "H100", 10 * GIB, mig="1g.10gb", part_ppm=PPM // 7)
    return (
        Card(CardId(name, 0), "H100", 8 * GIB),
        slice_of,
        replace(slice_of, id=CardId(name, 2)),
    )


def place_of(pool: Pool, card: CardId) -> tuple[str, str, str]:
    """The node, the rack and the zone of a card."""
    there = pool.node(card.node)
    assert there is not None
    return card.node, f"{there.zone}/{there.rack}", there.zone


def keeps_bounds(pool: Pool, cards: Iterable[CardId], asked: Request) -> bool:
    """Whether so many cards of a request may be together, said by counting alone."""
    bounds = (asked.max_per_node, asked.max_per_rack, asked.max_per_zone)
    counts = Counter(p for card in cards for p in enumerate(place_of(pool, card)))
    kept = all(not bounds[level] or n <= bounds[level] for (level, _), n in counts.items())
    return kept and not (asked.one_node and len({card.node for card in cards}) > 1)


def fits(pool: Pool, card: Card, asked: Request) -> bool:
    """Whether one card can take the request, said without classes, filters or modes."""
    load: Load = pool.load(card.id)
    rack = place_of(pool, card.id)[1].partition("/")[2]
    at_home = card.id.node == asked.client.node
    near = at_home or rack == asked.client.rack
    reach = at_home or asked.farthest is Mode.ANY or (asked.farthest is Mode.NEAR and near)
    room = (
        not load.whole
        and load.used_ppm + asked.share_ppm <= PPM
        and load.used_bytes + asked.memory_bytes <= card.memory_bytes
        and not (asked.whole and load.leases)
    )
    alone = load.leases == 0
    wish = asked.labels
    labelled = alone or (
        load.exclusion == wish.exclusion
        and (not wish.anti_affinity or wish.anti_affinity not in load.anti_affinity)
        and (not wish.affinity or wish.affinity in load.affinity)
    )
    kind = asked.model in ("", card.model) and asked.mig == card.mig
    return reach and room and labelled and kind


def feasible(pool: Pool, asked: Request) -> bool:
    """Whether enough cards fit at once: every choice of cards is looked at."""
    fitting = [card.id for card in pool.cards() if fits(pool, card, asked)]
    return any(keeps_bounds(pool, some, asked) for some in combinations(fitting, asked.cards))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_fits_is_placed_and_what_is_placed_fits(data: st.DataObject) -> None:
    pool = pools()
    weights = PRESETS[data.draw(st.sampled_from(sorted(PRESETS)))]
    live: list[str] = []
    for number in range(12):
        if live and data.draw(st.integers(0, 3)) == 0:
            pool.release(live.pop(data.draw(st.integers(0, len(live) - 1))))
        asked = data.draw(requests(number))
        answer = place(pool, asked, Paths(), weights)
        assert isinstance(answer, Decision) == feasible(pool, asked), answer
        if not isinstance(answer, Decision):
            continue
        for candidate in (answer.chosen, *answer.others):
            assert len(set(candidate.cards)) == asked.cards
            assert keeps_bounds(pool, candidate.cards, asked)
            assert all(fits(pool, pool.card(card), asked) for card in candidate.cards)
        for card in answer.chosen.cards:
            pool.take(card, holding(asked))
        live.append(asked.id)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_candidate_has_a_better_score_than_the_chosen_one(data: st.DataObject) -> None:
    pool = pools()
    for number in range(6):
        asked = data.draw(requests(number))
        answer = place(pool, asked, Paths())
        if isinstance(answer, Decision):
            totals = [one.score.total for one in (answer.chosen, *answer.others)]
            assert totals == sorted(totals)
            for card in answer.chosen.cards:
                pool.take(card, holding(asked))
