"""The extender under the real kube-scheduler: no claims, only old units."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import samples
from helpers import https
from helpers.kube_objects import Space, node
from helpers.kubernetes import ControlPlane, Part
from helpers.waiting import wait_until
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import Event, Pod

from rgpu_cluster.core.card import Holding
from rgpu_cluster.core.decision import Decision
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Request
from rgpu_cluster.kubernetes.binding import Extender
from rgpu_cluster.kubernetes.legacy.vendors import SYSTEMS
from rgpu_cluster.kubernetes.web import Limits

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes" / "legacy"
NAME = "with-rgpu"


class Room:
    """A manager's pool in which daemons grant at once."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.paths = Paths()
        self.released: list[str] = []
        self.stuck = False

    async def grant(self, request: Request) -> dict[str, str]:
        if self.stuck:
            raise RequestError("no daemon granted the pod's card within 8 s")
        found = place(self.pool, request, self.paths)
        if not isinstance(found, Decision):
            raise RequestError("there is no room")
        (taken,) = found.chosen.cards
        self.pool.take(
            taken, Holding(request.id, request.tenant, request.share_ppm, request.memory_bytes)
        )
        return {
            "rgpu.dev/server": f"{taken.node}:7700",
            "rgpu.dev/lease": request.id,
            "rgpu.dev/device": "0",
        }

    def release(self, request: str) -> None:
        self.released.append(request)


@pytest.fixture
def room() -> Room:
    return Room(samples.pool_of(samples.node("gpu-1", rack="r1"), samples.node("gpu-2", rack="r2")))


@pytest.fixture
def scheduled(plane: ControlPlane, space: Space, room: Room, built: Path) -> Iterator[Space]:
    """A namespace, and a second scheduler with the configuration that is shipped."""

    async def routes(stack: AsyncExitStack) -> https.Routes:
        config = KubeConfig.from_dict(plane.kubeconfig())
        client = await stack.enter_async_context(AsyncClient(config=config, trust_env=False))
        return Extender(client, room).routes()

    with https.running(routes, tls=False) as url:
        config = yaml.safe_load((DEPLOY / "scheduler.yaml").read_text())
        config["profiles"] = [{"schedulerName": NAME}]
        config["extenders"][0] |= {"urlPrefix": url, "enableHTTPS": False}
        del config["extenders"][0]["tlsConfig"]
        config["clientConnection"] = {"kubeconfig": str(plane.folder / "scheduler.kubeconfig")}
        config["leaderElection"] = {"leaderElect": False}
        file = plane.folder / "with-rgpu.json"
        file.write_text(json.dumps(config))
        part = Part("kube-scheduler", built, plane.folder, [f"--config={file}", "--secure-port=0"])
        part.log = plane.folder / "with-rgpu.log"
        part.start()
        try:
            yield space
        finally:
            part.stop()


def old_pod(space: Space, name: str, core: int, **spec: Any) -> None:
    limits = {"tencent.com/vcuda-core": str(core), "tencent.com/vcuda-memory": "32"}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    space.make("v1", "Pod", name, spec={
        "containers": [container], "schedulerName": NAME, "terminationGracePeriodSeconds": 0, **spec,
    })  # fmt: skip


def test_pods_with_old_units_run_on_any_node_until_the_cards_are_full(
    scheduled: Space, room: Room
) -> None:
    """The node has no such resource; its pods have cards of nodes that Kubernetes does not know."""
    node(scheduled.client, "client", **{"rgpu.dev/rack": "r2"})
    for number in range(4):
        old_pod(scheduled, f"pod-{number}", 50)
        assert scheduled.bound(f"pod-{number}") == "client"
    told = [scheduled.get(Pod, f"pod-{n}").metadata for n in range(4)]
    servers = [one.annotations["rgpu.dev/server"] for one in told]
    # The rack of the node first.
    assert servers == ["gpu-2:7700", "gpu-2:7700", "gpu-1:7700", "gpu-1:7700"]
    assert [one.annotations["rgpu.dev/lease"] for one in told] == [one.uid for one in told]
    old_pod(scheduled, "late", 50)
    scheduled.refused("late", "rgpu: 2 cards cannot be used")


def test_a_pod_goes_where_its_card_is(scheduled: Space, room: Room) -> None:
    for name in ("client", "gpu-1"):
        node(scheduled.client, name)
    old_pod(scheduled, "old", 30)
    assert scheduled.bound("old") == "gpu-1"


def test_words_that_cannot_be_met_are_said_on_the_pod(scheduled: Space) -> None:
    node(scheduled.client, "client")
    old_pod(scheduled, "wrong", 150)
    why = "tencent.com/vcuda-core 150 is neither below 100"
    scheduled.said("wrong", "SchedulerError", why)


def test_a_pod_whose_lease_is_not_granted_is_not_bound(scheduled: Space, room: Room) -> None:
    room.stuck = True
    node(scheduled.client, "client")
    old_pod(scheduled, "old", 30)
    wait_until(lambda: bool(room.released))
    pod = scheduled.get(Pod, "old")
    assert not pod.spec.nodeName
    assert room.released[0] == pod.metadata.uid

    def told() -> bool:
        events = scheduled.client.list(Event, namespace=scheduled.name)
        return any("no daemon granted the pod's card" in (one.message or "") for one in events)

    wait_until(told)
    room.stuck = False
    assert scheduled.bound("old") == "client"


def test_the_configuration_names_every_unit() -> None:
    config = yaml.safe_load((DEPLOY / "scheduler.yaml").read_text())
    named = {one["name"] for one in config["extenders"][0]["managedResources"]}
    assert named == {unit for system in SYSTEMS for unit in system.resources if unit != system.weak}
    assert Limits().answer_seconds < 15
    assert asyncio.iscoroutinefunction(Room.grant)
