"""What a GPU node offers to Kubernetes, and which writes its pool needs."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.agent_world import NODE, card, nic, report
from cluster.samples import GIB
from rgpu_cluster.kubernetes import wishes
from rgpu_cluster.kubernetes.agent.health import Health, State
from rgpu_cluster.kubernetes.agent.publishing import plan, published
from rgpu_cluster.kubernetes.slices import (
    MEMORY_STEP,
    Place,
    Reach,
    bandwidth_of,
    devices_of,
    is_kubernetes_name,
    specs_of,
    tainted,
)
from rgpu_common.v1 import agent_pb2, network_pb2

PLACE = Place(NODE)
MIB = 1 << 20


def devices(*cards: agent_pb2.CardReport, **more: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in devices_of(report(*cards, **more), PLACE)}


def stored(writes: list[Any], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slices that an API server has after some writes."""
    known = {one["metadata"]["name"]: one for one in before}
    for number, write in enumerate(writes, 1):
        known.pop(write.name, None)
        if write.verb != "delete":
            version = {"resourceVersion": str(100 + number)}
            metadata = {**write.content["metadata"], **version}
            known[write.name] = {**write.content, "metadata": metadata}
    return [*known.values()]


def test_a_card_is_a_device_that_claims_share() -> None:
    made = devices(card(2, 139 * GIB + 5, pool="research", location=["numa1", "0000:3b:00.0"]))
    assert made["gpu-2"] == {
        "name": "gpu-2",
        "allowMultipleAllocations": True,
        "attributes": {
            "kind": {"string": "card"},
            "model": {"string": "H200"},
            "numa": {"int": 1},
            "ordinal": {"int": 2},
            "pool": {"string": "research"},
            "rack": {"string": "r3"},
            "server": {"string": "gpu7:7700"},
            "uuid": {"string": "GPU-2"},
        },
        "capacity": {
            "core": {
                "value": "100",
                "requestPolicy": {"default": "100", "validRange": {"min": "1", "step": "1"}},
            },
            "memory": {
                "value": "139Gi",
                "requestPolicy": {
                    "default": "139Gi",
                    "validRange": {"min": "256Mi", "step": "256Mi"},
                },
            },
        },
        "bindingConditions": ["rgpu.dev/leased"],
        "bindingFailureConditions": ["rgpu.dev/refused"],
    }


@pytest.mark.parametrize(
    ("size", "value", "step"),
    [
        (10 * GIB - 1, "9984Mi", "256Mi"),
        (256 * MIB, "256Mi", "256Mi"),
        (256 * MIB - 1, "255Mi", "1Mi"),
        (1 * MIB, "1Mi", "1Mi"),
    ],
)
def test_memory_is_rounded_down_to_the_step(size: int, value: str, step: str) -> None:
    memory = devices(card(0, size))["gpu-0"]["capacity"]["memory"]
    assert memory["value"] == memory["requestPolicy"]["default"] == value
    assert memory["requestPolicy"]["validRange"] == {"min": step, "step": step}


def test_a_card_without_memory_is_left_out() -> None:
    assert list(devices(card(0, MIB - 1), card(1))) == ["gpu-1"]


def test_the_manager_counts_memory_in_the_same_steps() -> None:
    assert wishes.MEMORY_STEP == MEMORY_STEP


def test_a_slice_of_a_card_is_a_card_with_its_profile() -> None:
    made = devices(card(3, 10 * GIB, mig="1g.10gb", part_ppm=142_857))["gpu-3"]
    assert made["attributes"]["mig"] == {"string": "1g.10gb"}
    assert made["capacity"]["core"]["value"] == "100"
    assert made["capacity"]["memory"]["value"] == "10Gi"


def test_a_text_that_kubernetes_would_refuse_is_no_attribute() -> None:
    made = devices(card(0, pool="x" * 65), card(1, pool="a\nb"))
    assert "pool" not in made["gpu-0"]["attributes"]
    assert "pool" not in made["gpu-1"]["attributes"]


def test_network_devices_offer_their_bandwidth() -> None:
    rdma = network_pb2.RdmaPort(device="mlx5_0", port=1, active=True, speed_mbps=200_000)
    more = [nic("mlx5_0", 0, rdma_ports=[rdma], numa_node=1), nic("eth0.7", 10), nic("veth1", 0)]
    made = devices(devices=more)
    assert list(made) == ["gpu-0", "net-eth0-7", "net-mlx5-0"]
    fast = made["net-mlx5-0"]
    assert fast["capacity"]["bandwidth"]["value"] == "200G"
    assert fast["capacity"]["bandwidth"]["requestPolicy"] == {
        "default": "1G",
        "validRange": {"min": "100M", "step": "100M"},
    }
    assert fast["attributes"]["numa"] == {"int": 1}
    assert fast["attributes"]["nic"] == {"string": "mlx5_0"}
    assert bandwidth_of(fast) == 200_000_000_000
    assert bandwidth_of(made["gpu-0"]) == 0


def test_two_interfaces_of_one_name_are_one_device() -> None:
    made = devices(devices=[nic("eth_0", 1), nic("eth-0", 1)])
    assert list(made) == ["gpu-0", "net-eth-0"]


def test_many_cards_are_several_slices_of_one_pool() -> None:
    made = devices_of(report(*(card(n) for n in range(70))), PLACE)
    specs = specs_of(made, PLACE, 12)
    assert [len(spec["devices"]) for spec in specs] == [64, 6]
    assert {str(spec["pool"]) for spec in specs} == {
        "{'name': 'gpu7', 'generation': 12, 'resourceSliceCount': 2}"
    }
    assert [one["name"] for one in specs[0]["devices"][:3]] == ["gpu-0", "gpu-1", "gpu-2"]


def test_the_reach_says_whose_pods_may_use_the_cards() -> None:
    made = devices_of(report(), PLACE)
    assert specs_of(made, PLACE, 1)[0]["allNodes"] is True
    (zone,) = specs_of(made, Place(NODE, Reach.ZONE, "a"), 1)
    (term,) = zone["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["a"]
    (own,) = specs_of(made, Place(NODE, Reach.NODE), 1)
    (term,) = own["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == [NODE]


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a.", "a..b", "a.-b", "x" * 64])
def test_what_names_no_node_is_known(text: str) -> None:
    assert not is_kubernetes_name(text)


def test_nothing_is_written_twice() -> None:
    made = devices_of(report(), PLACE)
    first = plan([], made, PLACE, None)
    assert [(one.verb, one.name) for one in first] == [("create", "gpu7-rgpu")]
    found = stored(first, [])
    assert plan(found, made, PLACE, None) == []
    assert published(found).keys() == {"gpu-0"}


def test_a_change_raises_the_generation_of_what_is_there() -> None:
    made = devices_of(report(), PLACE)
    (found,) = stored(plan([], made, PLACE, None), [])
    found["spec"]["pool"]["generation"] = 41
    drain = {"key": "rgpu.dev/drain", "effect": "NoSchedule"}
    (write,) = plan([found], [tainted(made[0], [drain])], PLACE, None)
    assert write.verb == "replace"
    assert write.content["spec"]["pool"]["generation"] == 42
    assert write.content["metadata"]["resourceVersion"] == "101"


def test_slices_that_are_not_needed_are_removed() -> None:
    many = devices_of(report(*(card(n) for n in range(70))), PLACE)
    found = stored(plan([], many, PLACE, None), [])
    assert len(found) == 2
    writes = plan(found, many[:3], PLACE, None)
    assert [(one.verb, one.name) for one in writes] == [
        ("replace", "gpu7-rgpu"),
        ("delete", "gpu7-rgpu-1"),
    ]
    assert [one.verb for one in plan(found, [], PLACE, None)] == ["delete", "delete"]


def test_writes_that_were_cut_short_are_made_again() -> None:
    """An agent died between the slices of one change."""
    many = devices_of(report(*(card(n) for n in range(70))), PLACE)
    found = stored(plan([], many, PLACE, None), [])
    found[1]["spec"] = {**found[1]["spec"], "pool": {**found[1]["spec"]["pool"], "generation": 9}}
    writes = plan(found, many, PLACE, None)
    assert [one.verb for one in writes] == ["replace", "replace"]
    assert {one.content["spec"]["pool"]["generation"] for one in writes} == {10}


def test_a_new_node_owns_the_pool() -> None:
    made = devices_of(report(), PLACE)
    old = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "one"}
    found = stored(plan([], made, PLACE, old), [])
    assert plan(found, made, PLACE, old) == []
    (write,) = plan(found, made, PLACE, {**old, "uid": "two"})
    assert write.content["metadata"]["ownerReferences"][0]["uid"] == "two"


def test_the_time_of_a_taint_stays() -> None:
    """The API server adds it, and no write follows from that."""
    taint = {"key": "rgpu.dev/drain", "effect": "NoSchedule"}
    made = [tainted(one, [taint]) for one in devices_of(report(card(0), card(1)), PLACE)]
    found = stored(plan([], made, PLACE, None), [])
    for device in found[0]["spec"]["devices"]:
        device["taints"] = [{**taint, "timeAdded": "2026-01-01T00:00:00Z"}]
    assert plan(found, made, PLACE, None) == []
    (write,) = plan(found, [made[0]], PLACE, None)
    assert write.content["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"


# Health


def taints(found: list[dict[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    rows = {one["name"]: one.get("taints", []) for one in found}
    return {
        name: [(taint["key"].removeprefix("rgpu.dev/"), taint["effect"]) for taint in said]
        for name, said in rows.items()
    }


def test_a_server_that_drains_keeps_new_claims_away() -> None:
    made = devices(card(0), devices=[nic("eth0", 10)])
    found = Health(300).devices(made, State(True), {}, frozenset(), 0.0)
    assert taints(found) == {
        "gpu-0": [("drain", "NoSchedule")],
        "net-eth0": [("drain", "NoSchedule")],
    }


def test_a_card_that_is_gone_loses_its_pods_after_a_while() -> None:
    both, one = devices(card(0), card(1)), devices(card(0))
    health, used = Health(300), frozenset({"gpu-1"})
    found = health.devices(one, State(), both, used, 1000.0)
    assert taints(found) == {"gpu-0": [], "gpu-1": [("unhealthy", "NoSchedule")]}
    assert health.next_change(1000.0) == 1300.0
    before = {device["name"]: device for device in found}
    found = health.devices(one, State(), before, used, 1300.0)
    assert taints(found)["gpu-1"] == [("unhealthy", "NoExecute")]
    before = {device["name"]: device for device in found}
    # It leaves the pool when no claim has it.
    assert list(taints(health.devices(one, State(), before, frozenset(), 1301.0))) == ["gpu-0"]
    assert taints(health.devices(both, State(), before, used, 1302.0))["gpu-1"] == []


def test_an_agent_that_was_restarted_knows_since_when_a_card_is_gone() -> None:
    made = devices(card(0))["gpu-0"]
    gone = {
        "key": "rgpu.dev/unhealthy",
        "effect": "NoSchedule",
        "timeAdded": "1970-01-01T00:16:40Z",
    }
    before = {"gpu-0": tainted(made, [gone])}
    found = Health(300).devices({}, State(), before, frozenset({"gpu-0"}), 1299.0)
    assert taints(found)["gpu-0"] == [("unhealthy", "NoSchedule")]
    found = Health(300).devices({}, State(), before, frozenset({"gpu-0"}), 1300.0)
    assert taints(found)["gpu-0"] == [("unhealthy", "NoExecute")]


def test_cards_of_a_node_that_lost_its_network_take_no_new_claims() -> None:
    fast, slow = nic("mlx5_0", 200), nic("eth0", 10)
    both, one = devices(devices=[fast, slow]), devices(devices=[slow])
    found = Health(300).devices(one, State(), both, frozenset(), 0.0)
    assert taints(found) == {
        "gpu-0": [("network", "NoSchedule")],
        "net-eth0": [],
        "net-mlx5-0": [("unhealthy", "NoSchedule")],
    }
    # Pods of the node itself do not need it.
    found = Health(300, Reach.NODE).devices(one, State(), both, frozenset(), 0.0)
    assert taints(found)["gpu-0"] == []
    one = devices(devices=[fast])
    assert taints(Health(300).devices(one, State(), both, frozenset(), 0.0))["gpu-0"] == []


def test_cards_of_a_node_whose_paths_are_degraded_take_no_new_claims() -> None:
    made, bad = devices(devices=[nic("eth0", 10)]), State(degraded=True)
    found = taints(Health(300).devices(made, bad, made, frozenset(), 0.0))
    assert found == {"gpu-0": [("network", "NoSchedule")], "net-eth0": []}
    found = taints(Health(300, Reach.NODE).devices(made, bad, made, frozenset(), 0.0))
    assert found["gpu-0"] == []


def test_a_card_without_room_takes_no_new_claims_for_a_while() -> None:
    made, health = devices(card(0), card(1)), Health(300)
    health.fill("gpu-1", 130.0)
    found = health.devices(made, State(), {}, frozenset(), 100.0)
    assert taints(found) == {"gpu-0": [], "gpu-1": [("full", "NoSchedule")]}
    assert health.next_change(100.0) == 130.0
    assert taints(health.devices(made, State(), {}, frozenset(), 130.0))["gpu-1"] == []
