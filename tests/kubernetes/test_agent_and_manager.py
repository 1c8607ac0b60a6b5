"""A GPU node with its agent, and the manager that places gated pods on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command import run_rgpu_plain
from helpers.gpu_node import SECONDS, GpuNode
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, claim_spec, node
from helpers.kubernetes import ControlPlane
from helpers.manager import ManagerProcess
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod

pytestmark = pytest.mark.full

MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}


@pytest.fixture
def manager(plane: ControlPlane) -> Iterator[ManagerProcess]:
    apply(plane.client(), "namespace.yaml", "manager-rbac.yaml")
    config = plane.kubeconfig_file("placer")
    words = ("--kubernetes", "--kubeconfig", str(config), "--namespace", "rgpu-system")
    with ManagerProcess(*words) as manager:
        yield manager


@pytest.fixture
def gpu(
    plane: ControlPlane, space: Space, manager: ManagerProcess, tmp_path: Path
) -> Iterator[GpuNode]:
    node(space.client, "client")
    with GpuNode(plane, space, tmp_path, "--join", manager.address) as one:
        manager.has("gpu7")
        one.published()
        yield one


def test_the_agent_keeps_what_the_manager_has_granted(
    gpu: GpuNode, manager: ManagerProcess
) -> None:
    space = gpu.space
    claim = space.claim("third", claim_spec(30, "512Mi"))
    space.pod("train", claim="third", gated=True, metadata=MANAGED)
    assert space.bound("train") == "client"
    wait_until(lambda: gpu.remaining() > [500], SECONDS)
    (lease,) = gpu.leases()
    assert claim.metadata
    assert lease.request_id == claim.metadata.uid
    assert lease.attempt < 1_000_000
    # Nobody takes the lease from a pod because the manager is gone, or back.
    manager.restart()
    manager.has("gpu7")
    wait_until(lambda: manager.leases() == [claim.metadata.uid], SECONDS)
    assert [one.lease_id for one in gpu.leases()] == [lease.lease_id]
    space.delete(Pod, "train")
    wait_until(lambda: not gpu.leases(), SECONDS)
    # A named claim can be placed again at once.
    space.pod("again", claim="third", gated=True, metadata=MANAGED)
    assert space.bound("again") == "client"
    wait_until(lambda: gpu.remaining() > [500], SECONDS)


def test_explain_finds_the_requests_of_a_pod(gpu: GpuNode, manager: ManagerProcess) -> None:
    space = gpu.space
    config = str(gpu.plane.kubeconfig_file("admin"))

    def explained(what: str) -> str:
        words = ("-n", space.name, "--kubeconfig", config, "--manager", manager.address)
        return run_rgpu_plain("explain", what, *words).stdout

    claim = space.claim("third", claim_spec(30, "512Mi"))
    space.claim("much", claim_spec(90, "512Mi"))
    space.pod("train", claim="third", gated=True, metadata=MANAGED)
    space.bound("train")
    assert claim.metadata
    told = explained("pod/train")
    assert f"pod {space.name}/train: Pending on node client\n" in told
    assert f"claim {space.name}/third: has gpu7/gpu-0\n" in told
    assert f"request {claim.metadata.uid}: placed\n" in told
    assert "chosen: gpu7/0: on another node" in told
    start = f"claim {space.name}/third: has gpu7/gpu-0\nrequest {claim.metadata.uid}: placed\n"
    assert explained("claim/third").startswith(start)
    space.pod("late", claim="much", gated=True, metadata=MANAGED)
    # Its condition is written a little later than the manager knows it.
    wait_until(lambda: "WaitsForGpu: " in explained("pod/late"), SECONDS)
    told = explained("pod/late")
    assert "not placed: no card has room for it now" in told
    assert f"pod {space.name}/late: Pending, waits for its cards\n  WaitsForGpu: " in told
    assert f"claim {space.name}/much: has no card yet\n" in told
    for name in ("late", "train"):
        space.delete(Pod, name)
    wait_until(lambda: not gpu.leases(), SECONDS)


def test_both_paths_share_a_card(gpu: GpuNode) -> None:
    """kube-scheduler's own allocations, and the manager's."""
    space = gpu.space
    for number, gated in enumerate((False, True, False, True)):
        name = f"pod-{number}"
        space.claim(name, claim_spec(25, "256Mi"))
        space.pod(name, claim=name, gated=gated, metadata=MANAGED if gated else None)
        assert space.bound(name) == "client"
    wait_until(lambda: len(gpu.leases()) == 4, SECONDS)
    attempts = sorted(lease.attempt >= 1_000_000 for lease in gpu.leases())
    assert attempts == [False, False, True, True]
    assert sum(lease.share_ppm for lease in gpu.leases()) == 1_000_000
    for number in range(4):
        space.delete(Pod, f"pod-{number}")
    wait_until(lambda: not gpu.leases(), SECONDS)


def test_a_claim_that_the_scheduler_had_is_placed_by_the_manager(gpu: GpuNode) -> None:
    """The agent has granted and revoked with later attempts than the manager's."""
    space = gpu.space
    claim = space.claim("third", claim_spec(30, "512Mi"))
    space.pod("first", claim="third")
    space.bound("first")
    assert [lease.attempt for lease in gpu.leases()] == [1_000_000]
    space.delete(Pod, "first")
    wait_until(lambda: not gpu.leases(), SECONDS)
    space.pod("second", claim="third", gated=True, metadata=MANAGED)
    assert space.bound("second") == "client"
    assert claim.metadata
    wait_until(lambda: gpu.remaining() > [500], SECONDS)
    assert [lease.request_id for lease in gpu.leases()] == [claim.metadata.uid]
    space.delete(Pod, "second")
    wait_until(lambda: not gpu.leases(), SECONDS)
