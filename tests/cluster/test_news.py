"""What waiting pods are told, and when a lease counts as nobody's."""

from __future__ import annotations

from rgpu_cluster.kubernetes import news, strays
from rgpu_cluster.kubernetes.news import News
from rgpu_cluster.kubernetes.strays import Strays


def test_a_request_that_waits_is_told_again_and_again_but_once_in_a_while() -> None:
    told = News()
    told.waits("a", "team")
    told.waits("a", "team")
    told.waits("b", "team")
    assert told.take(0.0) == ["a", "b"]
    told.waits("a", "team")
    assert told.take(news.SECONDS - 1) == []
    # Its reason may be another one by now, or its sentence was lost.
    assert told.take(news.SECONDS) == ["a", "b"]
    assert told.take(9 * news.SECONDS) == ["a", "b"]


def test_a_request_that_has_its_cards_is_told_nothing() -> None:
    told = News()
    told.waits("a", "team")
    told.forget("a")
    assert told.take(0.0) == []
    # The next one of this name is told at once.
    told.waits("a", "team")
    assert told.take(0.0) == ["a"]
    told.forget("a")
    assert told.take(news.SECONDS) == []
    told.waits("a", "team")
    assert told.take(news.SECONDS + 1) == ["a"]


def test_many_are_told_in_turn() -> None:
    told = News()
    names = [f"pod-{number:03}" for number in range(2 * news.MOST + 1)]
    for name in names:
        told.waits(name, "team")
    assert [told.take(float(now)) for now in range(4)] == [
        names[: news.MOST], names[news.MOST : -1], names[-1:], [],
    ]  # fmt: skip
    # One that has heard nothing yet goes before those that are told again.
    told.waits("new", "team")
    now = 3 * news.SECONDS
    assert [told.take(now) for _ in range(4)] == [
        ["new", *names[: news.MOST - 1]], names[news.MOST - 1 : -2], names[-2:], [],
    ]  # fmt: skip


def test_one_namespace_with_many_requests_does_not_keep_another_from_its_first_sentence() -> None:
    told = News()
    for number in range(100 * news.MOST):
        told.waits(f"pod-{number}", "team")
    assert "bob" not in told.take(0.0)
    told.waits("bob", "bob")
    assert "bob" in told.take(2.0)


def test_requests_that_come_without_end_keep_nobody_from_hearing_again() -> None:
    """Neither those of other namespaces, nor their own."""
    told, heard = News(), {"bob": [0.0], "mine": [0.0]}
    told.waits("bob", "bob")
    told.waits("mine", "team")
    assert told.take(0.0) == ["bob", "mine"]
    for second in range(1, 61):
        for number in range(2 * news.MOST):
            told.waits(f"pod-{second}-{number}", "team")
        for request in {"bob", "mine"}.intersection(told.take(float(second))):
            heard[request].append(float(second))
    assert heard["bob"] == [news.SECONDS * number for number in range(7)]
    assert len(heard["mine"]) > 2


def test_a_lease_is_nobodys_only_after_a_while() -> None:
    found = Strays()
    assert found.look([("a", "team"), ("b", "team")], 0.0) == {}
    assert found.look([("a", "team")], strays.SECONDS) == {"team": ["a"]}
    # The claim of b was known in between, and a was looked at a moment ago.
    assert found.look([("a", "team"), ("b", "team")], strays.SECONDS) == {}
    assert found.look([("b", "team")], 2 * strays.SECONDS) == {"team": ["b"]}


def test_leases_that_a_node_makes_up_are_looked_at_in_turn() -> None:
    """Each of them in a namespace of its own."""
    found = Strays()
    some = [(f"lease-{number:02}", f"team-{number:02}") for number in range(20)]
    assert found.look(some, 0.0) == {}
    seen: list[str] = []
    for turn in range(3):
        due = found.look(some, strays.SECONDS + turn)
        assert len(due) <= strays.MOST_NAMESPACES
        seen += due
    assert seen == [namespace for _, namespace in some]
    assert found.look(some, strays.SECONDS + 4) == {}
