"""What a tenant does pushes nothing out of the manager's memory that others ask for."""

from __future__ import annotations

import asyncio

import pytest

from cluster.samples import node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Denied
from rgpu_cluster.core.decision import Refusal
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.line import CROWDED_OUT
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.manager import followers
from rgpu_cluster.manager.followers import Followers
from rgpu_cluster.manager.ledger import MOST_DECISIONS, MOST_EVENTS, Decided, Ledger
from rgpu_cluster.manager.reservations import MOST_ENDED, Reservations
from rgpu_common.v1 import agent_pb2


def decided(number: int, tenant: str) -> Decided:
    asked = request(number, tenant=tenant)
    return Decided(asked, Refusal(asked, 0, (), possible=True, remedy="later"), 0.0)


def test_a_tenants_decisions_push_out_no_other_tenants() -> None:
    """`rgpu explain` answers bob, however much alice asks for."""
    ledger, first = Ledger(), decided(0, "bob")
    ledger.decide(first)
    for number in range(1, 2 * MOST_DECISIONS):
        ledger.decide(decided(number, "alice"))
    assert ledger.decided(first.request.id) == first
    newest, oldest = decided(2 * MOST_DECISIONS - 1, "alice"), decided(1, "alice")
    assert ledger.decided(newest.request.id) is not None
    assert ledger.decided(oldest.request.id) is None, "all of them together are bounded"


def test_a_tenants_events_push_out_no_other_tenants_and_none_of_nodes() -> None:
    ledger = Ledger()
    ledger.note(0.0, "joined", "", node="gpu1")
    ledger.note(0.0, "denied", "", request="run-1", tenant="bob")
    for number in range(2 * MOST_EVENTS):
        ledger.note(0.0, "denied", "", request=f"run-a{number}", tenant="alice")
    events = list(ledger.events(0))
    assert len(events) == MOST_EVENTS
    assert [event.tenant for event in events[:3]] == ["", "bob", "alice"]
    numbers = [event.number for event in events]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 2 * MOST_EVENTS + 2


def test_a_tenants_ended_reservations_push_out_no_other_tenants() -> None:
    known = Reservations()

    def ended(name: str, tenant: str) -> None:
        row = {"request_id": f"{name}-{0:032x}", "tenant": tenant, "reserved": True}
        known.heard("n1", [agent_pb2.HeldLease(left_seconds=1.0, **row)], 0.0)  # type: ignore[arg-type]
        known.heard("n1", [], 1.0)

    ended("train", "bob")
    for number in range(2 * MOST_ENDED):
        ended(f"mine{number}", "alice")
    assert "its time was over" in known.why_none("train", "bob", 2.0)
    assert "its time was over" in known.why_none(f"mine{2 * MOST_ENDED - 1}", "alice", 2.0)
    assert "has no reservation" in known.why_none("mine0", "alice", 2.0)


def line_full_of(tenants: str, limits: Limits) -> Manager:
    """A manager with no free card, and a request in line for each of these letters."""
    manager = Manager(limits=limits)
    manager.handle(ev.NodeReported(node("n1"), {}), SECOND)
    manager.handle(ev.Asked(request(0, whole=True, tenant="f")), SECOND)
    manager.handle(ev.Granted("run-0", "n1", 1, 2), SECOND)
    for number, tenant in enumerate(tenants, 1):
        manager.handle(ev.Asked(request(number, tenant=tenant), wait=True), SECOND)
    return manager


def test_tenants_that_fill_the_line_together_make_room_for_another() -> None:
    """Before: ten tenants with 1,000 requests each kept everybody else out of the line."""
    limits = Limits(line=6, line_per_tenant=3, silence_ns=10**9 * SECOND)
    manager = line_full_of("ababab", limits)
    said = manager.handle(ev.Asked(request(7, tenant="c"), wait=True), SECOND)
    (denied,) = [action for action in said if isinstance(action, Denied)]
    assert (denied.id, denied.why) in {("run-5", CROWDED_OUT), ("run-6", CROWDED_OUT)}
    assert "run-7" in manager.line
    assert len(manager.line) == 6
    # The next one has its part, and no more.
    manager.handle(ev.Asked(request(8, tenant="c"), wait=True), SECOND)
    said = manager.handle(ev.Asked(request(9, tenant="c"), wait=True), SECOND)
    assert [action.id for action in said if isinstance(action, Denied)] == ["run-9"]
    assert [manager.line.of_tenant(tenant) for tenant in "abc"] == [2, 2, 2]


def test_a_request_that_is_in_line_again_is_as_old_as_it_was() -> None:
    manager = line_full_of("ababab", Limits(line=6, line_per_tenant=3, silence_ns=10**9 * SECOND))
    for number in (1, 2):
        entry = manager.line.get(f"run-{number}")
        assert entry is not None
        manager.line.remove(f"run-{number}")
        manager.line.add(entry)
    assert manager.line.gives_way("c") in ("run-5", "run-6")


@pytest.fixture
def few_followers(monkeypatch: pytest.MonkeyPatch) -> Followers:
    for name, most in (("MOST", 6), ("MOST_PER_TENANT", 3), ("OF_OPERATORS", 1)):
        monkeypatch.setattr(followers, name, most)
    return Followers()


def test_tenants_that_follow_all_they_can_make_room_for_another(few_followers: Followers) -> None:
    """Before: ten tenants with 2,000 clients each kept everybody else out, operators too."""
    there = {number: few_followers.follow(f"run-{number}", "ab"[number % 2]) for number in range(6)}
    assert not few_followers.why_not("run-7", "c")
    few_followers.follow("run-7", "c")
    over = [number for number, one in there.items() if one.why_over]
    assert over in ([4], [5])
    assert there[over[0]].why_over == followers.CROWDED_OUT
    assert asyncio.run(there[over[0]].next()) is None
    assert len(few_followers) == 6
    # Nobody follows its request now, so the manager takes it back in a while.
    assert few_followers.leave(f"run-{over[0]}", there[over[0]])


def test_a_client_whose_place_another_one_got_has_no_say(few_followers: Followers) -> None:
    """It may learn of its end when the other one's program runs already."""
    cut_off, back = few_followers.follow("run-1", "a"), few_followers.follow("run-1", "a")
    assert cut_off.why_over == followers.ANOTHER
    assert few_followers.leave("run-1", back)
    assert not few_followers.leave("run-1", cut_off)


def test_a_tenant_with_as_many_places_as_others_pushes_out_nobody(few_followers: Followers) -> None:
    for number in range(6):
        few_followers.follow(f"run-{number}", "abc"[number % 3])
    assert "as many requests as it can" in few_followers.why_not("run-7", "c")
    assert "as many requests as it can" not in few_followers.why_not("run-7", "d")
    assert "tenant b follows 3" in few_followers_with_three_of_b(few_followers)


def few_followers_with_three_of_b(few: Followers) -> str:
    few.leave("run-0", few.follow("run-0", "a"))
    few.follow("run-8", "b")
    return few.why_not("run-9", "b")


def test_operators_have_places_of_their_own(few_followers: Followers) -> None:
    for number in range(6):
        few_followers.follow(f"run-{number}", f"t{number}")
    assert few_followers.why_not("run-7", "ops")
    assert not few_followers.why_not("run-7", "ops", operator=True)
    few_followers.follow("run-7", "ops", operator=True)
    assert few_followers.why_not("run-8", "ops", operator=True)
    assert len(few_followers) == 7
