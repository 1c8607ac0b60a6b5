"""`rgpu agent-node` between a real server and the real API server, scheduler and controllers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import agent_world as samples
from helpers.agent_node import AgentNode
from helpers.command import run_rgpu
from helpers.gpu_node import POOL, SECONDS, GpuNode
from helpers.kube_objects import Space, allocate, card, claim_spec, make, node, publish
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.agent.publishing import plan
from rgpu_cluster.kubernetes.slices import Place, Reach, devices_of, tainted
from rgpu_common.v1 import agent_pb2, lease_pb2

pytestmark = pytest.mark.full

GIB = 1 << 30


@pytest.fixture
def gpu(plane: ControlPlane, space: Space, tmp_path: Path) -> Iterator[GpuNode]:
    node(space.client, "client")
    with GpuNode(plane, space, tmp_path) as one:
        yield one


def conditions(space: Space, claim: str) -> dict[str, tuple[str, str]]:
    """The conditions of a claim's first device that are true: their reason and message."""
    status = space.get(ResourceClaim, claim).status
    rows = (status.devices or []) if status is not None else []
    found = [one for row in rows for one in row.conditions or []]
    return {one.type: (one.reason, one.message) for one in found if one.status == "True"}


def test_cards_are_published_and_drained(gpu: GpuNode) -> None:
    spec = gpu.published()
    (device,) = spec.devices
    assert (spec.driver, spec.pool.name, spec.allNodes) == ("rgpu.dev", POOL, True)
    assert (device.name, device.capacity["memory"]["value"]) == ("gpu-0", "2Gi")
    assert device.attributes["server"]["string"] == gpu.server.tcp
    first = spec.pool.generation
    assert run_rgpu("drain", "--server", gpu.socket).returncode == 0
    gpu.tainted(("rgpu.dev/drain", "NoSchedule"))
    assert gpu.pool().pool.generation == first + 1
    assert run_rgpu("undrain", "--server", gpu.socket).returncode == 0
    gpu.tainted()


@pytest.mark.parametrize("reach", Reach)
def test_the_api_server_takes_all_that_can_be_published(space: Space, reach: Reach) -> None:
    cards = [samples.card(n, location=["numa1"], pool="research") for n in range(69)]
    odd = [
        samples.card(69, 10 * GIB + 1, mig="1g.10gb", part_ppm=142_857),
        samples.card(70, 3 << 20),
    ]
    found = samples.report(
        *cards, *odd, devices=[samples.nic("mlx5_0", 200, numa_node=1), samples.nic("eth0", 1)]
    )
    place = Place(POOL, reach, "a", "tls:gpu7:7720")
    keys = names.DRAIN_TAINT, names.NETWORK_TAINT, names.FULL_TAINT
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    devices = [tainted(device, taints) for device in devices_of(found, place)]
    writes = plan([], devices, place, None)
    assert len(writes) == 2
    stored = [make(space.client, write.content).to_dict() for write in writes]
    # What the server has made of it is the same, so nothing is written again.
    assert plan(stored, devices, place, None) == []
    assert [one.verb for one in plan(stored, devices[:1], place, None)] == ["replace", "delete"]


def test_a_pod_without_a_manager_gets_its_lease(gpu: GpuNode) -> None:
    """kube-scheduler allocates first fit, and binds when the agent has the lease."""
    gpu.published()
    claim = gpu.space.claim("third", claim_spec(30, "512Mi"))
    gpu.space.pod("train", claim="third")
    assert gpu.space.bound("train") == "client"
    assert conditions(gpu.space, "third").keys() == {"rgpu.dev/leased"}
    (lease,) = gpu.leases()
    assert claim.metadata
    assert (lease.request_id, lease.tenant) == (claim.metadata.uid, gpu.space.name)
    assert (lease.share_ppm, lease.memory_bytes, lease.kept) == (300_000, GIB // 2, True)
    told = gpu.space.get(Pod, "train").metadata.annotations
    assert told["rgpu.dev/server"] == gpu.server.tcp
    assert (told["rgpu.dev/lease"], told["rgpu.dev/device"]) == (claim.metadata.uid, "0")
    assert told["rgpu.dev/authority"] == gpu.authority.read_text()
    gpu.space.delete(Pod, "train")
    wait_until(lambda: not gpu.leases(), SECONDS)
    assert gpu.space.allocation("third") is None


def test_a_refused_claim_says_why_and_frees_the_card(gpu: GpuNode) -> None:
    """Somebody outside of Kubernetes has most of the card, which the slice does not show."""
    gpu.published()
    quota = lease_pb2.Quota(memory_bytes=GIB, share_request_ppm=800_000)
    gpu.operator.GrantLease(
        lease_pb2.GrantLeaseRequest(tenant="else", key="big", quota=quota, ttl_seconds=600),
        timeout=60,
    )
    seen: list[tuple[str, str]] = []

    def refused() -> bool:
        seen.extend(v for k, v in conditions(gpu.space, "half").items() if k == "rgpu.dev/refused")
        return bool(seen)

    gpu.space.claim("half", claim_spec(50, "512Mi"))
    gpu.space.pod("train", claim="half")
    wait_until(refused, SECONDS)
    assert seen[0][0] == "Refused"
    assert "80%" in seen[0][1] or "20%" in seen[0][1]
    gpu.tainted(("rgpu.dev/full", "NoSchedule"))
    wait_until(lambda: gpu.space.allocation("half") is None, SECONDS)
    assert not gpu.space.get(Pod, "train").spec.nodeName
    assert [lease.tenant for lease in gpu.leases()] == ["else"]


def test_a_claim_says_that_its_lease_is_lost(gpu: GpuNode) -> None:
    """An operator has ended the lease of a pod that is bound."""
    gpu.published()
    claim = gpu.space.claim("third", claim_spec(30, "512Mi"))
    gpu.space.pod("train", claim="third")
    gpu.space.bound("train")
    assert claim.metadata
    order = agent_pb2.RevokeOrder(request_id=claim.metadata.uid, attempt=2_000_000)
    gpu.orders.Revoke(order, timeout=60)

    def told() -> dict[str, tuple[str, str]]:
        return conditions(gpu.space, "third")

    wait_until(lambda: "rgpu.dev/lost" in told(), SECONDS)
    assert told()["rgpu.dev/lost"][0] == "Lost"
    assert "its programs get no GPU until rgpu has it again" in told()["rgpu.dev/lost"][1]
    assert not gpu.leases()
    # A new agent need not wait for whoever has ended the lease.
    gpu.agent.kill()
    gpu.agent.start()
    wait_until(lambda: told().keys() == {"rgpu.dev/leased"}, SECONDS)
    assert gpu.has_lease(claim)


def test_unknown_parameters_are_refused_with_their_name(gpu: GpuNode) -> None:
    gpu.published()
    spec = claim_spec(30, "512Mi")
    said = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", "colour": "red"}
    spec["devices"]["config"] = [{"opaque": {"driver": "rgpu.dev", "parameters": said}}]
    gpu.space.claim("odd", spec)
    gpu.space.pod("train", claim="odd")
    seen: list[str] = []

    def refused() -> bool:
        found = conditions(gpu.space, "odd").get("rgpu.dev/refused")
        seen.extend([found[1]] if found else [])
        return bool(seen)

    wait_until(refused, SECONDS)
    assert "has no field 'colour'" in seen[0]
    assert not gpu.leases()


def test_an_agent_that_is_killed_goes_on_where_it_was(gpu: GpuNode) -> None:
    gpu.published()
    stays, goes = (gpu.space.claim(name, claim_spec(30, "512Mi")) for name in ("stays", "goes"))
    for name in ("stays", "goes"):
        gpu.space.pod(name, claim=name)
        gpu.space.bound(name)
    before = gpu.space.get(ResourceSlice, f"{POOL}-rgpu").metadata.resourceVersion
    gpu.agent.kill()
    gpu.space.delete(Pod, "goes")
    wait_until(lambda: gpu.space.allocation("goes") is None, SECONDS)
    assert gpu.has_lease(goes)
    gpu.agent.start()
    # Its lease may be younger than what tells it from one that a manager is about to allocate.
    gpu.space.delete(ResourceClaim, "goes")
    wait_until(lambda: not gpu.has_lease(goes), SECONDS)
    assert gpu.has_lease(stays)
    after = gpu.space.get(ResourceSlice, f"{POOL}-rgpu").metadata.resourceVersion
    assert after == before


def test_the_lease_of_a_managers_allocation_is_kept(gpu: GpuNode) -> None:
    """The manager grants for 60 s; the agent tells the server who may use the lease."""
    gpu.published()
    claim = gpu.space.claim("third", claim_spec(30, "512Mi"))
    pod = gpu.space.pod("train", claim="third", gated=True)
    assert claim.metadata
    quota = lease_pb2.Quota(memory_bytes=GIB // 2, share_request_ppm=300_000)
    order = agent_pb2.GrantOrder(
        request_id=claim.metadata.uid, attempt=1, tenant=gpu.space.name, ordinals=[0], quota=quota,
        ttl_seconds=60, kept=True,
    )  # fmt: skip
    assert gpu.orders.Grant(order, timeout=60).granted
    allocate(gpu.space.client, claim, pod, ["client"], pool=POOL, device="gpu-0", core=30, memory="512Mi")  # fmt: skip
    gpu.space.ungate("train")
    gpu.space.bound("train")

    wait_until(lambda: gpu.remaining() > [500], SECONDS)
    assert [lease.attempt for lease in gpu.leases()] == [1]
    assert "rgpu.dev/leased" not in conditions(gpu.space, "third")
    gpu.space.delete(Pod, "train")
    wait_until(lambda: not gpu.leases(), SECONDS)


def test_an_api_server_that_stands_still_costs_nobody_a_lease(gpu: GpuNode) -> None:
    gpu.published()
    gpu.space.claim("third", claim_spec(30, "512Mi"))
    gpu.space.pod("train", claim="third")
    gpu.space.bound("train")
    server = gpu.plane.parts["kube-apiserver"]
    server.signal(signal.SIGSTOP)
    try:
        assert run_rgpu("drain", "--server", gpu.socket).returncode == 0
        gpu.agent.says("the pool is not published now")
        assert len(gpu.leases()) == 1
    finally:
        server.signal(signal.SIGCONT)
    gpu.tainted(("rgpu.dev/drain", "NoSchedule"))
    assert run_rgpu("undrain", "--server", gpu.socket).returncode == 0
    gpu.tainted()
    assert len(gpu.leases()) == 1
    said = [line for line in gpu.agent.log if "the pool is not published now" in line]
    assert len(said) == 1


def test_a_server_that_dies_takes_no_new_claims_until_it_is_back(gpu: GpuNode) -> None:
    gpu.published()
    claim = gpu.space.claim("third", claim_spec(30, "512Mi"))
    gpu.space.pod("train", claim="third")
    gpu.space.bound("train")
    process = gpu.server.process
    assert process is not None
    process.kill()
    process.wait()
    gpu.tainted(("rgpu.dev/unhealthy", "NoSchedule"))
    gpu.server = gpu.serve()
    gpu.tainted()
    # Without its memory the new server has no lease, so the agent asks for it again.
    wait_until(lambda: gpu.has_lease(claim), SECONDS)


def test_other_pools_and_lost_slices(gpu: GpuNode) -> None:
    publish(gpu.space.client, "gpu8", card("gpu-0"))
    other = gpu.space.get(ResourceSlice, "gpu8-rgpu").metadata.resourceVersion
    gpu.published()
    gpu.space.client.delete(ResourceSlice, f"{POOL}-rgpu")
    gpu.published()
    assert gpu.space.get(ResourceSlice, "gpu8-rgpu").metadata.resourceVersion == other


def test_a_node_owns_its_pool(gpu: GpuNode) -> None:
    gpu.agent.close()
    node(gpu.space.client, POOL, **{"topology.kubernetes.io/zone": "a"})
    for reach, term in (("zone", "matchExpressions"), ("node", "matchFields")):
        with AgentNode(*gpu.arguments("--offer", reach)):

            def offered(term: str = term) -> bool:
                spec = gpu.pool()
                terms = spec.nodeSelector.nodeSelectorTerms if spec and spec.nodeSelector else [{}]
                return bool(
                    terms[0].get(term) if isinstance(terms[0], dict) else getattr(terms[0], term)
                )

            wait_until(offered, SECONDS)
    found = gpu.space.get(ResourceSlice, f"{POOL}-rgpu")
    assert [one.name for one in found.metadata.ownerReferences] == [POOL]
    gpu.space.claim("third", claim_spec(30, "512Mi"))
    gpu.space.pod("train", claim="third")
    with AgentNode(*gpu.arguments("--offer", "node")):
        assert gpu.space.bound("train") == POOL
        wait_until(lambda: len(gpu.leases()) == 1, SECONDS)
        gpu.space.delete(Pod, "train")
        wait_until(lambda: not gpu.leases(), SECONDS)
    gpu.agent.start()
