"""The pool: reports, generations, leases and classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.samples import GIB, PERCENT, holding, node, pool_of, put, request
from rgpu_cluster.core.card import Card, CardId
from rgpu_cluster.core.errors import PoolError
from rgpu_cluster.core.node import Node
from rgpu_common.units import PPM


def test_a_report_replaces_what_was_known_of_the_node() -> None:
    pool = pool_of(node("a", 2))
    put(pool, ("a", 0), 1)
    held = {CardId("a", 1): [holding(request(2))]}
    assert pool.report(node("a", 2, generation=2), held)
    assert pool.load(CardId("a", 0)).idle
    assert set(pool.leases()) == {"run-2"}


def test_a_late_report_changes_nothing() -> None:
    pool = pool_of(node("a", 2, generation=5))
    generation = pool.generation
    assert not pool.report(node("a", 1, generation=4), {})
    assert len(list(pool.cards())) == 2
    assert pool.generation == generation


def test_a_lost_node_takes_its_leases_with_it() -> None:
    pool = pool_of(node("a"), node("b"))
    put(pool, ("a", 0), 1)
    put(pool, ("b", 0), 2)
    assert pool.lose("a") == ["run-1"]
    assert pool.lose("a") == []
    assert [card.id.node for card in pool.cards()] == ["b"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"share_ppm": 60 * PERCENT}, "has 50% left, not 60%"),
        ({"share_ppm": 0, "memory_bytes": 79 * GIB}, "left, not"),
        ({"whole": True}, "cannot be shared"),
    ],
)
def test_a_card_is_never_promised_twice(options: dict, sentence: str) -> None:
    pool = pool_of(node("a"))
    put(pool, ("a", 0), 1, share_ppm=50 * PERCENT)
    with pytest.raises(PoolError, match=sentence):
        put(pool, ("a", 0), 2, **options)
    assert pool.load(CardId("a", 0)).used_ppm == 50 * PERCENT


def test_release_gives_everything_back() -> None:
    pool = pool_of(node("a", 2, bandwidth_bps=10**10))
    asked = request(1, bandwidth_bps=10**9)
    pool.take(CardId("a", 0), holding(asked), asked.bandwidth_bps)
    assert pool.release("run-1")
    assert not pool.release("run-1")
    known = pool.node("a")
    assert known is not None
    assert pool.free_bandwidth(known) == 10**10
    assert len(pool.classes) == 1


def test_equal_cards_are_one_class() -> None:
    pool = pool_of(*(node(f"n{i}", 8) for i in range(100)))
    assert len(pool.classes) == 1
    put(pool, ("n3", 0), 1)
    # The card itself, the other seven of its node, and all others.
    assert len(pool.classes) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Node("", 1, ()),
        lambda: Node("a", 1, (Card(CardId("b", 0), "H100", GIB),)),
        lambda: Node("a", 1, (Card(CardId("a", 0), "H100", GIB),) * 2),
        lambda: Node("a", 1, (Card(CardId("a", 0), "H100", 0),)),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(wrong: Callable[[], Node]) -> None:
    with pytest.raises(PoolError):
        wrong()


def test_shares_up_to_a_card_fit() -> None:
    pool = pool_of(node("a"))
    for number in range(10):
        put(pool, ("a", 0), number, share_ppm=PPM // 10, memory_bytes=8 * GIB)
    assert pool.load(CardId("a", 0)).used_ppm == PPM
