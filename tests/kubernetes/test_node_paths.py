"""NodePaths on the real API server: agents write them, and the next manager learns from them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.command import run_rgpu
from helpers.gpu_node import POOL, SECONDS, GpuNode
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, node
from helpers.kubernetes import ControlPlane
from helpers.manager import ManagerProcess
from helpers.server import Server
from helpers.waiting import wait_until
from lightkube import ApiError, Client
from lightkube.types import PatchType
from msgspec.structs import replace

from rgpu_cluster.core.paths import End, Figures
from rgpu_cluster.kubernetes.node_paths import Row, Usual, rows_in, status_of
from rgpu_cluster.kubernetes.path_objects import NodePaths

pytestmark = pytest.mark.full


@pytest.fixture
def manager(plane: ControlPlane, crds: None) -> Iterator[ManagerProcess]:
    apply(plane.client(), "namespace.yaml", "manager-rbac.yaml")
    config = plane.kubeconfig_file("placer")
    words = ("--kubernetes", "--kubeconfig", str(config), "--namespace", "rgpu-system")
    with ManagerProcess(*words) as manager:
        yield manager
    forget(plane.client())


@pytest.fixture
def gpu(
    plane: ControlPlane, space: Space, manager: ManagerProcess, tmp_path: Path
) -> Iterator[GpuNode]:
    node(space.client, POOL)
    options = ("--join", manager.address, "--rack", "r1")
    with GpuNode(plane, space, tmp_path, *options) as one:
        yield one


@pytest.fixture
def other(manager: ManagerProcess, gpu: GpuNode, tmp_path: Path) -> Iterator[Server]:
    """A GPU node in another rack, without an agent."""
    words = ("--join", manager.address, "--rack", "r2", "--node-name", "gpu8", "--no-socket")
    with Server(*words, "--state-dir", str(tmp_path / "gpu8")) as server:
        yield server


def forget(client: Client) -> None:
    for name in (POOL, "gpu8"):
        with suppress(ApiError):
            client.delete(NodePaths, name)


def found(client: Client, name: str = POOL) -> dict[str, Any]:
    """The object; {}: there is none."""
    try:
        content: dict[str, Any] = client.get(NodePaths, name).to_dict()
    except ApiError as error:
        if error.status.code != 404:
            raise
        return {}
    return content


def shown(manager: ManagerProcess) -> list[dict[str, Any]]:
    """The paths that the manager knows."""
    done = run_rgpu("pool", "--paths", "--json", "--manager", manager.address)
    paths: list[dict[str, Any]] = json.loads(done.stdout).get("paths", [])
    return paths


def test_an_agent_publishes_what_its_server_has_measured(
    gpu: GpuNode, other: Server, manager: ManagerProcess
) -> None:
    client = gpu.space.client
    wait_until(lambda: rows_in(found(client)) != [], SECONDS)
    content = found(client)
    (row,) = rows_in(content)
    assert row.server.rack == "r2"
    assert content["status"]["client"]["rack"] == "r1"
    assert content["status"]["measured"] == 1
    assert 0 <= time.time() - row.measured_at < 120
    assert [owner["name"] for owner in content["metadata"]["ownerReferences"]] == [POOL]
    # Nothing has changed since, so an agent that begins anew writes nothing.
    gpu.agent.kill()
    gpu.agent.start()
    gpu.agent.says("the server at")
    gpu.published()
    (path,) = [one for one in shown(manager) if one["client_rack"] == "r1"]
    assert int(path["round_trip_ns"]) == row.figures.round_trip_ns
    assert found(client)["metadata"]["resourceVersion"] == content["metadata"]["resourceVersion"]


def test_a_node_whose_paths_are_degraded_takes_no_new_claims(gpu: GpuNode, other: Server) -> None:
    client = gpu.space.client
    wait_until(lambda: rows_in(found(client)) != [], SECONDS)
    gpu.tainted()
    gpu.agent.close()
    (row,), said = rows_in(found(client)), found(client)["status"]["client"]
    slow = replace(row.figures, round_trip_ns=50_000_000)
    usual = Usual(60_000, 1_000_000_000, 1_000_000_000)
    rows = [Row(End(rack, row.server.nic), slow, int(time.time()), usual) for rack in ("r2", "r9")]
    change = {"status": status_of(End(said["rack"], said["nic"]), rows)}
    client.patch(NodePaths.Status, POOL, change, patch_type=PatchType.MERGE)
    assert [one.usual for one in rows_in(found(client))] == [usual, usual]
    gpu.agent.start()
    gpu.tainted(("rgpu.dev/network", "NoSchedule"))


def test_a_new_leader_learns_what_was_measured(
    gpu: GpuNode, other: Server, manager: ManagerProcess
) -> None:
    client = gpu.space.client
    wait_until(lambda: rows_in(found(client)) != [], SECONDS)
    manager.kill()
    # No path of this machine takes so long, so these figures are nobody's but the object's. Much
    # worse ones would be doubted.
    ((row,), end) = rows_in(found(client)), found(client)["status"]["client"]
    figures = Figures(12_345_678, 0, 10**9, 10**9, 10**6, "tcp")
    slow = Row(row.server, figures, int(time.time()) - 300)
    gpu.agent.close()
    change = {"status": status_of(End(end["rack"], end["nic"]), [slow])}
    client.patch(NodePaths.Status, POOL, change, patch_type=PatchType.MERGE)
    manager.start()
    wait_until(lambda: len(shown(manager)) == 2, SECONDS)
    paths = {one["client_rack"]: one for one in shown(manager)}
    assert int(paths["r1"]["round_trip_ns"]) == 12_345_678
    assert int(paths["r1"]["age_seconds"]) >= 300
    # The other way nobody has published anything, so it is measured.
    assert int(paths["r2"]["round_trip_ns"]) != 12_345_678
    gpu.agent.start()
