"""What becomes of leases that get lost."""

from __future__ import annotations

import pytest

from cluster.agent_world import UID, first_fit, held, result, view
from cluster.keeper_world import World
from rgpu_cluster.kubernetes.agent.actions import Annotate, Grant, Say
from rgpu_common.v1 import agent_pb2


def test_a_server_that_has_lost_its_leases_grants_them_again_at_once() -> None:
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    world.keeper.silent()
    world.leases = []
    world.report(first=True)
    assert world.grant().order.attempt == 1_000_000


def test_a_lease_that_somebody_has_ended_is_granted_again_only_later() -> None:
    """Whoever ended it to make room frees the claim as well. Until then the claim says so."""
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    world.leases = []
    world.report()
    world.lose()
    assert not world.actions()
    world.now += 60
    world.grant()
    assert world.one(Say).leased


def test_a_lost_lease_is_asked_for_until_it_is_there_although_its_pods_are_bound() -> None:
    """kube-scheduler looks at no condition of a claim whose pods are bound."""
    world = World()
    world.claim(view(first_fit(), pods=()))
    world.grant()
    world.claim(view(first_fit(), pods=(), told="rgpu.dev/leased"))
    world.leases = []
    world.report()
    world.lose(first_fit())
    world.now += 60
    world.refuse()
    said: Say = world.one(Say)
    assert said.condition == "rgpu.dev/refused"
    world.claim(view(first_fit(), told="rgpu.dev/lost rgpu.dev/refused"))
    world.keeper.said(said)
    assert not world.actions()
    for _ in range(3):
        world.now += 60
        world.refuse()
    # It is no card that kube-scheduler has chosen just now.
    assert world.keeper.take_full() == []
    world.now += 60
    world.grant()


def test_an_agent_that_begins_anew_reads_that_a_lease_is_lost() -> None:
    world = World()
    world.claim(view(first_fit(), told="rgpu.dev/lost"))
    world.refuse()
    said: Say = world.one(Say)
    world.claim(view(first_fit(), told="rgpu.dev/lost rgpu.dev/refused"))
    world.keeper.said(said)
    assert not world.actions()
    world.now += 60
    world.grant()


def test_a_server_that_knows_no_such_lease_is_asked_again_later() -> None:
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    assert world.kept() == [UID]
    world.leases = []
    world.report()
    world.keeper.kept([UID], world.now)
    assert not world.kept()
    world.lose()
    world.now += 60
    world.grant()
    assert world.kept() == [UID]


def test_a_lost_lease_that_cannot_be_had_again_is_said_in_the_claim() -> None:
    world = World()
    world.claim(view(result()))
    world.refuse("no room")
    said: Say = world.one(Say)
    assert not said.leased
    world.claim(view(result(), told="rgpu.dev/refused"))
    world.keeper.said(said)
    assert not world.actions()
    world.now += 60
    world.grant()
    assert world.one(Say).leased


@pytest.mark.parametrize("reported", [True, False])
def test_a_lease_that_has_ended_before_a_report_could_tell_is_missed(reported: bool) -> None:
    """The report that has it came before the answer to the grant, or there never was one: the
    server had ended it by then.
    """
    world = World()
    world.claim(view(first_fit()))
    action: Grant = world.one(Grant)
    if reported:
        world.leases = [held(attempt=action.order.attempt)]
        world.report()
    world.keeper.granted(action, agent_pb2.GrantAnswer(granted=True), world.now)
    assert world.kept() == [UID]
    world.keeper.annotated(world.one(Annotate))
    said: Say = world.one(Say)
    world.claim(view(first_fit(), told="rgpu.dev/leased"))
    world.keeper.said(said)
    world.leases = []
    world.report()
    # The report may be older than the lease. The server knows.
    assert world.kept() == [UID]
    world.keeper.kept([UID], world.now)
    world.lose(first_fit())
