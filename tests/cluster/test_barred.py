"""Daemons that refuse a request for its tenant's sake: others are not disturbed by it."""

from __future__ import annotations

from cluster.samples import GIB, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Denied, Grant, Refresh
from rgpu_cluster.core.decision import Decision, Refusal, Rejected
from rgpu_cluster.core.filters import Reason
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Client


class Desk:
    """A manager with two nodes, and daemons that refuse everything on some ground."""

    def __init__(self, ground: ev.Ground) -> None:
        self.manager = Manager()
        self.now_ns = SECOND
        self.asked: list[str] = []
        self._ground = ground
        for name in ("n1", "n2"):
            self.tell(ev.NodeReported(node(name), {}))

    def tell(self, event: ev.Event) -> list[Action]:
        return self.manager.handle(event, self.now_ns)

    def refuse(self, actions: list[Action]) -> list[Action]:
        """Refuses every grant until none is asked for; returns the other actions."""
        rest = []
        while actions:
            action = actions.pop(0)
            if isinstance(action, Grant):
                self.asked.append(action.node)
                actions += self.tell(
                    ev.GrantFailed(
                        action.request.id, action.node, action.attempt, "not for you",
                        certain=True, ground=self._ground,
                    )
                )  # fmt: skip
            else:
                rest.append(action)
        return rest


def test_what_no_daemon_allows_is_denied_even_if_it_waits() -> None:
    desk = Desk(ev.Ground.FORBIDDEN)
    said = desk.refuse(desk.tell(ev.Asked(request(), wait=True)))
    assert sorted(desk.asked) == ["n1", "n2"]
    assert [a.why for a in said if isinstance(a, Denied)] == ["not for you"]


def test_a_refusal_for_the_tenants_sake_keeps_no_other_from_the_node() -> None:
    desk = Desk(ev.Ground.TENANT)
    said = desk.refuse(desk.tell(ev.Asked(request(), wait=True)))
    assert not any(isinstance(a, Refresh | Denied) for a in said)
    assert all(not one.taints for one in desk.manager.pool.nodes())


def test_a_tenant_at_its_limit_is_tried_again_later_on_all_nodes() -> None:
    desk = Desk(ev.Ground.TENANT)
    desk.refuse(desk.tell(ev.Asked(request(), wait=True)))
    assert sorted(desk.asked) == ["n1", "n2"]
    assert desk.tell(ev.Tick()) == []
    for _ in range(10):
        desk.now_ns += SECOND
        for name in ("n1", "n2"):
            desk.refuse(desk.tell(ev.NodeBeat(name, 1)))
        desk.refuse(desk.tell(ev.Tick()))
    assert 4 <= len(desk.asked) <= 10
    assert len(desk.asked) == 2 * desk.asked.count("n1")


def test_a_tenant_at_its_limit_that_does_not_wait_is_denied() -> None:
    desk = Desk(ev.Ground.TENANT)
    said = desk.refuse(desk.tell(ev.Asked(request())))
    assert [a.why for a in said if isinstance(a, Denied)] == ["not for you"]


def barred_pool() -> Pool:
    pool = Pool()
    for name in ("n1", "n2", "n3"):
        pool.report(node(name, 2, 16 * GIB), {})
    return pool


def test_a_barred_node_is_never_chosen() -> None:
    pool = barred_pool()
    for number in range(50):
        asked = request(number, barred=frozenset({"n1", "n3"}))
        decision = place(pool, asked, Paths())
        assert isinstance(decision, Decision)
        assert decision.chosen.cards[0].node == "n2"
        assert decision.rejected.count(Rejected(Reason.BARRED, 4)) == 1


def test_several_cards_avoid_a_barred_node_too() -> None:
    pool = barred_pool()
    asked = request(1, cards=2, barred=frozenset({"n1", "n2"}), one_node=True)
    decision = place(pool, asked, Paths())
    assert isinstance(decision, Decision)
    assert {card.node for card in decision.chosen.cards} == {"n3"}
    asked = request(1, cards=4, barred=frozenset({"n2"}))
    decision = place(pool, asked, Paths())
    assert isinstance(decision, Decision)
    assert {card.node for card in decision.chosen.cards} == {"n1", "n3"}


def test_a_barred_own_node_is_not_local() -> None:
    pool = barred_pool()
    asked = request(1, client=Client("n1"), barred=frozenset({"n1"}))
    decision = place(pool, asked, Paths())
    assert isinstance(decision, Decision)
    assert decision.chosen.cards[0].node != "n1"


def test_nothing_is_possible_when_every_node_is_barred() -> None:
    pool = barred_pool()
    refusal = place(pool, request(1, barred=frozenset({"n1", "n2", "n3"})), Paths())
    assert isinstance(refusal, Refusal)
    assert not refusal.possible
