"""Where requests are placed: modes, filters, presets, several cards, explanations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from cluster.samples import GIB, PERCENT, decide, labels, node, pool_of, put, refuse, request
from rgpu_cluster.core.card import CardId
from rgpu_cluster.core.decision import excluded, why
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.filters import Reason
from rgpu_cluster.core.fragmentation import Free, Mix, Shape, gradient
from rgpu_cluster.core.paths import End, Figures, Paths
from rgpu_cluster.core.request import Client, Mode
from rgpu_cluster.core.score import PRESETS
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from rgpu_cluster.core.pool import Pool

FAST = Figures(20_000, 2_000, 10**10, 10**10, 5_000_000)
SLOW = Figures(2_000_000, 500_000, 10**8, 10**8, 200_000)
AT_HOME = Client("home", "r1", "100G")


def racks() -> Paths:
    """r1 is fast from r1, r2 is slow from r1."""
    return Paths(
        {
            (End("r1", "100G"), End("r1", "100G")): FAST,
            (End("r1", "100G"), End("r2", "100G")): SLOW,
        }
    )


def three() -> tuple:
    """The program's own node, one in its rack, one in another rack."""
    return (
        node("home", rack="r1", nic="100G"),
        node("beside", rack="r1", nic="100G"),
        node("far", rack="r2", nic="100G"),
    )


def test_the_programs_own_node_comes_first_then_its_rack_then_any() -> None:
    pool = pool_of(*three())
    order = []
    for number in range(3):
        asked = request(number, share_ppm=PPM, client=AT_HOME)
        decision = decide(pool, asked, racks())
        order.append((decision.chosen.cards[0].node, decision.chosen.mode))
        put(pool, decision.chosen.cards[0], number, share_ppm=PPM)
    assert order == [("home", Mode.LOCAL), ("beside", Mode.NEAR), ("far", Mode.ANY)]


def test_a_whole_card_at_home_is_passed_through() -> None:
    decision = decide(pool_of(*three()), request(whole=True, client=AT_HOME), racks())
    assert decision.chosen.mode is Mode.PASSTHROUGH
    assert decision.chosen.slowdown_ppm == 0


@pytest.mark.parametrize(
    ("farthest", "reasons"),
    [(Mode.LOCAL, {Reason.TOO_FAR, Reason.TIME}), (Mode.NEAR, {Reason.TOO_FAR, Reason.TIME})],
)
def test_a_request_stays_within_the_mode_that_it_names(farthest: Mode, reasons: set) -> None:
    pool = pool_of(*three())
    put(pool, ("home", 0), 1, share_ppm=PPM)
    put(pool, ("beside", 0), 2, share_ppm=PPM)
    refusal = refuse(pool, request(client=AT_HOME, farthest=farthest), racks())
    assert {one.reason for one in excluded(refusal.rejected)} == reasons
    assert refusal.possible


def test_a_path_that_slows_the_program_down_too_much_is_refused() -> None:
    pool = pool_of(node("far", rack="r2", nic="100G"))
    asked = request(client=Client("", "r1", "100G"), max_slowdown_ppm=PERCENT)
    refusal = refuse(pool, asked, racks())
    assert [one.reason for one in excluded(refusal.rejected)] == [Reason.SLOWDOWN]
    assert decide(pool, request(client=Client("", "r1", "100G")), racks()).chosen.mode is Mode.ANY


def test_the_nearer_of_two_equal_cards_is_taken_even_if_it_was_measured_long_ago() -> None:
    paths = Paths(
        {
            (End("r1", ""), End("r2", "")): Figures(50_000, 0, 10**9, 10**9, 10**6),
            (End("r1", ""), End("r3", "")): Figures(80_000, 0, 10**9, 10**9, 10**6),
        }
    )
    pool = pool_of(node("two", rack="r2"), node("three", rack="r3"))
    asked = request(client=Client("", "r1", ""))
    assert decide(pool, asked, paths).chosen.cards == (CardId("two", 0),)
    old = Figures(50_000, 0, 10**9, 10**9, 10**6, age_seconds=3600)
    paths.learn(End("r1", ""), End("r2", ""), old)
    # An hour without a measurement doubles the estimate, which now is above the other path's.
    assert decide(pool, asked, paths).chosen.cards == (CardId("three", 0),)


def test_a_path_without_a_measurement_is_estimated_from_paths_of_its_kind_and_raised() -> None:
    pool = pool_of(node("far", rack="r9", nic="100G"))
    chosen = decide(pool, request(client=Client("", "r1", "100G")), racks()).chosen
    assert not chosen.measured
    known = decide(
        pool_of(node("far", rack="r2", nic="100G")),
        request(client=Client("", "r1", "100G")),
        racks(),
    ).chosen
    assert known.measured
    assert chosen.slowdown_ppm == pytest.approx(known.slowdown_ppm * 3 / 2, rel=0.001)


def test_presets() -> None:
    pool = pool_of(node("empty"), node("half"), node("full"))
    put(pool, ("half", 0), 1, share_ppm=50 * PERCENT)
    put(pool, ("full", 0), 2, share_ppm=70 * PERCENT)
    places = {
        name: decide(pool, request(policy=SharePolicy.FIXED), weights=weights).chosen.cards[0].node
        for name, weights in PRESETS.items()
    }
    assert places["binpack"] == "full"
    assert places["spread"] == "empty"
    # 20 % left of `half` would serve no usual request; nothing is left of `full`.
    assert places["fgd"] == "full"


def test_fgd_keeps_the_idle_cards_that_the_mix_needs() -> None:
    mix = Mix(((Shape(2, PPM, PPM, True), PPM),))
    pool = pool_of(node("two", 2), node("three", 3))
    # A node with three idle cards still has two afterwards.
    chosen = decide(pool, request(), mix=mix).chosen
    assert chosen.cards[0].node == "three"


def test_labels_as_kubeshare_has_them() -> None:
    pool = pool_of(node("a"), node("b"), node("c"))
    put(pool, ("a", 0), 1, share_ppm=PERCENT, labels=labels("x"))
    put(pool, ("b", 0), 2, share_ppm=PERCENT, labels=labels(anti="y"))
    put(pool, ("c", 0), 3, share_ppm=PERCENT, labels=labels(exclusion="team"))
    assert decide(pool, request(labels=labels("x"))).chosen.cards[0].node == "a"
    assert decide(pool, request(labels=labels(anti="y"))).chosen.cards[0].node == "a"
    chosen = decide(pool, request(labels=labels(exclusion="team"))).chosen
    assert chosen.cards[0].node == "c"
    refusal = refuse(pool, request(labels=labels("z")))
    reasons = {one.reason: one.cards for one in excluded(refusal.rejected)}
    assert reasons == {Reason.AFFINITY: 2, Reason.EXCLUSION: 1}


def test_an_idle_card_takes_any_label() -> None:
    for one in (labels("x"), labels(anti="x"), labels(exclusion="x")):
        decide(pool_of(node("a")), request(labels=one))


def test_a_whole_card_needs_an_idle_one_and_keeps_others_out() -> None:
    pool = pool_of(node("a"), node("b"))
    put(pool, ("a", 0), 1, share_ppm=0)
    assert decide(pool, request(whole=True)).chosen.cards[0].node == "b"
    put(pool, ("b", 0), 2, whole=True)
    assert decide(pool, request(share_ppm=0)).chosen.cards[0].node == "a"


def test_bandwidth_of_a_network_interface_is_a_capacity() -> None:
    pool = pool_of(node("a", 2, bandwidth_bps=10_000_000_000))
    asked = request(1, bandwidth_bps=8_000_000_000)
    chosen = decide(pool, asked).chosen
    from cluster.samples import holding

    pool.take(chosen.cards[0], holding(asked), asked.bandwidth_bps)
    refusal = refuse(pool, request(2, bandwidth_bps=8_000_000_000))
    assert [one.reason for one in excluded(refusal.rejected)] == [Reason.BANDWIDTH]
    pool.release("run-1")
    decide(pool, request(2, bandwidth_bps=8_000_000_000))


def test_several_cards_lie_together_and_leave_large_parts_whole() -> None:
    pool = pool_of(node("a", 8))
    put(pool, ("a", 0), 1, whole=True)
    # Switch 0 has one card left, switches 1 to 3 have two.
    pair = decide(pool, request(2, whole=True, cards=2)).chosen.cards
    assert {card.ordinal for card in pair} == {2, 3}
    one = decide(pool, request(3, whole=True, cards=1)).chosen
    assert one.equal == 6


def test_more_cards_than_a_node_has_are_spread_over_few_nodes() -> None:
    pool = pool_of(node("a", 2), node("b", 4), node("c", 1))
    cards = decide(pool, request(whole=True, cards=6)).chosen.cards
    assert {card.node for card in cards} == {"a", "b"}
    capped = decide(pool, request(whole=True, cards=3, max_per_node=1)).chosen.cards
    assert sorted(card.node for card in capped) == ["a", "b", "c"]
    assert not refuse(pool, request(whole=True, cards=8)).possible


def test_a_mig_slice_is_only_for_who_asks_for_it() -> None:
    pool = pool_of(node("a", memory=10 * GIB, mig="1g.10gb"), node("b"))
    assert decide(pool, request()).chosen.cards[0].node == "b"
    assert decide(pool, request(mig="1g.10gb")).chosen.cards[0].node == "a"


def test_a_node_that_drains_takes_nothing_new() -> None:
    pool = pool_of(node("a", taints=frozenset({"drain"})))
    refusal = refuse(pool, request())
    assert [one.reason for one in excluded(refusal.rejected)] == [Reason.DRAINED]


def test_nodes_that_take_nothing_are_named_with_the_reason() -> None:
    drained = [node(f"n{number}", taints=frozenset({"drain"})) for number in range(9)]
    stale = node("s", taints=frozenset({"stale"}))
    more, one = excluded(refuse(pool_of(*drained, stale), request()).rejected)
    assert (more.cards, more.because) == (
        9, "is on a node that takes no new leases, because its operator drains it "
        "(n0, n1, n2, n3, ...)",
    )  # fmt: skip
    assert (one.cards, one.because) == (
        1, "is on a node that has refused or not answered, and has not reported since (s)",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"memory_bytes": 200 * GIB}, "the largest card has"),
        ({"model": "B200"}, "the pool has no B200; it has H100: name one of them with --model"),
        ({"pool": "research"}, "there is no pool 'research', nor any other; leave out --pool"),
    ],
)
def test_what_no_card_can_have_is_refused_with_what_there_is(options: dict, sentence: str) -> None:
    refusal = refuse(pool_of(node("a")), request(**options))
    assert not refusal.possible
    assert sentence in refusal.remedy


def test_an_empty_pool_says_how_a_node_joins() -> None:
    assert "rgpu serve --join" in refuse(pool_of(), request()).remedy


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"share_ppm": 2 * PPM}, "a card has 100%"),
        ({"share_ppm": PPM, "limit_ppm": PPM // 2}, "above its limit"),
        ({"labels": labels("x", "x")}, "both name 'x'"),
        ({"whole": True, "labels": labels("x")}, "leave --affinity or the whole card out"),
        ({"cards": 0}, "ask for 1 to"),
        ({"farthest": Mode.LOCAL}, "leave --local out"),
        ({"farthest": Mode.PASSTHROUGH, "client": AT_HOME}, "ask for a whole card"),
        ({"tenant": ""}, "names no tenant"),
    ],
)
def test_a_request_that_contradicts_itself_names_the_remedy(options: dict, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence.replace("(", r"\(")):
        request(**options)


def test_the_explanation_names_the_place_the_alternatives_and_the_reasons() -> None:
    pool = pool_of(*three(), node("other", model="A100"))
    decision = decide(pool, request(model="H100", client=AT_HOME), racks())
    assert why(decision.chosen) == "home/0: on the program's own node"
    assert [why(other) for other in decision.others] == [
        "beside/0: in the program's rack; 0.1 % slower over tcp (measured)",
        "far/0: on another node; 12.8 % slower over tcp (measured)",
    ]
    assert [(one.reason, one.cards) for one in excluded(decision.rejected)] == [(Reason.MODEL, 1)]


def test_a_reason_names_no_transport_of_other_machines_or_of_a_guess() -> None:
    """Figures are those of a class: two of its nodes may be on one machine, and share memory."""
    pool = pool_of(*three())
    ends = End("r1", "100G"), End("r2", "100G")
    shared = Figures(250_000, 0, 10**9, 10**9, 10**6, "shm")
    known = decide(pool, request(client=AT_HOME), Paths({ends: shared}))
    assert re.fullmatch(
        r"far/0: on another node; [0-9.]+ % slower \(measured\)", why(known.others[-1])
    )
    guessed = why(decide(pool, request(client=AT_HOME)).others[-1])
    assert re.fullmatch(
        r"far/0: on another node; [0-9.]+ % slower \(estimated, no trusted measurement of this "
        r"path\)", guessed,
    )  # fmt: skip


def test_the_same_pool_and_request_give_the_same_decision() -> None:
    first, second = (
        decide(pool_of(*(node(f"n{i}", 4) for i in range(8))), request()) for _ in "ab"
    )
    assert first == second
    cards = {
        decide(pool_of(*(node(f"n{i}", 4) for i in range(8))), request(i)).chosen.cards
        for i in range(20)
    }
    assert len(cards) > 8


@pytest.mark.parametrize(
    "left", [Free(PPM // 2, PPM), Free(PPM, PPM // 2), Free(PPM // 2, PPM // 2)]
)
def test_what_just_fits_is_not_stranded(left: Free) -> None:
    """A part that is a millionth too small is stranded, with all that is free of the card."""
    half = Mix(((Shape(1, PPM // 2, PPM // 2, False), PPM),))
    whole = Free(PPM, PPM)
    assert gradient(whole, left, 1, True, half) == 0
    for less in (Free(PPM // 2 - 1, left.memory_ppm), Free(left.time_ppm, PPM // 2 - 1)):
        assert gradient(whole, less, 1, True, half) == sum(less) // 2


BORROWERS = {
    "burst": {"policy": SharePolicy.BURST},
    "best effort": {"policy": SharePolicy.BEST_EFFORT, "share_ppm": 0},
    "a share without a limit": {},
    "no share": {"share_ppm": 0},
    "a limit above the share": {"limit_ppm": 60 * PERCENT},
    "half a card that may burst": {"share_ppm": 50 * PERCENT, "policy": SharePolicy.BURST},
    "little that may burst, with most of the memory": {
        "share_ppm": PERCENT, "policy": SharePolicy.BURST, "memory_bytes": 39 * GIB,
    },
}  # fmt: skip
GUARANTEED = {
    "fixed": {"policy": SharePolicy.FIXED},
    "the limit is the share": {"limit_ppm": 30 * PERCENT},
}


def _placed(pool: Pool, count: int, **options: Any) -> set[CardId]:
    """Places equal requests one after the other."""
    for number in range(count):
        (card,) = decide(pool, request(number, **options)).chosen.cards
        put(pool, card, number, **options)
    return {card.id for card in pool.cards() if not pool.load(card.id).idle}


@pytest.mark.parametrize("options", BORROWERS.values(), ids=BORROWERS)
def test_what_idle_time_makes_faster_is_spread_over_idle_cards(options: dict) -> None:
    assert len(_placed(pool_of(node("a"), node("b"), node("c")), 3, **options)) == 3
    assert len(_placed(pool_of(node("a", 3)), 3, **options)) == 3


@pytest.mark.parametrize("named", [{"affinity": "team"}, {"exclusion": "team"}], ids=str)
def test_who_names_company_shares_a_card_with_it(named: dict[str, str]) -> None:
    options = {"labels": labels(**named), "policy": SharePolicy.BURST}
    assert len(_placed(pool_of(node("a"), node("b"), node("c")), 3, **options)) == 1


@pytest.mark.parametrize("options", GUARANTEED.values(), ids=GUARANTEED)
def test_what_has_its_share_and_no_more_is_packed(options: dict) -> None:
    assert len(_placed(pool_of(node("a"), node("b"), node("c")), 3, **options)) == 1


def test_without_an_idle_card_idle_time_is_sought_where_there_is_most() -> None:
    pool = pool_of(node("two"), node("one"), node("guaranteed"))
    for number, (name, share) in enumerate((("two", 0), ("two", 0), ("one", 0))):
        put(pool, (name, 0), number, share_ppm=share)
    put(pool, ("guaranteed", 0), 3, share_ppm=60 * PERCENT)
    asked = request(4, policy=SharePolicy.BEST_EFFORT, share_ppm=0)
    chosen = decide(pool, asked).chosen
    assert chosen.cards == (CardId("one", 0),)
    # One neighbour takes half of what both may have.
    assert chosen.score.borrowing == PPM // 2


def test_a_limit_that_a_neighbour_leaves_is_no_reason_for_an_idle_card() -> None:
    pool = pool_of(node("busy"), node("idle"))
    put(pool, ("busy", 0), share_ppm=30 * PERCENT)
    asked = request(share_ppm=30 * PERCENT, limit_ppm=40 * PERCENT)
    chosen = decide(pool, asked).chosen
    assert (chosen.cards, chosen.score.borrowing) == ((CardId("busy", 0),), 0)


def test_an_idle_card_behind_a_slow_network_is_no_gain() -> None:
    crawling = Figures(20_000_000, 0, 10**7, 10**7, 10_000)
    paths = racks()
    paths.learn(End("r1", "100G"), End("r2", "100G"), crawling)
    pool = pool_of(node("beside", rack="r1", nic="100G"), node("far", rack="r2", nic="100G"))
    put(pool, ("beside", 0), share_ppm=0)
    asked = request(client=AT_HOME, share_ppm=0, policy=SharePolicy.BEST_EFFORT)
    assert decide(pool, asked, paths).chosen.cards == (CardId("beside", 0),)


def test_binpack_packs_also_what_idle_time_makes_faster() -> None:
    pool = pool_of(node("busy"), node("idle"))
    put(pool, ("busy", 0), share_ppm=30 * PERCENT)
    asked = request(policy=SharePolicy.BURST)
    assert decide(pool, asked, weights=PRESETS["binpack"]).chosen.cards == (CardId("busy", 0),)
