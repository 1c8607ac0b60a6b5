"""Nodes that have gone: the manager remembers for a while what ran there."""

from __future__ import annotations

from cluster.samples import GIB, PERCENT, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Grant
from rgpu_cluster.core.card import CardId, Holding
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.manager.telling import gone_nodes

CARD = CardId("n1", 0)
LEASE = Holding("run-1", "a", 30 * PERCENT, 8 * GIB, attempt=1)


def passes(manager: Manager, seconds: int) -> None:
    """Lets time pass. The manager's own clock goes on with ticks alone."""
    for _ in range(seconds):
        manager.handle(ev.Tick(), manager.now_ns + SECOND)


def lost() -> Manager:
    """A manager that has lost n1, on which a lease runs."""
    manager = Manager()
    manager.handle(ev.NodeReported(node("n1"), {CARD: (LEASE,)}), 0)
    passes(manager, 16)
    assert manager.pool.node("n1") is None
    return manager


def test_a_silent_node_is_remembered_with_its_leases_and_how_long_it_is_silent() -> None:
    manager = lost()
    (gone,) = manager.gone
    assert (gone.node.name, gone.held[CARD]) == ("n1", (LEASE,))
    assert (manager.now_ns - gone.seen_ns) // SECOND == 16


def test_a_node_that_is_back_is_not_gone() -> None:
    manager = lost()
    manager.handle(ev.NodeReported(node("n1", generation=2), {CARD: (LEASE,)}), manager.now_ns)
    assert not list(manager.gone)


def test_a_node_is_forgotten_after_an_hour_and_no_more_than_64_are_remembered() -> None:
    manager = lost()
    passes(manager, 3600 - 16)
    assert len(list(manager.gone)) == 1
    passes(manager, 1)
    assert not list(manager.gone)
    for number in range(70):
        manager.handle(ev.NodeReported(node(f"n{number}"), {}), manager.now_ns)
    passes(manager, 16)
    assert [one.node.name for one in manager.gone] == [f"n{number}" for number in range(6, 70)]


def test_what_is_placed_elsewhere_did_not_run_there() -> None:
    manager = Manager()
    manager.handle(ev.NodeReported(node("n1"), {}), 0)
    said = manager.handle(ev.Asked(request(1), wait=True), 0)
    assert any(isinstance(one, Grant) for one in said)
    passes(manager, 16)
    (gone,) = manager.gone
    assert gone.held[CARD] == ()


def test_a_caller_sees_leases_of_its_own_tenant_alone() -> None:
    manager = lost()
    (mine,) = gone_nodes(manager.gone, lambda tenant: tenant == "a", manager.now_ns)
    assert [one.request_id for one in mine.cards[0].leases] == ["run-1"]
    assert mine.silent_seconds == 16
    (others,) = gone_nodes(manager.gone, lambda tenant: tenant == "b", manager.now_ns)
    assert (len(others.cards[0].leases), others.cards[0].others) == (0, 1)
