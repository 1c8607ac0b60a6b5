"""The manager on Kubernetes: gated pods get cards of real daemons, and kube-scheduler binds them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from helpers import clients
from helpers.ends import stopped
from helpers.kube_deploy import apply
from helpers.kube_objects import FINALIZER, RESOURCE, Space, card, claim_spec, node, publish
from helpers.kubernetes import ControlPlane
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Event, Pod
from lightkube.resources.resource_v1 import ResourceClaim
from lightkube.types import PatchType

MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}
GPUS = {"gpu7": "r1", "gpu8": "r2"}


@pytest.fixture(scope="module")
def ready(plane: ControlPlane) -> ControlPlane:
    apply(plane.client(), "namespace.yaml", "classes.yaml", "manager-rbac.yaml")
    return plane


@pytest.fixture(scope="module")
def manager(ready: ControlPlane) -> Iterator[ManagerProcess]:
    config = ready.kubeconfig_file("placer")
    words = ("--kubernetes", "--kubeconfig", str(config), "--namespace", "rgpu-system")
    with ManagerProcess(*words) as manager:
        yield manager


@pytest.fixture(scope="module")
def gpus(manager: ManagerProcess) -> Iterator[Nodes]:
    with Nodes(manager, GPUS, "emulated:16GiB") as nodes:
        yield nodes


@pytest.fixture
def here(space: Space, gpus: Nodes) -> Space:
    """A namespace, two client nodes, and the slices of the GPU nodes, whose cards are free."""
    # The leases of the last test's pods end a little later than its namespace.
    wait_until(lambda: every(gpus.manager) == [], 60)
    for name in ("client-a", "client-b"):
        node(space.client, name)
    for name in GPUS:
        publish(space.client, name, card("gpu-0"))
    return space


def leases(manager: ManagerProcess) -> dict[str, list[str]]:
    """Returns the requests of all leases by node."""
    return {
        one["name"]: sorted(
            lease["request_id"] for card in one["cards"] for lease in card["leases"]
        )
        for one in manager.pool()["nodes"]
    }


def every(manager: ManagerProcess) -> list[str]:
    """Returns the requests of all leases."""
    return sorted(itertools.chain.from_iterable(leases(manager).values()))


def told(space: Space, pod: str, *words: str) -> None:
    """Waits until the condition that says why a pod waits has all these words.  Its first sentence
    may be another: the manager hears of pods, of claims and of cards each in its own time.
    """
    found: list[str] = []

    def right() -> bool:
        conditions = space.get(Pod, pod).status.conditions or []
        found[:] = [str(one.message) for one in conditions if one.type == "rgpu.dev/Placed"]
        return bool(found) and all(one in found[0] for one in words)

    try:
        wait_until(right, 60)
    except AssertionError:
        raise AssertionError(f"pod {pod} is told {found}, not {words}") from None


def asking(core: int, memory: str = "1Gi", **parameters: Any) -> dict[str, Any]:
    spec = claim_spec(core, memory)
    said = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", **parameters}
    spec["devices"]["config"] = [{"opaque": {"driver": "rgpu.dev", "parameters": said}}]
    return spec


def test_a_gated_pod_gets_a_card_and_is_bound(here: Space, manager: ManagerProcess) -> None:
    here.template("third", claim_spec(30, "2Gi"))
    here.pod("train", template="third", gated=True, metadata=MANAGED)
    assert here.bound("train") in ("client-a", "client-b")
    claim = here.claim_of("train")
    (result,) = claim.status.allocation.devices.results
    assert result.consumedCapacity == {"core": "30", "memory": str(2 << 30)}
    assert claim.metadata.finalizers == [FINALIZER]
    pod = here.get(Pod, "train")
    assert [one.uid for one in claim.status.reservedFor] == [pod.metadata.uid]
    uid = claim.metadata.uid
    assert leases(manager)[result.pool] == [uid]
    said = pod.metadata.annotations
    assert (said["rgpu.dev/lease"], said["rgpu.dev/device"]) == (uid, "0")
    # What the pod is told is enough for an unmodified program.
    status, output, errors = clients.run(
        said["rgpu.dev/server"], "cuda.open(); print(cuda.memory()[1])",
        RGPU_LEASE=said["rgpu.dev/lease"], RGPU_DEVICE=said["rgpu.dev/device"], RGPU_TENANT=here.name,
    )  # fmt: skip
    assert (status, output.strip()) == (0, str(2 << 30)), errors
    here.delete(Pod, "train")
    here.gone(ResourceClaim, claim.metadata.name)
    wait_until(lambda: leases(manager)[result.pool] == [], 60)


def test_events_and_conditions_say_why_a_pod_waits(here: Space, manager: ManagerProcess) -> None:
    here.claim("large", claim_spec(100, "15Gi"))
    here.pod("first", claim="large", gated=True, metadata=MANAGED)
    here.claim("large-too", claim_spec(100, "15Gi"))
    here.pod("second", claim="large-too", gated=True, metadata=MANAGED)
    here.bound("first")
    here.bound("second")
    here.claim("more", claim_spec(50))
    here.pod("third", claim="more", gated=True, metadata=MANAGED)
    told(here, "third", "claim more: 2 cards cannot be used")

    def events() -> list[str]:
        found = here.client.list(Event, namespace=here.name)
        return [str(e.reason) for e in found if e.involvedObject.name == "third"]

    # The event is made after the condition.
    wait_until(lambda: events() == ["WaitsForGpu"], 60)
    here.delete(Pod, "first")
    here.bound("third")

    def placed() -> bool:
        rows = here.get(Pod, "third").status.conditions
        return [one.status for one in rows if one.type == "rgpu.dev/Placed"] == ["True"]

    wait_until(placed, 60)


def test_a_claim_that_is_not_there_is_told(here: Space) -> None:
    here.pod("train", claim="nowhere", gated=True, metadata=MANAGED)
    told(here, "train", "there is no claim nowhere; make it")
    here.claim("nowhere", claim_spec(10))
    here.bound("train")


def test_what_the_servers_forbid_is_told_in_their_words(here: Space) -> None:
    here.claim("first", asking(10, priority=5))
    here.pod("train", claim="first", gated=True, metadata=MANAGED)
    told(here, "train", "priority of at most 0 and asked for is 5")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (asking(30, colour="red"), "GpuRequest has no field 'colour'"),
        (asking(30, "64Gi"), "ask for less with capacity memory"),
        (asking(30, affinity="a", antiAffinity="a"), "both name 'a'"),
        (asking(30, model="H900"), "name one of them with model, or leave it out"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    here: Space, manager: ManagerProcess, spec: dict[str, Any], says: str
) -> None:
    here.claim("wrong", spec)
    here.pod("train", claim="wrong", gated=True, metadata=MANAGED)
    told(here, "train", says)
    assert here.allocation("wrong") is None
    here.delete(Pod, "train")


def test_a_gated_pod_that_is_deleted_while_it_waits_leaves_nothing(
    here: Space, manager: ManagerProcess
) -> None:
    here.claim("wrong", asking(30, "1Gi", model="H900"))
    here.pod("train", claim="wrong", gated=True, metadata=MANAGED)
    told(here, "train")
    here.delete(Pod, "train")
    here.gone(Pod, "train")
    wait_until(lambda: not manager.pool()["waiting"], 60)


def test_pods_of_one_claim_share_its_lease(here: Space, manager: ManagerProcess) -> None:
    claim = here.claim("shared", claim_spec(30))
    for name in ("one", "two"):
        here.pod(name, claim="shared", gated=True, metadata=MANAGED)
    for name in ("one", "two"):
        here.bound(name)
    assert every(manager) == [claim.metadata.uid]
    here.delete(Pod, "one")
    here.gone(Pod, "one")
    assert here.allocation("shared") is not None
    here.delete(Pod, "two")
    wait_until(lambda: every(manager) == [], 60)


def test_a_named_claim_is_used_again(here: Space, manager: ManagerProcess) -> None:
    here.claim("named", claim_spec(30))
    for _ in range(2):
        here.pod("train", claim="named", gated=True, metadata=MANAGED)
        here.bound("train")
        here.delete(Pod, "train")
        wait_until(lambda: here.allocation("named") is None, 60)
    wait_until(lambda: every(manager) == [], 60)


def test_a_gang_waits_until_it_is_complete(here: Space, manager: ManagerProcess) -> None:
    gang = {"labels": {**MANAGED["labels"], "rgpu.dev/gang": "all", "rgpu.dev/gang-size": "2"}}
    here.template("half", claim_spec(60))
    here.pod("one", template="half", gated=True, metadata=gang)
    told(here, "one", "1 of the 2 runs of its gang")
    here.pod("two", template="half", gated=True, metadata=gang)
    for name in ("one", "two"):
        here.bound(name)
    assert sorted(map(len, leases(manager).values())) == [1, 1]


def adaptive() -> dict[str, Any]:
    """A whole card, else half a card near it, else a third anywhere."""
    half, third = ({"requests": {"core": core, "memory": "2Gi"}} for core in ("50", "30"))
    rows = [
        {"name": "whole", "deviceClassName": "rgpu-whole.rgpu.dev"},
        {"name": "half", "deviceClassName": "rgpu.dev", "capacity": half},
        {"name": "third", "deviceClassName": "rgpu.dev", "capacity": third},
    ]
    spec = asking(30, mode="near")
    spec["devices"]["requests"] = [{"name": "gpu", "firstAvailable": rows}]
    spec["devices"]["config"][0]["requests"] = ["gpu/half"]
    return spec


def test_the_first_alternative_that_fits_is_allocated(here: Space, manager: ManagerProcess) -> None:
    for rack in ("r1", "r2"):
        node(here.client, f"client-{rack}", **{"rgpu.dev/rack": rack})
    here.template("adaptive", adaptive())
    here.pod("alone", template="adaptive", gated=True, metadata=MANAGED)
    here.bound("alone")
    made = here.claim_of("alone").status.allocation.devices
    assert [one.request for one in made.results] == ["gpu/whole"]
    assert [one.source for one in made.config] == ["FromClass"]
    here.delete(Pod, "alone")
    wait_until(lambda: every(manager) == [], 60)
    # Their memory keeps them off one card, so one card has 70 of 100 left, the other 40.
    for name, core in (("a", 30), ("b", 60)):
        here.claim(name, claim_spec(core, "9Gi"))
        here.pod(name, claim=name, gated=True, metadata=MANAGED)
        here.bound(name)
    roomy, full = (here.allocation(name).devices.results[0].pool for name in ("a", "b"))
    found = {}
    for name in ("first", "second"):
        here.pod(name, template="adaptive", gated=True, metadata=MANAGED)
        host = here.bound(name)
        (result,) = here.claim_of(name).status.allocation.devices.results
        found[result.request] = result.consumedCapacity["core"], result.pool, host
    assert found["gpu/half"] == ("50", roomy, f"client-{GPUS[roomy]}")
    assert found["gpu/third"][:2] == ("30", full)

    here.pod("last", template="adaptive", gated=True, metadata=MANAGED)
    rows = ("whole", "half", "third")
    told(here, "last", *(f"gpu/{name}: 2 cards cannot be used" for name in rows))
    here.delete(Pod, "first")
    here.bound("last")
    (result,) = here.claim_of("last").status.allocation.devices.results
    assert (result.request, result.pool) == ("gpu/half", roomy)
    for name in ("a", "b", "second", "last"):
        here.delete(Pod, name)
    wait_until(lambda: every(manager) == [], 60)


def until(seconds: float) -> dict[str, Any]:
    """Returns the metadata of a claim that is reserved for so long."""
    end = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return {"annotations": {"rgpu.dev/reserve-until": end.strftime("%Y-%m-%dT%H:%M:%SZ")}}


def test_a_reserved_claim_has_its_card_without_a_pod(here: Space, manager: ManagerProcess) -> None:
    claim = here.make(RESOURCE, "ResourceClaim", "demo", spec=claim_spec(50), metadata=until(3600))
    wait_until(lambda: here.allocation("demo") is not None, 60)
    assert every(manager) == [claim.metadata.uid]
    for _ in range(2):
        here.pod("train", claim="demo", gated=True, metadata=MANAGED)
        here.bound("train")
        here.delete(Pod, "train")
        here.gone(Pod, "train")
    assert here.allocation("demo") is not None
    over = until(-1)
    here.client.patch(ResourceClaim, "demo", {"metadata": over}, namespace=here.name,
                      patch_type=PatchType.MERGE)  # fmt: skip
    wait_until(lambda: here.allocation("demo") is None, 60)
    wait_until(lambda: every(manager) == [], 60)


@pytest.mark.full
def test_a_reservation_is_over_and_its_pod_runs_on(here: Space, manager: ManagerProcess) -> None:
    here.make(RESOURCE, "ResourceClaim", "demo", spec=claim_spec(50), metadata=until(6))
    here.pod("train", claim="demo", gated=True, metadata=MANAGED)
    here.bound("train")

    def users() -> list[str]:
        claim = here.get(ResourceClaim, "demo")
        return [one.resource for one in claim.status.reservedFor or []]

    wait_until(lambda: users() == ["pods"], 60)
    assert here.allocation("demo") is not None
    here.delete(Pod, "train")
    wait_until(lambda: here.allocation("demo") is None, 60)
    wait_until(lambda: every(manager) == [], 60)


@pytest.mark.parametrize("time", ["tomorrow", "2026-12-01T18:00:00", "9999-01-01T00:00:00Z"])
def test_a_reservation_without_a_time_is_refused(
    here: Space, manager: ManagerProcess, time: str
) -> None:
    metadata = {"annotations": {"rgpu.dev/reserve-until": time}}
    here.make(RESOURCE, "ResourceClaim", "demo", spec=claim_spec(50), metadata=metadata)

    def said() -> list[str]:
        events = here.client.list(Event, namespace=here.name)
        return [e.message for e in events if e.involvedObject.kind == "ResourceClaim"]

    wait_until(lambda: bool(said()), 60)
    assert "rgpu.dev/reserve-until" in said()[0]
    assert here.allocation("demo") is None


@pytest.mark.full
def test_a_manager_that_is_killed_loses_nothing(here: Space, manager: ManagerProcess) -> None:
    here.template("some", claim_spec(40))
    here.pod("before", template="some", gated=True, metadata=MANAGED)
    here.bound("before")
    manager.kill()
    here.pod("meanwhile", template="some", gated=True, metadata=MANAGED)
    manager.start()
    here.bound("meanwhile")
    held = sorted(here.claim_of(name).metadata.uid for name in ("before", "meanwhile"))
    wait_until(lambda: every(manager) == held, 60)
    for name in ("before", "meanwhile"):
        here.delete(Pod, name)
    wait_until(lambda: every(manager) == [], 60)


def test_the_other_replica_takes_over(
    here: Space, manager: ManagerProcess, ready: ControlPlane
) -> None:
    assert manager.process is not None
    stopped(manager.process)  # gives its Lease up
    manager.close()
    manager.start()
    here.template("some", claim_spec(10))
    here.pod("train", template="some", gated=True, metadata=MANAGED)
    here.bound("train")
    here.delete(Pod, "train")
