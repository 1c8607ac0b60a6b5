"""rgpu on Kubernetes 1.34, as the real parts emulate it: without feature gates and with them.

An emulated release has the APIs and the defaults of its feature gates, and today's code behind them.
Its API server cannot serve MutatingAdmissionPolicy, because today's code asks for v1 of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import pages
from helpers.gpu_node import POOL, SECONDS, GpuNode
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, claim_spec, device_class, make, node
from helpers.kubernetes import ControlPlane
from helpers.manager import ManagerProcess
from helpers.waiting import wait_until
from lightkube.generic_resource import create_global_resource
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from rgpu_cluster.kubernetes.agent.dropped import GATES

RELEASE = "1.34"
PAGE = "how-to/kubernetes-upgrade.md"
MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}
GIB = 1 << 30
POLICIES = [
    create_global_resource("admissionregistration.k8s.io", "v1", f"MutatingAdmission{kind}", plural)
    for kind, plural in (
        ("Policy", "mutatingadmissionpolicies"),
        ("PolicyBinding", "mutatingadmissionpolicybindings"),
    )
]


@contextmanager
def cluster(built: Path, folder: Path, gates: dict[str, bool]) -> Iterator[GpuNode]:
    """A cluster with a manager, a GPU node of a card of 2 GiB, and a node for pods."""
    with ControlPlane(built, gates, emulates=RELEASE) as plane:
        client = plane.client()
        apply(client, "namespace.yaml", "manager-rbac.yaml")
        device_class(client)
        space = Space(client, "team")
        space.open()
        node(client, "client")
        config = str(plane.kubeconfig_file("placer"))
        words = ("--kubernetes", "--kubeconfig", config, "--namespace", "rgpu-system")
        with (
            ManagerProcess(*words) as manager,
            GpuNode(plane, space, folder, "--join", manager.address) as gpu,
        ):
            manager.has(POOL)
            gpu.published()
            yield gpu


def ended(gpu: GpuNode, pod: str) -> None:
    gpu.space.delete(Pod, pod)
    wait_until(lambda: not gpu.leases(), SECONDS)


@pytest.mark.full
def test_without_feature_gates_a_claim_takes_a_whole_card(built: Path, tmp_path: Path) -> None:
    with cluster(built, tmp_path, {}) as gpu:
        gpu.agent.says("this API server drops allowMultipleAllocations, bindingConditions")
        space, first = gpu.space, gpu.pool().pool.generation
        # The manager gives it, and kube-scheduler.
        for name, gated in (("managed", True), ("plain", False)):
            space.claim(name, claim_spec(30, "512Mi"))
            asked = space.get(ResourceClaim, name).spec.devices.requests[0].exactly
            assert asked.capacity is None, "the API server keeps what it cannot serve"
            space.pod(name, claim=name, gated=gated, metadata=MANAGED if gated else None)
            assert space.bound(name) == "client"
            wait_until(lambda: len(gpu.leases()) == 1, SECONDS)
            (lease,) = gpu.leases()
            assert (lease.share_ppm, lease.memory_bytes) == (1_000_000, 2 * GIB)
            ended(gpu, name)
        assert gpu.pool().pool.generation == first


@pytest.mark.full
def test_with_feature_gates_claims_share_a_card(built: Path, tmp_path: Path) -> None:
    gates = {gate: True for gate, _ in GATES.values()}
    with cluster(built, tmp_path, gates) as gpu:
        space = gpu.space
        for name, gated in (("managed", True), ("plain", False)):
            space.claim(name, claim_spec(30, "512Mi"))
            space.pod(name, claim=name, gated=gated, metadata=MANAGED if gated else None)
            assert space.bound(name) == "client"
        wait_until(lambda: len(gpu.leases()) == 2, SECONDS)
        sizes = {(lease.share_ppm, lease.memory_bytes) for lease in gpu.leases()}
        assert sizes == {(300_000, GIB // 2)}
        assert "drops" not in gpu.agent.told()


def named(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


@pytest.fixture
def policy(plane: ControlPlane) -> Iterator[None]:
    """That of the manifests. Other tests have policies of their own."""
    client = plane.client()
    apply(client, "policy.yaml")
    yield
    for kind in POLICIES:
        client.delete(kind, "rgpu-placement")


@pytest.mark.usefixtures("policy")
def test_a_pod_may_say_itself_what_the_policy_adds(plane: ControlPlane, space: Space) -> None:
    """The pod of the page, which no policy changes any more, is what the policy makes of a short one."""
    ((_, (written,)),) = pages.blocks(PAGE)
    short = {
        **written,
        "metadata": {**written["metadata"], "name": "short"},
        "spec": {
            "resourceClaims": written["spec"]["resourceClaims"],
            "containers": [
                {key: one[key] for key in ("name", "image", "resources")}
                for one in written["spec"]["containers"]
            ],
        },
    }

    def made(content: dict[str, Any]) -> dict[str, Any]:
        metadata = {**content["metadata"], "namespace": space.name}
        pod: dict[str, Any] = make(plane.client(), {**content, "metadata": metadata}).to_dict()
        return dict(pod["spec"])

    found: list[dict[str, Any]] = []

    def gated() -> bool:
        found.append(made(short))
        space.delete(Pod, "short")
        return bool(found[-1].get("schedulingGates"))

    wait_until(gated, SECONDS)  # the policy counts once the API server has read it
    by_policy, by_hand = found[-1], made(written)
    assert by_hand["schedulingGates"] == by_policy["schedulingGates"]
    (one,), (other,) = by_hand["containers"], by_policy["containers"]
    assert named(one["env"]) == named(other["env"])
    for here, there in ((one, other), (by_hand, by_policy)):
        field = "volumeMounts" if here is one else "volumes"
        assert named(here[field])["rgpu-token"] == named(there[field])["rgpu-token"]
