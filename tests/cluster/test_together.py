"""Gangs and bounds: what is placed together, against brute force, and by hand."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.samples import GIB, PERCENT, decide, node, pool_of, put, refuse, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Denied, Grant, Refresh, Revoke
from rgpu_cluster.core.actions import Placed as PlacedAt
from rgpu_cluster.core.card import Card, CardId, Holding
from rgpu_cluster.core.decision import Refusal, excluded
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.filters import Reason
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.line import Entry, gang_key, gang_word
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.quotas import Accounts, Quotas, TenantQuota
from rgpu_cluster.core.request import Client, Request
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.core.together import Placed, place_all
from rgpu_common.units import PPM


def racks() -> Pool:
    """Two nodes in each of two racks of zone z0, one in zone z1; each has one card."""
    sites = (("a", "r0", "z0"), ("b", "r0", "z0"), ("c", "r1", "z0"), ("d", "r1", "z0"),
             ("e", "r0", "z1"))  # fmt: skip
    return pool_of(*(node(name, rack=rack, zone=zone) for name, rack, zone in sites))


def together(pool: Pool, *requests: Request) -> Placed | Refusal:
    entries = [Entry(one, 0, i, True, "g", len(requests)) for i, one in enumerate(requests)]
    return place_all(pool, entries, Paths(), PRESETS["fgd"])


def gang(count: int, **options: object) -> list[Request]:
    return [request(number, **options) for number in range(count)]


def cards_of(placed: Placed | Refusal) -> list[CardId]:
    assert not isinstance(placed, Refusal), placed
    return [card for _, decision in placed for card in decision.chosen.cards]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("bound", "places"),
    [
        ({"max_per_rack": 1}, {("z0", "r0"), ("z0", "r1"), ("z1", "r0")}),
        ({"max_per_zone": 2, "max_per_rack": 1}, {("z0", "r0"), ("z0", "r1"), ("z1", "r0")}),
    ],
)
def test_three_cards_are_in_three_racks(
    alone: bool, bound: dict[str, int], places: set[tuple[str, str]]
) -> None:
    pool = racks()
    if alone:
        chosen = list(decide(pool, request(cards=3, **bound)).chosen.cards)
    else:
        chosen = cards_of(together(pool, *gang(3, **bound)))
    sites = [pool.node(card.node) for card in chosen]
    assert {(one.zone, one.rack) for one in sites if one is not None} == places


def test_what_a_bound_leaves_out_is_explained() -> None:
    refusal = refuse(racks(), request(cards=4, max_per_rack=1))
    assert not refusal.possible
    assert "too few racks for 4 cards with at most 1 in each" in refusal.remedy
    reasons = {one.reason: one.cards for one in excluded(refusal.rejected)}
    assert reasons == {Reason.PER_RACK: 2}
    few = refuse(pool_of(node("a", 1), node("b", 1)), request(cards=2, one_node=True))
    assert [one.reason for one in excluded(few.rejected)] == [Reason.FEW]
    assert "--across-nodes" in few.remedy


def test_a_member_finds_why_a_rack_is_closed_to_it() -> None:
    pool = racks()
    answer = together(pool, *gang(3, max_per_zone=1))
    assert isinstance(answer, Refusal)
    reasons = {one.reason: one.cards for one in excluded(answer.rejected)}
    assert reasons[Reason.PER_ZONE] == 5
    assert not answer.possible
    assert "3 of this gang with at most 1 in each zone" in answer.remedy
    assert not pool.leases()


def test_the_strictest_bound_of_a_gang_counts_for_all() -> None:
    first, second = request(1, share_ppm=PERCENT), request(2, share_ppm=PERCENT, max_per_node=1)
    chosen = cards_of(together(pool_of(node("a", 4), node("b", 4)), first, second))
    assert {card.node for card in chosen} == {"a", "b"}


def test_a_member_that_only_one_card_can_serve_is_not_kept_from_it() -> None:
    """The first one prefers the card that only the second can use."""
    pool = pool_of(node("a", model="A100"), node("b"))
    put(pool, ("a", 0), share_ppm=50 * PERCENT)
    easy = request(1, share_ppm=50 * PERCENT, limit_ppm=50 * PERCENT)
    picky = request(2, share_ppm=40 * PERCENT, model="A100")
    assert decide(pool, easy).chosen.cards == (CardId("a", 0),)
    assert sorted(cards_of(together(pool, easy, picky))) == [CardId("a", 0), CardId("b", 0)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_gang_of_equal_members_is_placed_if_it_can_be(data: st.DataObject) -> None:
    pool = racks()
    for number, name in enumerate("abcde"):
        if data.draw(st.booleans()):
            put(pool, (name, 0), 100 + number, whole=True)
    bounds = {
        f"max_per_{place}": data.draw(st.integers(0, 3)) for place in ("node", "rack", "zone")
    }
    size = data.draw(st.integers(2, 4))
    members = gang(size, share_ppm=data.draw(st.sampled_from((40, 60, 100))) * PERCENT, **bounds)
    possible = _possible(pool, members, bounds)
    answer = together(pool, *members)
    assert isinstance(answer, Refusal) != possible
    if isinstance(answer, Refusal):
        assert all(len(pool.holdings(card.id)) <= 1 for card in pool.cards())
    else:
        assert _kept(pool, cards_of(answer), bounds)


def _possible(pool: Pool, members: list[Request], bounds: dict[str, int]) -> bool:
    """Every way to give each member a card is looked at."""
    free = [card.id for card in pool.cards() if not pool.load(card.id).leases]
    share = members[0].share_ppm
    return any(
        _kept(pool, way, bounds) and max(Counter(way).values()) * share <= PPM
        for way in product(free, repeat=len(members))
    )


def _kept(pool: Pool, cards: tuple[CardId, ...] | list[CardId], bounds: dict[str, int]) -> bool:
    there = [pool.node(card.node) for card in cards]
    nodes = [one for one in there if one is not None]
    counts = (
        (bounds["max_per_node"], Counter(one.name for one in nodes)),
        (bounds["max_per_rack"], Counter((one.zone, one.rack) for one in nodes)),
        (bounds["max_per_zone"], Counter(one.zone for one in nodes)),
    )
    return all(not most or max(count.values()) <= most for most, count in counts)


def test_any_order_of_members_is_placed() -> None:
    members = [request(1, whole=True, cards=2), request(2, share_ppm=PPM), request(3, share_ppm=0)]
    for order in permutations(members):
        assert len(cards_of(together(pool_of(node("a", 2), node("b", 1)), *order))) == 4


# What a bound cannot be, and nodes that say nothing of where they are.


@pytest.mark.parametrize("place", ["node", "rack", "zone"])
def test_contradictory_bounds_are_named(place: str) -> None:
    with pytest.raises(RequestError, match=f"at most 1 in each {place}; leave one of the two out"):
        request(cards=2, one_node=True, **{f"max_per_{place}": 1})
    with pytest.raises(RequestError, match="limited to 1 or more"):
        request(**{f"max_per_{place}": -1})


def test_nodes_without_a_rack_are_one_rack() -> None:
    refusal = refuse(pool_of(node("a"), node("b")), request(cards=2, max_per_rack=1))
    assert "nodes without a rack count as one rack" in refusal.remedy


def test_the_better_of_few_nodes_and_near_nodes_is_taken() -> None:
    pool = pool_of(
        node("far", 2, rack="r9"), node("n1", rack="r1"), node("n2", rack="r1"),
        node("n3", rack="r1"),
    )  # fmt: skip
    asked = request(cards=3, client=Client("", "r1"), whole=True)
    assert {card.node for card in decide(pool, asked).chosen.cards} == {"n1", "n2", "n3"}


# The manager.


def manager_with(*nodes: str, limits: Limits | None = None) -> Manager:
    manager = Manager(limits=limits)
    for name in nodes:
        manager.handle(ev.NodeReported(node(name), {}), 0)
    return manager


def test_each_node_is_told_the_place_of_its_first_card() -> None:
    manager = Manager()
    manager.handle(ev.NodeReported(node("a", 2), {}), 0)
    manager.handle(ev.NodeReported(node("b", 1), {}), 0)
    said = manager.handle(ev.Asked(request(whole=True, cards=3)), 0)
    grants = {one.node: one for one in said if isinstance(one, Grant)}
    assert {name: (one.first_place, len(one.cards)) for name, one in grants.items()} == {
        "a": (0, 2),
        "b": (2, 1),
    }


def test_a_lease_of_an_equal_attempt_on_another_node_is_revoked() -> None:
    """The manager was started again, and has placed the request before that node came back."""
    manager = manager_with("a")
    asked = request(1, whole=True)
    said = manager.handle(ev.Asked(asked), 0)
    assert [(one.node, one.attempt) for one in said if isinstance(one, Grant)] == [("a", 1)]
    old = Holding(asked.id, "a", PPM, asked.memory_bytes, whole=True, attempt=1)
    said = manager.handle(ev.NodeReported(node("b"), {CardId("b", 0): (old,)}), 0)
    assert [(one.node, one.attempt) for one in said if isinstance(one, Revoke)] == [("b", 1)]


def test_a_lease_of_an_equal_attempt_on_another_card_is_revoked() -> None:
    manager = Manager()
    two = node("a", 2)
    manager.handle(ev.NodeReported(two, {}), 0)
    asked = request(1, whole=True)
    said = manager.handle(ev.Asked(asked), 0)
    (card,) = next(one.cards for one in said if isinstance(one, Grant))
    other = CardId("a", 1 - card.ordinal)
    old = Holding(asked.id, "a", PPM, asked.memory_bytes, whole=True, attempt=1)
    report = ev.NodeReported(replace(two, generation=2), {other: (old,)})
    said = manager.handle(report, 0)
    assert [(one.node, one.attempt) for one in said if isinstance(one, Revoke)] == [("a", 1)]


def test_a_node_that_was_silent_for_too_long_is_asked_for_a_report() -> None:
    manager = manager_with("a", limits=Limits(silence_ns=SECOND))
    manager.handle(ev.Tick(), SECOND)
    manager.handle(ev.Tick(), 3 * SECOND)
    assert manager.pool.node("a") is None
    assert manager.handle(ev.NodeBeat("a", 1), 3 * SECOND) == [Refresh("a")]


def test_a_gang_that_no_pool_could_take_is_denied_although_it_waits() -> None:
    manager = manager_with("a", "b")
    said = []
    for one in gang(3, whole=True):
        said = manager.handle(ev.Asked(one, wait=True, gang="g", gang_size=3), 0)
    denied = [one.why for one in said if isinstance(one, Denied)]
    assert len(denied) == 3
    assert "too few cards for the 3 of this gang; make the gang smaller" in denied[0]


def test_the_rest_of_a_gang_follows_those_that_were_taken_over() -> None:
    """The manager was killed when only one of three members had been granted its card."""
    manager = Manager()
    asked = gang(3, whole=True, max_per_rack=1)
    old = Holding(asked[0].id, "a", PPM, asked[0].memory_bytes, whole=True, attempt=1)
    for name, held in (("a", {CardId("a", 0): (old,)}), ("b", {}), ("c", {}), ("d", {})):
        there = node(name, rack="r0" if name in "ab" else f"r-{name}")
        manager.handle(ev.NodeReported(there, held), 0)
    said = []
    for one in asked:
        said += manager.handle(ev.Asked(one, wait=True, gang="g", gang_size=3), 0)
    assert [one.id for one in said if isinstance(one, PlacedAt)] == [asked[0].id]
    # Rack r0 has its card already.
    assert {one.node for one in said if isinstance(one, Grant)} == {"c", "d"}


def test_a_gang_whose_member_is_being_revoked_waits_for_that() -> None:
    """The lease of an earlier attempt still takes room."""
    manager = manager_with("a", "b")
    asked = gang(2, whole=True)
    for one in asked:
        said = manager.handle(ev.Asked(one, wait=True, gang="g", gang_size=2), 0)
    grants = [one for one in said if isinstance(one, Grant)]
    manager.handle(ev.Granted(grants[0].request.id, grants[0].node, 1, 2), 0)
    failed = ev.GrantFailed(grants[1].request.id, grants[1].node, 1, "no", certain=True)
    said = manager.handle(failed, 0)
    assert [one for one in said if isinstance(one, Grant)] == []
    manager.handle(ev.Tick(), 20 * SECOND)
    refreshed = replace(node(grants[1].node), generation=2)
    manager.handle(ev.NodeReported(refreshed, {}), 20 * SECOND)
    said = manager.handle(ev.Revoked(grants[0].request.id, grants[0].node, 1), 20 * SECOND)
    assert {one.attempt for one in said if isinstance(one, Grant)} == {2}


# Slices.


def carved() -> Pool:
    """A GPU of 80 GiB, and seven slices of another one."""
    whole = Card(CardId("a", 0), "H100", 80 * GIB)
    slices = [
        Card(CardId("a", 1 + i), "H100", 10 * GIB, mig="1g.10gb", part_ppm=PPM // 7)
        for i in range(7)
    ]
    return pool_of(replace(node("a"), cards=(whole, *slices)))


def test_slices_and_gpus_are_told_apart() -> None:
    pool = carved()
    assert decide(pool, request(memory_bytes=GIB)).chosen.cards == (CardId("a", 0),)
    chosen = decide(pool, request(memory_bytes=GIB, mig="1g.10gb", cards=7, whole=True)).chosen
    assert {card.ordinal for card in chosen.cards} == set(range(1, 8))
    said = refuse(pool, request(mig="2g.20gb")).remedy
    assert said == "no card is a MIG slice 2g.20gb; name one of 1g.10gb with --mig"
    said = refuse(pool, request(mig="1g.10gb", memory_bytes=20 * GIB)).remedy
    assert "the largest card has 10 GiB" in said
    assert "all cards are MIG slices" in refuse(
        pool_of(node("b", mig="1g.10gb")), request()
    ).remedy  # fmt: skip


def test_a_slice_counts_as_its_part_of_a_gpu() -> None:
    pool = carved()
    for number in range(1, 8):
        put(pool, ("a", number), number, whole=True, memory_bytes=10 * GIB)
    assert pool.usage.dominant_share("a") == pytest.approx(PPM // 2, rel=0.1)
    accounts = Accounts(Quotas({"a": TenantQuota(share_ppm=PPM)}), pool)
    why, _ = accounts.why_not([request(9, share_ppm=10 * PERCENT, mig="1g.10gb")])
    assert "shares of 1 card in all" in why
    pool.release("run-7")
    accounts = Accounts(Quotas({"a": TenantQuota(share_ppm=PPM)}), pool)
    assert accounts.why_not([request(9, whole=True, mig="1g.10gb")]) == ("", True)


PRINTABLE = st.text(st.sampled_from("ab/:.\\| "), min_size=1, max_size=8)


@given(PRINTABLE, PRINTABLE, PRINTABLE, PRINTABLE)
def test_no_tenant_joins_another_ones_gang(a: str, train: str, b: str, word: str) -> None:
    """Tenant `team` with gang `a/train` completed gang `train` of tenant `team/a`."""
    assert gang_key("team", "a/train") != gang_key("team/a", "train")
    assert (gang_key(a, train) == gang_key(b, word)) == ((a, train) == (b, word))
    assert gang_word(gang_key(a, train)) == train
    assert gang_key(a, "") == ""
