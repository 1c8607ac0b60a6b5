"""What a tenant does pushes nothing out of the manager's memory that others ask for."""

from __future__ import annotations

from cluster.samples import request
from rgpu_cluster.core.decision import Refusal
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
