"""A request that comes costs the same however many wait, and nobody is served out of turn."""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import pytest

from cluster.samples import GIB, PERCENT, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core import together
from rgpu_cluster.core.actions import Action, Grant, Waiting
from rgpu_cluster.core.decision import Decision
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.request import Request, holding_of

LIMITS = Limits(line=10**6, line_per_tenant=10**6, tries=10**6, silence_ns=10**9 * SECOND)


class Work:
    """Counts calls of functions, those of C too, and searches of the pool."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.searches = 0
        self._place = together.place
        monkeypatch.setattr(together, "place", self._searched)

    def _searched(self, *arguments: Any, **options: Any) -> Any:
        self.searches += 1
        return self._place(*arguments, **options)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += event in ("call", "c_call")

    def of(self, manager: Manager, event: ev.Event) -> tuple[int, int, list[Action]]:
        """Returns the calls and the searches that an event costs, and what came of it."""
        self.calls = self.searches = 0
        sys.setprofile(self._called)
        try:
            actions = manager.handle(event, SECOND)
        finally:
            sys.setprofile(None)
        return self.calls, self.searches, actions


def crowded(waiting: int) -> Manager:
    """A manager with a full card, and so many different requests of four tenants in line."""
    manager = Manager(limits=LIMITS)
    manager.handle(ev.NodeReported(node("n1"), {}), SECOND)
    manager.handle(ev.Asked(request(1, whole=True, tenant="f")), SECOND)
    manager.handle(ev.Granted("run-1", "n1", 1, 2), SECOND)
    for number in range(waiting):
        wish = request(
            100 + number,
            tenant="abcd"[number % 4],
            priority=number % 3,
            memory_bytes=(1 + number % 50) * GIB,
        )
        manager.handle(ev.Asked(wish, wait=True), SECOND)
    return manager


def test_an_arrival_costs_as_much_among_four_thousand_as_among_forty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(monkeypatch)
    few, many = crowded(40), crowded(4000)
    late = request(9, tenant="a", memory_bytes=GIB + 1, priority=1)
    cheap, searches, said = work.of(few, ev.Asked(late, wait=True))
    dear, more_searches, _ = work.of(many, ev.Asked(late, wait=True))
    assert (searches, more_searches) == (1, 1)
    assert dear <= cheap + 20, (cheap, dear)
    assert [action.id for action in said if isinstance(action, Waiting)] == ["run-9"]


def test_one_more_of_a_kind_that_does_not_fit_is_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(monkeypatch)
    manager = crowded(100)
    twin = request(9, tenant="z", memory_bytes=GIB, priority=0)
    _, searches, said = work.of(manager, ev.Asked(twin, wait=True))
    assert searches == 0
    (waiting,) = [action for action in said if isinstance(action, Waiting)]
    assert waiting.refusal is not None


def test_room_is_offered_once_to_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    manager = Manager(limits=LIMITS)
    manager.handle(ev.NodeReported(node("n1", memory=16 * GIB), {}), SECOND)
    manager.handle(ev.Asked(request(1, whole=True, tenant="f")), SECOND)
    manager.handle(ev.Granted("run-1", "n1", 1, 2), SECOND)
    for number in range(1100):
        wish = request(100 + number, whole=True, tenant="abcd"[number % 4])
        manager.handle(ev.Asked(wish, wait=True), SECOND)
    manager.handle(ev.Withdrawn("run-1"), SECOND)
    _, searches, said = work.of(manager, ev.Revoked("run-1", "n1", 1))
    assert [a.request.id for a in said if isinstance(a, Grant)] == ["run-100"]
    # One that is placed, and the next of each of the four tenants' requests.
    assert searches <= 5


def test_a_tick_tells_everybody_who_has_moved_up() -> None:
    manager = crowded(0)
    for number in range(5):
        wish = request(100 + number, whole=True)
        manager.handle(ev.Asked(wish, wait=True), SECOND)
    manager.handle(ev.Withdrawn("run-100"), SECOND)
    said = manager.handle(ev.Tick(), SECOND)
    assert [(a.id, a.place) for a in said if isinstance(a, Waiting)] == [
        (f"run-{100 + number}", number) for number in range(1, 5)
    ]
    assert manager.handle(ev.Tick(), SECOND) == []


def by_the_rule(manager: Manager, leaver: str) -> list[str]:
    """Returns who gets cards if everybody in line is tried in turn, as the rule is written down.

    leaver: the lease that has ended.
    """
    pool = copy.deepcopy(manager.pool)
    pool.release(leaver)
    served = []
    for entry in sorted(
        manager.line,
        key=lambda e: (
            -e.request.priority,
            pool.usage.dominant_share(e.request.tenant),
            e.since_ns,
            e.number,
        ),
    ):
        answer = place(pool, entry.request, Paths())
        if isinstance(answer, Decision):
            served.append(entry.request.id)
            for card in answer.chosen.cards:
                pool.take(card, holding_of(entry.request, pool.card(card).memory_bytes, 1))
    return served


def any_request(chance: random.Random, number: int) -> Request:
    return request(
        number,
        tenant=chance.choice("abc"),
        share_ppm=chance.choice((0, 30, 50, 80, 100)) * PERCENT,
        memory_bytes=chance.choice((1, 8, 40)) * GIB,
        cards=chance.choice((1, 1, 2)),
        priority=chance.choice((0, 0, 5)),
    )


@pytest.mark.parametrize("seed", range(15))
def test_room_goes_to_whom_the_rule_names(seed: int) -> None:
    chance = random.Random(seed)
    manager = Manager(limits=LIMITS)
    manager.handle(ev.NodeReported(node("n1", 3), {}), SECOND)
    holders: list[str] = []
    for number in range(60):
        actions = manager.handle(ev.Asked(any_request(chance, number), wait=True), SECOND)
        holders += [a.request.id for a in actions if isinstance(a, Grant)]
    compared = 0
    while holders:
        leaver = holders.pop(chance.randrange(len(holders)))
        booking = manager.book.get(leaver)
        assert booking is not None
        manager.handle(ev.Withdrawn(leaver), SECOND)
        expected = by_the_rule(manager, leaver)
        actions = manager.handle(ev.Revoked(leaver, "n1", booking.entry.attempt), SECOND)
        granted = [a.request.id for a in actions if isinstance(a, Grant)]
        assert granted == expected
        compared += len(granted)
        holders += granted
    assert compared
