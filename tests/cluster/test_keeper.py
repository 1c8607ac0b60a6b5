"""What becomes of the leases of a GPU node when claims, reports and time change."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.agent_world import UID, first_fit, held, result, view
from cluster.keeper_world import World
from cluster.samples import GIB
from rgpu_cluster.kubernetes.agent.actions import Annotate, Grant, Revoke, Say
from rgpu_cluster.kubernetes.agent.entry import SETTLED_SECONDS
from rgpu_cluster.kubernetes.agent.keeper import KEEP_SECONDS, TTL_SECONDS
from rgpu_common.v1 import agent_pb2

MANY = agent_pb2.GROUND_UNSPECIFIED, agent_pb2.GROUND_TENANT, agent_pb2.GROUND_FORBIDDEN


# The path with the manager: it has granted, then allocated.


def test_the_lease_of_an_allocated_claim_is_kept_alive() -> None:
    world = World(held())
    assert not world.kept()
    world.claim(view(result()))
    assert not world.actions()
    request = world.keeper.keeps(world.now)
    assert request is not None
    (one,) = request.requests
    assert (one.request_id, one.ttl_seconds, [*one.pods]) == (UID, TTL_SECONDS, ["uid-pod-1"])
    assert not world.kept()
    world.now += KEEP_SECONDS
    assert world.kept() == [UID]
    assert world.keeper.next_due(world.now) == world.now + KEEP_SECONDS


def test_the_lease_of_a_container_with_units_is_left_alone() -> None:
    lease = held()
    lease.request_id = "unit-0123456789abcdef"
    world = World(lease)
    assert not world.actions()
    assert not world.kept()


def test_a_new_pod_of_a_claim_is_told_at_once() -> None:
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    assert world.kept() == [UID]
    world.claim(view(result(), pods=("pod-1", "pod-2")))
    assert world.kept() == [UID]
    assert not world.kept()


def test_a_server_that_did_not_hear_it_is_told_again() -> None:
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    request = world.keeper.keeps(world.now)
    assert request is not None
    world.keeper.not_kept(request, world.now)
    assert not world.kept()
    world.now += 2
    assert world.kept() == [UID]


def test_the_lease_goes_when_the_claim_is_deallocated() -> None:
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    world.claim(view())
    action = world.revoke()
    assert (action.namespace, action.name, action.attempt) == ("team-a", "third", 1)
    # The server still reports it for a moment.
    world.leases = [held()]
    world.report()
    assert not world.actions()


def test_the_lease_goes_with_the_claim() -> None:
    world = World(held())
    world.claim(view(result()))
    world.claim(None)
    assert world.revoke().name == ""


def test_the_lease_stays_if_a_fresh_look_shows_that_the_claim_has_it() -> None:
    """The watch was behind."""
    world = World(held())
    action = world.one(Revoke)
    world.claim(view(result()))
    assert not world.keeper.confirmed(action, world.wall)
    world.keeper.dropped(action)
    assert not world.actions()


def test_a_lease_whose_allocation_is_still_to_be_written_stays() -> None:
    """The manager has granted a moment ago. If it dies, the lease ends by itself."""
    world = World(held(since=1000))
    world.claim(view())
    assert not world.actions()
    # Later than that it can only be one whose claim was allocated before this agent began.
    world.wall = 1000 + SETTLED_SECONDS + 1
    assert world.one(Revoke).attempt == 1


def test_a_claim_that_was_here_before_keeps_the_lease_of_its_next_allocation() -> None:
    """The manager has granted again, and has yet to write the allocation."""
    world = World(held())
    world.claim(view(result()))
    assert not world.actions()
    world.claim(view())
    world.revoke()
    world.leases = [held(attempt=2, lease="lease-2")]
    world.report()
    assert not world.actions()
    world.claim(view(result(share="share-2")))
    assert not world.actions()
    assert world.kept() == [UID]


def test_a_claim_that_moved_to_another_node_has_no_lease_here() -> None:
    world = World(held())
    world.claim(view(result()))
    world.claim(view(result(pool="gpu8")))
    world.revoke()


def test_nothing_happens_before_all_claims_are_known() -> None:
    world = World(held())
    world.keeper.synced = False
    assert not world.actions()
    assert not world.kept()


def test_nothing_happens_without_a_server() -> None:
    world = World()
    world.claim(view(first_fit()))
    world.keeper.silent()
    assert not world.actions()
    assert not world.kept()


def test_leases_that_are_not_kept_are_nobodys_business_here() -> None:
    """Runs without Kubernetes."""
    world = World(held(kept=False))
    assert not world.actions()


def test_the_manager_may_grant_again_after_the_agent_has_revoked() -> None:
    """Its attempts begin anew, below those of the agent."""
    world = World()
    world.claim(view(first_fit(), pods=()))
    world.grant()
    world.claim(view())
    world.revoke()
    world.report()
    world.leases = [held(attempt=1, lease="lease-new", since=int(world.wall))]
    world.report()
    world.claim(view(result(share="share-2")))
    assert not world.actions()
    assert world.kept() == [UID]


def test_a_lease_that_another_one_has_replaced_is_kept_alive_at_once() -> None:
    """A regression: the manager ended the agent's lease and granted its own before the agent heard
    of either. Nobody kept the new one alive, and the claim lost it after a minute.
    """
    world = World()
    world.claim(view(first_fit()))
    action: Grant = world.one(Grant)
    world.keeper.granted(action, agent_pb2.GrantAnswer(granted=True), world.now)
    assert world.kept() == [UID]
    world.now += 1
    world.report()
    world.leases = [held(attempt=2, lease="lease-of-the-manager", since=int(world.wall))]
    world.report()
    assert world.kept() == [UID]
    assert not world.kept()


# The path without the manager: kube-scheduler has allocated.


def test_an_allocation_of_kube_scheduler_gets_its_lease() -> None:
    world = World()
    world.claim(view(first_fit()))
    order = world.grant().order
    assert (order.request_id, order.tenant, order.attempt) == (UID, "team-a", 1_000_000)
    assert ([*order.ordinals], order.kept, order.ttl_seconds) == ([0], True, 60.0)
    assert (order.quota.share_request_ppm, order.quota.memory_bytes) == (300_000, 8 * GIB)
    assert world.kept() == [UID]
    told: Annotate = world.one(Annotate)
    assert [pod.name for pod in told.pods] == ["pod-1"]
    assert (told.server, told.lease, told.device) == ("gpu7:7700", UID, "0")
    world.keeper.annotated(told)
    said: Say = world.one(Say)
    assert said.leased
    world.claim(view(first_fit(), told="rgpu.dev/leased"))
    world.keeper.said(said)
    assert not world.actions()


def test_at_most_one_action_of_a_claim_is_under_way() -> None:
    world = World()
    world.claim(view(first_fit()))
    (action,) = world.actions()
    assert not world.actions()
    world.keeper.failed(action, world.now)
    assert not world.actions()
    world.now += 2
    assert len(world.actions()) == 1


def test_a_pod_that_joins_later_is_told_too() -> None:
    world = World(held())
    world.claim(view(first_fit(), told="rgpu.dev/leased"))
    told: Annotate = world.one(Annotate)
    world.keeper.annotated(told)
    assert not world.actions()
    world.claim(view(first_fit(), told="rgpu.dev/leased", pods=("pod-1", "pod-2")))
    told = world.one(Annotate)
    assert [pod.name for pod in told.pods] == ["pod-2"]


@pytest.mark.parametrize("ground", MANY)
def test_a_refusal_is_said_in_the_claim(ground: Any) -> None:
    world = World()
    world.claim(view(first_fit()))
    world.refuse("gpu-0 has 4 GiB left", ground)
    said: Say = world.one(Say)
    assert (said.leased, said.sentence) == (False, "gpu-0 has 4 GiB left")
    world.claim(view(first_fit(), told="rgpu.dev/refused"))
    world.keeper.said(said)
    world.now += 1000
    assert not world.actions()
    # Only a card without room has to be avoided by others.
    full = ["gpu-0"] if ground == agent_pb2.GROUND_UNSPECIFIED else []
    assert world.keeper.take_full() == full
    assert world.keeper.take_full() == []


def test_a_claim_that_is_refused_again_and_again_is_asked_for_less_often() -> None:
    world = World()
    waited = []
    for number in range(6):
        began = world.now
        world.claim(view(first_fit(share=f"share-{number}")))
        while not (found := world.actions()):
            world.now += 1
        waited.append(world.now - began)
        answer = agent_pb2.GrantAnswer(sentence="no", ground=agent_pb2.GROUND_TENANT)
        assert isinstance(found[0], Grant)
        world.keeper.granted(found[0], answer, world.now)
        world.keeper.said(world.one(Say))
    assert waited == [0, 0, 5, 10, 20, 40]


def test_another_allocation_is_another_lease() -> None:
    world = World()
    world.claim(view(first_fit(), pods=()))
    world.grant()
    world.claim(view(first_fit(share="share-2", device="gpu-1"), pods=()))
    assert world.revoke().attempt == 1_000_000
    world.report()
    order = world.grant().order
    assert (order.attempt, [*order.ordinals]) == (1_000_001, [1])


def test_a_claim_that_is_gone_before_its_lease_is_reported_has_no_lease() -> None:
    world = World()
    world.claim(view(first_fit()))
    action: Grant = world.one(Grant)
    world.claim(view())
    world.keeper.granted(action, agent_pb2.GrantAnswer(granted=True), world.now)
    assert not world.actions()
    world.leases = [held(attempt=1_000_000)]
    world.report()
    world.revoke()


def test_an_agent_that_was_restarted_goes_on() -> None:
    """The claim says that it has its lease."""
    world = World(held(attempt=1_000_000))
    world.claim(view(first_fit(), told="rgpu.dev/leased", pods=()))
    assert not world.actions()
    assert world.kept() == [UID]


def test_an_agent_that_died_before_it_could_say_so_grants_anew() -> None:
    """The lease may be that of an earlier allocation, and of another size."""
    world = World(held(attempt=1_000_000))
    world.claim(view(first_fit(), pods=()))
    world.revoke()
    world.report()
    assert world.grant().order.attempt == 1_000_001


# Others.


def test_what_is_nowhere_any_more_is_forgotten() -> None:
    world = World(held())
    world.claim(view(result()))
    world.claim(None)
    world.revoke()
    world.report()
    assert not world.keeper._entries
    assert not world.keeper.used()


def test_claims_of_other_nodes_do_not_concern_this_one() -> None:
    keeper = World(held()).keeper
    assert not keeper.claim("other", view(result(pool="gpu8"), uid="other"))
    assert not keeper.claim("other", None)
    assert keeper.claim("new", view(result(), uid="new"))
    assert keeper.claim("new", view(uid="new"))
    assert not keeper.claim("new", None)
    # Its lease is here.
    assert keeper.claim(UID, view(result(pool="gpu8")))
    assert keeper.claim(
        "net", view({**result(device="net-eth0"), "consumedCapacity": None}, uid="net")
    )


def test_the_devices_that_claims_have_are_known() -> None:
    world = World()
    nic = {**result(device="net-eth0"), "consumedCapacity": {"bandwidth": "1G"}}
    world.claim(view(nic))
    assert world.keeper.used() == {"net-eth0"}
    assert not world.actions()


def test_a_claim_that_cannot_be_handled_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.claim(view(first_fit()))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("rgpu_cluster.kubernetes.agent.keeper.order_of", broken)
        assert world.actions() == []
    world.now += 61.0
    assert len(world.actions()) == 1


def test_one_message_keeps_no_more_than_the_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgpu_cluster.kubernetes.agent.keeper._MOST_KEEP_BYTES", 10)
    uids = [f"3d9a2b6e-8f0c-4a59-9a1e-00000000000{n}" for n in range(3)]
    world = World(*(held(uid, lease=f"lease-{uid}") for uid in uids))
    for uid in uids:
        world.keeper.claim(uid, view(result(), uid=uid))
    assert not world.actions()
    assert [world.kept() for _ in uids] == [[uid] for uid in uids]
