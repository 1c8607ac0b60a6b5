"""A tenant with very many different requests in line costs the others little."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.samples import GIB, PERCENT, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core import together
from rgpu_cluster.core.actions import Action, Grant
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.paths import End, Figures

LIMITS = Limits(tries=8, silence_ns=10**6 * SECOND)
MANY = 60


class Counted:
    """Counts how often the pool is searched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches = 0
        self._place = together.place
        monkeypatch.setattr(together, "place", self._counted)

    def _counted(self, *arguments: Any, **options: Any) -> Any:
        self.searches += 1
        return self._place(*arguments, **options)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


class Desk:
    """A full card, and a tenant with many different requests for it."""

    def __init__(self) -> None:
        self.manager = Manager(limits=LIMITS)
        self.now_ns = 0
        self.tell(ev.NodeReported(node("n1"), {}))
        self.full = request(1, whole=True, tenant="f")
        self.tell(ev.Asked(self.full))
        self.tell(ev.Granted(self.full.id, "n1", 1, 2))
        for number in range(MANY):
            mine = request(100 + number, tenant="many", memory_bytes=20 * GIB + number)
            self.tell(ev.Asked(mine, wait=True))

    def tell(self, event: ev.Event) -> list[Action]:
        self.now_ns += SECOND
        return self.manager.handle(event, self.now_ns)


def test_an_event_that_changes_nothing_searches_nothing(counted: Counted) -> None:
    desk = Desk()
    before = counted.searches
    desk.tell(ev.NodeBeat("n1", 2))
    desk.tell(ev.Tick())
    assert counted.searches == before


def test_a_request_that_comes_is_the_only_one_that_is_tried(counted: Counted) -> None:
    desk = Desk()
    before = counted.searches
    desk.tell(ev.Asked(request(2, tenant="b", share_ppm=7 * PERCENT), wait=True))
    assert counted.searches == before + 1


def test_each_event_tries_few_of_one_tenant_and_all_get_their_turn(counted: Counted) -> None:
    desk = Desk()
    other = request(2, tenant="b", memory_bytes=70 * GIB)
    desk.tell(ev.Asked(other, wait=True))
    before = counted.searches
    # What is known of the network may make any card usable.
    end, figures = End("", ""), Figures(1000, 0, 1, 1, 1)
    granted = desk.tell(ev.PathMeasured(end, end, figures))
    assert counted.searches - before <= LIMITS.tries + 1
    assert not granted
    rounds = 0
    while desk.tell(ev.Tick()) or counted.searches - before < MANY + 1:
        rounds += 1
        assert rounds < MANY
    granted = desk.tell(ev.Withdrawn(desk.full.id))
    granted += desk.tell(ev.Revoked(desk.full.id, "n1", 1))
    placed = [action.request.id for action in granted if isinstance(action, Grant)]
    assert placed


def test_a_card_that_is_too_small_for_all_is_looked_at_without_a_search(counted: Counted) -> None:
    desk = Desk()
    before = counted.searches
    assert not desk.tell(ev.NodeReported(node("small", memory=GIB), {}))
    assert counted.searches == before
    said = desk.tell(ev.NodeReported(node("large"), {}))
    assert any(isinstance(action, Grant) for action in said)


def test_an_event_looks_at_few_cards_for_one_tenant(counted: Counted) -> None:
    """Then its requests count as tried anew, which is bounded."""
    desk = Desk()
    before = counted.searches
    desk.tell(ev.NodeReported(node("small", 16, memory=GIB), {}))
    assert 0 < counted.searches - before <= LIMITS.tries
