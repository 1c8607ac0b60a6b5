"""A pool before an API server that drops what its feature gates do not let in."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from lightkube.resources.resource_v1 import ResourceSlice

from cluster.agent_world import NODE, report
from rgpu_cluster.kubernetes.agent.publisher import Publisher
from rgpu_cluster.kubernetes.slices import Place, devices_of, tainted

TAINT = {"key": "rgpu.dev/drain", "effect": "NoSchedule"}


class OldServer:
    """It keeps no field of a device that has one of these names. writes: how often it was asked."""

    def __init__(self, *drops: str) -> None:
        self.drops = drops
        self.writes = 0
        self._versions = itertools.count(1)

    async def create(self, one: ResourceSlice) -> ResourceSlice:
        self.writes += 1
        content: dict[str, Any] = one.to_dict()
        content["metadata"]["resourceVersion"] = str(next(self._versions))
        for device in content["spec"]["devices"]:
            for name in self.drops:
                device.pop(name, None)
        return ResourceSlice.from_dict(content)

    replace = create


def published(server: OldServer, *changes: bool) -> None:
    """Publishes the pool once for each change. changes: whether the cards are drained then."""
    publisher = Publisher(server, NODE, lambda: None)  # type: ignore[arg-type]
    cards = devices_of(report(), Place(NODE))

    async def publish() -> None:
        for drained in changes:
            devices = [tainted(one, [TAINT]) if drained else one for one in cards]
            await publisher.publish(devices, Place(NODE))

    asyncio.run(publish())


def test_what_is_dropped_is_not_written_again_and_again() -> None:
    server = OldServer("allowMultipleAllocations", "bindingConditions", "taints")
    published(server, False, False, True, True, True, False, False)
    assert server.writes == 3


def test_what_is_dropped_is_said_once_with_the_gates(caplog: pytest.LogCaptureFixture) -> None:
    published(OldServer("allowMultipleAllocations", "bindingConditions"), False, True, False)
    (said,) = [one.getMessage() for one in caplog.records if "drops" in one.getMessage()]
    assert said == (
        "this API server drops allowMultipleAllocations, bindingConditions of devices, so a claim "
        "takes a whole card, whatever it asks for, and kube-scheduler binds pods before their "
        "claims have leases; use Kubernetes 1.36 or later, or switch the feature gates "
        "DRAConsumableCapacity, DRADeviceBindingConditions on in kube-apiserver, kube-scheduler "
        "and kube-controller-manager"
    )


def test_nothing_is_said_of_a_server_that_keeps_all(caplog: pytest.LogCaptureFixture) -> None:
    server = OldServer()
    published(server, False, True, True)
    assert server.writes == 2
    assert not [one for one in caplog.records if "drops" in one.getMessage()]
