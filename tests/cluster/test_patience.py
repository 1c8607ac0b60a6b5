"""Requests that no node can take now: denied in the end, and not while a node may still come."""

from __future__ import annotations

from cluster.samples import GIB, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Denied, Grant
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.manager import Manager

LIMITS = Limits(start_ns=10 * SECOND, silence_ns=5 * SECOND, absent_ns=20 * SECOND)


class Desk:
    """A manager, and a clock that goes on by a second with each event."""

    def __init__(self) -> None:
        self.manager = Manager(limits=LIMITS)
        self.now_ns = 0

    def tell(self, event: ev.Event) -> list[Action]:
        self.now_ns += SECOND
        return self.manager.handle(event, self.now_ns)

    def pass_seconds(self, count: int) -> list[Action]:
        return [action for _ in range(count) for action in self.tell(ev.Tick())]


def test_a_new_manager_waits_for_its_nodes_before_it_denies() -> None:
    desk = Desk()
    assert desk.tell(ev.Asked(request())) == []
    assert desk.pass_seconds(8) == []
    assert any(isinstance(a, Grant) for a in desk.tell(ev.NodeReported(node("n1"))))


def test_a_new_manager_denies_when_no_node_has_come() -> None:
    desk = Desk()
    desk.tell(ev.Asked(request()))
    (denied,) = desk.pass_seconds(12)
    assert isinstance(denied, Denied)
    assert "rgpu serve --join" in denied.why


def test_a_request_that_no_card_can_take_is_denied_after_the_start() -> None:
    desk = Desk()
    desk.tell(ev.NodeReported(node("n1", memory=8 * GIB), {}))
    desk.tell(ev.Asked(request(memory_bytes=80 * GIB)))
    said = [a for _ in range(12) for a in desk.tell(ev.NodeBeat("n1", 1))]
    denied = [a for a in said if isinstance(a, Denied)]
    assert len(denied) == 1
    assert "the largest card has 8 GiB" in denied[0].why


def test_a_waiting_request_outlives_the_loss_of_its_only_node_for_a_while() -> None:
    desk = Desk()
    desk.pass_seconds(12)
    desk.tell(ev.NodeReported(node("n1")))
    desk.tell(ev.Asked(request(1, whole=True), wait=True))
    desk.tell(ev.Asked(request(2, whole=True), wait=True))
    early = desk.pass_seconds(15)
    assert not any(isinstance(a, Denied) for a in early)
    late = desk.pass_seconds(30)
    assert {a.id for a in late if isinstance(a, Denied)} >= {"run-2"}
