"""What the agent of a GPU node orders for a claim that kube-scheduler has allocated."""

from __future__ import annotations

import pytest

from cluster.agent_world import claim, parameters, result, view
from cluster.test_keeper import World
from cluster.test_wishes import asking, wish
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.agent.actions import Say
from rgpu_cluster.kubernetes.agent.orders import order_of
from rgpu_cluster.kubernetes.agent.views import ClaimView, view_of
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, lease_pb2

MANY = agent_pb2.GROUND_UNSPECIFIED, agent_pb2.GROUND_TENANT, agent_pb2.GROUND_FORBIDDEN


def test_several_cards_are_one_order() -> None:
    found = view(
        result(pool="gpu6"), result(device="gpu-1", share="b"), result(device="gpu-0", share="c")
    )
    order = order_of(found, 7)
    assert ([*order.ordinals], order.cards, order.first_place) == ([1, 0], 3, 1)


def test_what_the_allocation_does_not_say_is_the_whole_card() -> None:
    order = order_of(view({**result(), "consumedCapacity": None}), 7)
    assert order.quota.share_request_ppm == PPM
    assert (order.quota.memory_bytes, order.quota.memory_ppm) == (0, PPM)


def test_the_parameters_of_class_and_claim_say_the_rest() -> None:
    rows = [
        {**parameters(policy="burst", priority=3), "source": "FromClass"},
        parameters(priority=9, affinity="teamA", exclusion="teamA", minShare="10%"),
        {**parameters(priority=1), "requests": ["other"]},
        {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {"x": 1}}},
    ]
    order = order_of(view(result(), config=rows), 7)
    quota = order.quota
    assert (quota.policy, quota.priority) == (lease_pb2.SHARE_POLICY_BURST, 9)
    assert (quota.share_request_ppm, quota.share_limit_ppm) == (300_000, PPM)
    assert (order.neighbours.affinity, order.neighbours.exclusion) == ("teamA", "teamA")
    assert order.least_ppm == 100_000
    assert not order.HasField("least_bytes")


def test_parameters_of_a_main_request_are_for_its_subrequests() -> None:
    one = {**result(), "request": "gpu/near"}
    rows = [{**parameters(priority=5), "requests": ["gpu"]}, {**parameters(weight=7), "requests": ["gpu/near"]}]  # fmt: skip
    quota = order_of(view(one, config=rows), 7).quota
    assert (quota.priority, quota.weight) == (5, 7)


def test_the_best_effort_guarantees_nothing() -> None:
    quota = order_of(view(result(), config=[parameters(policy="best-effort")]), 7).quota
    assert quota.share_request_ppm == 0


@pytest.mark.parametrize(
    ("said", "limit_ppm"),
    [({}, 300_000), ({"policy": "fixed"}, 300_000), ({"policy": "none"}, PPM)],
)
def test_the_limit_is_as_in_the_managers_order(said: dict[str, str], limit_ppm: int) -> None:
    order = order_of(view(result(), config=[parameters(**said)]), 7)
    assert order.quota.share_limit_ppm == limit_ppm == wish(asking(**said)).request.limit_ppm


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            view(result(), result(pool="gpu8"), result(device="gpu-1")),
            "in one request with `count`",
        ),
        (
            view(result(), {**result(device="gpu-1"), "consumedCapacity": {"core": "50"}}),
            "make a claim for each size",
        ),
        (view(result(), config=[parameters(colour="red")]), "has no field 'colour'"),
    ],
)
def test_a_claim_that_no_order_can_say_has_a_sentence(found: ClaimView, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        order_of(found, 7)
    world = World()
    world.claim(found)
    said: Say = world.one(Say)
    assert sentence in said.sentence


def test_a_monitor_takes_nothing() -> None:
    found = view({**result(), "adminAccess": True})
    assert not found.shares


def test_other_users_of_a_claim_are_no_pods() -> None:
    made = claim(result())
    assert made.status is not None
    content = made.to_dict()
    content["status"]["reservedFor"].append(
        {"apiGroup": "rgpu.dev", "resource": "reservations", "name": "week", "uid": "week-1"}
    )
    assert [pod.name for pod in view_of(type(made).from_dict(content), "gpu7").pods] == ["pod-1"]
