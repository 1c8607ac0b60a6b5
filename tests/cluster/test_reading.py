"""Messages of nodes and clients: what no node or client of this release sends is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rgpu_cluster.core.card import CardId
from rgpu_cluster.core.errors import PlacementError
from rgpu_cluster.core.request import Mode
from rgpu_cluster.manager.reading import (
    figures_of,
    held_of,
    nic_of,
    node_of,
    request_of,
)
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, cluster_pb2, lease_pb2, network_pb2

GIB = 1 << 30


def report(**more: Any) -> agent_pb2.NodeReport:
    made = agent_pb2.NodeReport(
        name="n1",
        server=bytes(16),
        address="n1:7700",
        generation=1,
        cards=[agent_pb2.CardReport(ordinal=0, model="H100", memory_bytes=80 * GIB)],
    )
    made.MergeFrom(agent_pb2.NodeReport(**more))
    return made


def lease(**more: Any) -> agent_pb2.HeldLease:
    return agent_pb2.HeldLease(
        **{"lease_id": "lease-1", "tenant": "a", "share_ppm": 1, "memory_bytes": 1, **more}
    )


def submit(**more: Any) -> cluster_pb2.SubmitRequest:
    return cluster_pb2.SubmitRequest(**{"request_id": "run-0123456789abcdef", **more})


def read(message: cluster_pb2.SubmitRequest) -> Any:
    return request_of(message, "a", "", "")


def test_a_report_is_a_node_with_its_leases() -> None:
    booked = lease(request_id="run-0123456789abcdef", attempt=3, whole=True)
    booked.neighbours.exclusion = "x"
    said = report(draining=True, rack="r1", leases=[lease(), booked])
    node = node_of(said, 7)
    assert (node.generation, node.rack, node.taints) == (7, "r1", {"drain"})
    first, second = held_of(said)[CardId("n1", 0)]
    assert first.lease == "n1/lease-1"
    assert (second.lease, second.attempt, second.share_ppm) == (booked.request_id, 3, PPM)
    assert second.labels.exclusion == "x"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"name": "no name!"}, "--node-name"),
        ({"name": "../../etc"}, "--node-name"),
        ({"rack": "a b"}, "cannot name a rack"),
        ({"address": "x" * 400}, "at most 300"),
        ({"address": ":::"}, "is not an address"),
        ({"cards": [agent_pb2.CardReport(ordinal=0, memory_bytes=GIB)]}, "each number once"),
        ({"cards": [agent_pb2.CardReport(ordinal=9)]}, "0 bytes"),
        ({"cards": [agent_pb2.CardReport(ordinal=9, memory_bytes=(1 << 64) - 1)]}, "cannot be"),
        (
            {"cards": [agent_pb2.CardReport(ordinal=9, memory_bytes=1, part_ppm=PPM + 1)]},
            "cannot be",
        ),
        (
            {"cards": [agent_pb2.CardReport(ordinal=9, memory_bytes=1, mig="1g.10gb\n")]},
            "too long",
        ),
        (
            {"cards": [agent_pb2.CardReport(ordinal=i + 1, memory_bytes=1) for i in range(200)]},
            "at most 128",
        ),
        (
            {"cards": [agent_pb2.CardReport(ordinal=9, memory_bytes=1, model="m" * 999)]},
            "too long",
        ),
        (
            {"cards": [agent_pb2.CardReport(ordinal=9, memory_bytes=1, location=["x"] * 99)]},
            "cannot be",
        ),
    ],
)
def test_a_node_that_cannot_be_is_refused(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlacementError, match=sentence):
        node_of(report(**more), 1)


@pytest.mark.parametrize(
    "leases",
    [
        [lease(), lease()],
        [lease(ordinal=1)],
        [lease(share_ppm=PPM + 1)],
        [lease(memory_bytes=(1 << 64) - 1)],
        [lease(lease_id="")],
        [lease(request_id="short")],
        [lease(request_id="run/0123456789abcdef")],
        [lease(tenant="t" * 999)],
        [lease(lease_id=f"lease-{i}") for i in range(9000)],
    ],
)
def test_leases_that_cannot_be_are_refused(leases: list[agent_pb2.HeldLease]) -> None:
    with pytest.raises(PlacementError):
        held_of(report(leases=leases))


def test_the_fastest_interface_names_the_class_of_a_node() -> None:
    slow = network_pb2.NetDevice(name="eth0", up=True, speed_mbps=10_000)
    down = network_pb2.NetDevice(name="eth1", up=False, speed_mbps=400_000)
    port = network_pb2.RdmaPort(device="mlx5_0", port=1, active=True, speed_mbps=200_000)
    fast = network_pb2.NetDevice(name="ib0", up=True, rdma_ports=[port])
    assert nic_of([slow, down]) == ("10G", 10_000_000_000)
    assert nic_of([slow, fast]) == ("200G-rdma", 200_000_000_000)
    assert nic_of([network_pb2.NetDevice(name="lo", up=True)]) == ("", 0)


def test_figures_that_no_network_has_are_refused() -> None:
    assert figures_of(agent_pb2.PathReport(round_trip_ns=5)).round_trip_ns == 5
    for wrong in ({}, {"round_trip_ns": 1 << 60}, {"round_trip_ns": 1, "up_rate": 1 << 63}):
        with pytest.raises(PlacementError):
            figures_of(agent_pb2.PathReport(**wrong))


def test_a_request_without_sizes_guarantees_no_time_and_a_quarter_of_the_memory() -> None:
    asked = read(submit())
    assert (asked.share_ppm, asked.memory_on(8 * GIB)) == (0, 2 * GIB)
    assert asked.farthest is Mode.ANY


def test_bounds_and_slices_are_read() -> None:
    asked = read(submit(cards=3, max_per_node=1, max_per_rack=2, max_per_zone=3, mig="1g.10gb"))
    assert (asked.max_per_node, asked.max_per_rack, asked.max_per_zone) == (1, 2, 3)
    assert asked.mig == "1g.10gb"
    slice_of = agent_pb2.CardReport(
        ordinal=1, model="H100", memory_bytes=GIB, mig="1g.10gb", part_ppm=142_857
    )
    cards = node_of(report(cards=[slice_of]), 1).cards
    assert [(card.mig, card.part_ppm) for card in cards] == [("", PPM), ("1g.10gb", 142_857)]
    assert cards[1].title == "H100 MIG 1g.10gb"


def test_a_whole_card_is_all_of_it() -> None:
    asked = read(submit(whole=True, quota=lease_pb2.Quota(memory_bytes=GIB)))
    assert (asked.share_ppm, asked.memory_on(8 * GIB), asked.whole) == (PPM, 8 * GIB, True)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"request_id": "x"}, "16 to 64"),
        ({"request_id": "run/0123456789abcdef"}, "16 to 64"),
        ({"model": "m" * 999}, "at most 128"),
        ({"model": "\n"}, "at most 128"),
        ({"quota": lease_pb2.Quota(memory_bytes=(1 << 64) - 1)}, "no card has so much"),
        ({"quota": lease_pb2.Quota(share_request_ppm=PPM + 1)}, "--cards"),
        ({"quota": lease_pb2.Quota(priority=999)}, "0 to 100"),
        ({"quota": lease_pb2.Quota(memory_ppm=PPM + 1)}, "0% to 100%"),
        ({"cards": 1 << 31}, "ask for 1 to"),
        ({"gang": "g", "gang_size": 0}, "1 to 1024"),
        ({"farthest": cluster_pb2.REACH_LOCAL}, "leave --local out"),
        ({"farthest": cluster_pb2.REACH_PASSTHROUGH}, "ask for a whole card"),
        (
            {"neighbours": agent_pb2.Neighbours(affinity="a", anti_affinity="a")},
            "leave one of them out",
        ),
        ({"neighbours": agent_pb2.Neighbours(exclusion="x" * 99)}, "at most 63"),
        ({"one_node": True, "cards": 4, "max_per_node": 2}, "leave one of the two out"),
        ({"one_node": True, "cards": 4, "max_per_zone": 3}, "leave one of the two out"),
    ],
)
def test_a_request_that_cannot_be_met_names_the_remedy(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlacementError, match=sentence):
        read(submit(**more))
