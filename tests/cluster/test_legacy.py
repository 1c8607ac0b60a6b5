"""The orders of KubeShare, gpushare and GPUManager, against cases worked by hand."""

from __future__ import annotations

from cluster.samples import GIB, PERCENT, labels, node, pool_of, put, request
from rgpu_cluster.core.card import Card, CardId
from rgpu_cluster.core.legacy import choose
from rgpu_cluster.core.node import Node
from rgpu_common.units import PPM


def test_kubeshare_takes_the_card_that_leaves_the_least_device_time() -> None:
    pool = pool_of(node("a"), node("b"), node("c"))
    put(pool, ("a", 0), 1, share_ppm=40 * PERCENT)
    put(pool, ("b", 0), 2, share_ppm=60 * PERCENT)
    # 30 % leaves 30, 10 and 70 %.
    assert choose(pool, request(), "kubeshare") == (CardId("b", 0),)


def test_kubeshare_with_an_affinity_takes_the_emptiest_card_that_has_it() -> None:
    pool = pool_of(node("a"), node("b"), node("c"))
    put(pool, ("a", 0), 1, share_ppm=40 * PERCENT, labels=labels("x"))
    put(pool, ("b", 0), 2, share_ppm=60 * PERCENT, labels=labels("x"))
    assert choose(pool, request(labels=labels("x")), "kubeshare") == (CardId("a", 0),)
    # Nobody has y: an idle card.
    assert choose(pool, request(labels=labels("y")), "kubeshare") == (CardId("c", 0),)


def test_gpushare_takes_the_card_with_the_least_free_memory_that_has_room() -> None:
    pool = pool_of(node("a", 3, 16 * GIB))
    put(pool, ("a", 0), 1, share_ppm=0, memory_bytes=10 * GIB)
    put(pool, ("a", 1), 2, share_ppm=0, memory_bytes=6 * GIB)
    # 6, 10 and 16 GiB are free.
    asked = {gib: choose(pool, request(memory_bytes=gib * GIB), "gpushare") for gib in (4, 8, 12)}
    assert asked == {4: (CardId("a", 0),), 8: (CardId("a", 1),), 12: (CardId("a", 2),)}


def test_gpumanager_orders_nodes_by_free_cores_then_memory_then_name() -> None:
    pool = pool_of(node("c", 2), node("b", 2), node("a", 3))
    assert choose(pool, request(), "gpumanager") == (CardId("b", 0),)
    put(pool, ("c", 1), 1, share_ppm=50 * PERCENT)
    # Node c has the fewest free cores now; on it the fuller card is taken.
    assert choose(pool, request(), "gpumanager") == (CardId("c", 1),)


def test_gpumanager_shares_by_cores_memory_processes_and_number() -> None:
    pool = pool_of(node("a", 4))
    put(pool, ("a", 1), 1, share_ppm=20 * PERCENT, memory_bytes=4 * GIB)
    put(pool, ("a", 2), 2, share_ppm=20 * PERCENT, memory_bytes=8 * GIB)
    # Cards 1 and 2 have 80 % left, card 2 the less memory.
    assert choose(pool, request(), "gpumanager") == (CardId("a", 2),)


def test_gpumanager_takes_a_whole_card_from_the_part_with_the_fewest_free_ones() -> None:
    pool = pool_of(node("a", 8))
    put(pool, ("a", 4), 1, whole=True)
    assert choose(pool, request(whole=True), "gpumanager") == (CardId("a", 5),)


def test_gpumanager_links_cards_that_meet_at_the_lowest_level() -> None:
    switches = ("s0", "s0", "s1", "s1")
    cards = tuple(
        Card(CardId("a", i), "H100", 80 * GIB, location=("n", switch))
        for i, switch in enumerate(switches)
    )
    pool = pool_of(Node("a", 1, cards))
    put(pool, ("a", 0), 1, whole=True)
    assert choose(pool, request(whole=True, cards=2), "gpumanager") == (
        CardId("a", 2),
        CardId("a", 3),
    )
    # Three cards meet only at the node's NUMA level.
    three = choose(pool, request(whole=True, cards=3), "gpumanager")
    assert {card.ordinal for card in three} == {1, 2, 3}


def test_no_room_gives_no_card() -> None:
    pool = pool_of(node("a"))
    put(pool, ("a", 0), 1, share_ppm=PPM)
    for order in ("kubeshare", "gpushare", "gpumanager"):
        assert choose(pool, request(), order) == ()
