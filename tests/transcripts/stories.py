"""What our code does with the API server, told so that it can be recorded and replayed.

A story is played by our real code. `stage.user` is whoever else works with the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from cluster import agent_world as samples
from helpers.granting_link import Daemon, shell_of
from helpers.kube_objects import Space, claim_spec, node
from lightkube import Client
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice
from lightkube.types import PatchType

from rgpu_cluster.kubernetes import election
from rgpu_cluster.kubernetes.agent.publisher import Publisher
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of
from rgpu_cluster.kubernetes.election import Elector
from rgpu_cluster.kubernetes.front import Front
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.names import MANAGER_LEASE
from rgpu_cluster.kubernetes.slices import Place, Reach, devices_of, tainted
from rgpu_common.tasks import end
from transcripts.stage import Stage

SYSTEM = "rgpu-system"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{Stage.namespace}/resourceclaims"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}


@dataclass(frozen=True)
class Story:
    """user: whose rights our code has. files: of deploy/kubernetes/base, which give them.

    forgotten: the API server has just begun, and knows no change that was before.
    """

    play: Callable[[Stage], Coroutine[Any, Any, None]]
    user: str
    files: tuple[str, ...]
    forgotten: bool = False


def space(admin: Client) -> Space:
    return Space(admin, Stage.namespace)


def waiting_pod(claim: dict[str, Any]) -> Callable[[Client], None]:
    """Makes a gated pod with this claim, and a node for it."""

    def act(admin: Client) -> None:
        node(admin, "client")
        space(admin).claim("third", claim)
        space(admin).pod("train", claim="third", gated=True, metadata=MANAGED)

    return act


@asynccontextmanager
async def managed(stage: Stage) -> AsyncIterator[tuple[Front, Daemon]]:
    """Runs the manager's front with a GPU node that grants at once."""
    shell, daemon = shell_of()
    front = Front(stage.client, shell)
    kinds = sum(isinstance(one, Informer) for one in vars(front).values())
    running = asyncio.ensure_future(front.run())
    try:
        await stage.until(lambda: stage.watches == kinds)
        yield front, daemon
    finally:
        await end([running])


def pod_of(front: Front) -> Any:
    return front.pods.store.get((Stage.namespace, "train"))


async def a_gated_pod_gets_its_card(stage: Stage) -> None:
    await stage.user("makes a claim and a gated pod", waiting_pod(claim_spec(30)))
    async with managed(stage) as (front, daemon):
        await stage.until(lambda: (pod := pod_of(front)) and pod.spec.nodeName and not front._tasks)
        assert pod_of(front).metadata.annotations["rgpu.dev/server"] == "gpu-1:7700"
        await stage.user("deletes the pod", lambda admin: space(admin).delete(Pod, "train"))
        await stage.until(lambda: "revoke" in daemon.ordered)


async def a_claim_is_refused(stage: Stage) -> None:
    wrong = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", "colour": "red"}
    spec = claim_spec(30)
    spec["devices"]["config"] = [{"opaque": {"driver": "rgpu.dev", "parameters": wrong}}]
    await stage.user("makes a gated pod whose claim has a wrong field", waiting_pod(spec))
    async with managed(stage) as (front, daemon):

        def told() -> bool:
            pod = pod_of(front)
            rows = (pod.status.conditions or []) if pod is not None else []
            return any("no field 'colour'" in (one.message or "") for one in rows)

        await stage.until(lambda: told() and not front._tasks)
        await stage.user("deletes the pod", lambda admin: space(admin).delete(Pod, "train"))
        await stage.until(lambda: pod_of(front) is None)
        assert daemon.ordered == []


async def a_claim_changes_while_it_is_allocated(stage: Stage) -> None:
    def change(admin: Client) -> None:
        note = {"metadata": {"annotations": {"note": "mine"}}}
        admin.patch(ResourceClaim, "third", note, namespace=Stage.namespace,
                    patch_type=PatchType.MERGE)  # fmt: skip

    await stage.user("makes a claim and a gated pod", waiting_pod(claim_spec(30)))
    stage.meanwhile(f"PUT {CLAIMS}/third", change)
    async with managed(stage) as (front, _):
        await stage.until(lambda: (pod := pod_of(front)) and pod.spec.nodeName and not front._tasks)
        claim = front.claims.store[Stage.namespace, "third"]
        assert claim.metadata.annotations == {"note": "mine"}
        assert claim.status.allocation is not None


async def a_watch_is_too_old(stage: Stage) -> None:
    changes: list[tuple[str, str]] = []

    def heard(before: Any, after: Any) -> None:
        old, new = ("" if one is None else one.metadata.name for one in (before, after))
        changes.append((old, new))

    def make(name: str) -> Callable[[Client], object]:
        return lambda admin: space(admin).claim(name, claim_spec(30))

    await stage.user("makes a claim", make("one"))
    stage.outdated(f"GET {CLAIMS}")
    claims: Informer[Any] = Informer(
        stage.client, ResourceClaim, namespace=Stage.namespace, on_change=heard
    )
    running = asyncio.ensure_future(claims.run())
    try:
        await stage.until(lambda: changes == [("", "one")] and stage.watches == 2)
        await stage.user("makes another one", make("two"))
        await stage.until(lambda: changes[1:] == [("", "two")])
        await stage.user("deletes it", lambda admin: space(admin).delete(ResourceClaim, "two"))
        await stage.until(lambda: changes[2:] == [("two", "")])
        assert [name for _, name in claims.store] == ["one"]
    finally:
        await end([running])


class Clock:
    """Goes on by `step` seconds each time somebody looks at it."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def replicas_choose_a_leader(stage: Stage) -> None:
    def elector(name: str, step: float) -> Elector:
        return Elector(stage.client, SYSTEM, MANAGER_LEASE, name, Clock(step))

    def take(admin: Client) -> None:
        admin.patch(Lease, MANAGER_LEASE, {"spec": {"holderIdentity": "three"}}, namespace=SYSTEM)

    with mock.patch.object(election, "RETRY_SECONDS", 0.01):
        one, two = elector("one", 4), elector("two", 16)
        await one.win()
        # The first one does not renew, for longer than its Lease lasts.
        await two.win()
        assert await one.hold() == "two leads"
        await two.give_up()
        # Another replica is quicker, and is heard of no more.
        stage.meanwhile(f"PUT {LEASES}/{MANAGER_LEASE}", take)
        await elector("four", 16).win()


async def a_pool_is_published(stage: Stage) -> None:
    place = Place(samples.NODE, Reach.ALL, "", "tls:gpu7:7720")
    cards = devices_of(samples.report(), place)
    drained = [tainted(one, [{"key": "rgpu.dev/drain", "effect": "NoSchedule"}]) for one in cards]
    name = f"{samples.NODE}-rgpu"
    publisher = Publisher(stage.client, samples.NODE, lambda: None)
    running = asyncio.ensure_future(publisher.slices.run())

    async def publish(devices: list[dict[str, Any]], generation: int) -> None:
        await publisher.publish(devices, place)

        def there() -> bool:
            one: Any = publisher.slices.store.get(("", name))
            return one is not None and one.spec.pool.generation == generation

        await stage.until(there)

    def note(admin: Client) -> None:
        admin.patch(ResourceSlice, name, {"metadata": {"labels": {"note": "mine"}}})

    try:
        await stage.until(lambda: publisher.slices.synced.is_set() and stage.watches == 1)
        await publisher.look()
        await publish(cards, 1)
        await publish(drained, 2)
        stage.meanwhile(f"PUT /apis/resource.k8s.io/v1/resourceslices/{name}", note)
        with pytest.raises(CALL_ERRORS) as overtaken:
            await publisher.publish(cards, place)
        assert code_of(overtaken.value) == 409
        await stage.until(lambda: "note" in publisher.slices.store["", name].metadata.labels)
        await publish(cards, 3)
        await stage.user("deletes the slice", lambda admin: admin.delete(ResourceSlice, name))
        await stage.until(lambda: not publisher.slices.store)
        await publisher.look()
        await publish(cards, 1)
    finally:
        await end([running])


_MANAGER = ("namespace.yaml", "classes.yaml", "manager-rbac.yaml")
STORIES = {
    story.play.__name__: story
    for story in (
        Story(a_gated_pod_gets_its_card, "placer", _MANAGER),
        Story(a_claim_is_refused, "placer", _MANAGER),
        Story(a_claim_changes_while_it_is_allocated, "placer", _MANAGER),
        Story(a_watch_is_too_old, "placer", _MANAGER, forgotten=True),
        Story(replicas_choose_a_leader, "placer", _MANAGER),
        Story(a_pool_is_published, "agent", ("namespace.yaml", "agent-rbac.yaml")),
    )
}
