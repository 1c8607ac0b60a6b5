"""`rgpu device-plugin` under a kubelet of the tests, with a real server."""

from __future__ import annotations

import base64
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from helpers import clients
from helpers.device_plugin import DevicePlugin, UnitKubelet
from helpers.server import Server
from helpers.short_folder import short_folder
from helpers.waiting import wait_until

from rgpu_common.channels import open_channel
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import orders_pb2, orders_pb2_grpc

GIB = 1 << 30
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
MEMORY_SEEN = "cuda.open(); print(cuda.memory()[1], flush=True)"


@dataclass
class Node:
    """A GPU node of two cards of 2 GiB."""

    server: Server
    key: Path
    kubelet: UnitKubelet
    plugin: DevicePlugin

    def leases(self) -> list[tuple[str, int, int, int]]:
        """Returns tenant, card, share and memory of all leases."""
        with open_channel(parse_endpoint(self.server.unix), {}) as channel:
            stream = orders_pb2_grpc.NodeOrderServiceStub(channel).WatchReport(
                orders_pb2.WatchReportRequest(), timeout=60
            )
            report = next(stream)
            stream.cancel()
        return sorted((x.tenant, x.ordinal, x.share_ppm, x.memory_bytes) for x in report.leases)

    def run(self, told: Any, source: str = MEMORY_SEEN, **more: str) -> tuple[int, str, str]:
        """Runs a program with what a container has been given."""
        folder = next(
            m.host_path for m in told.mounts if m.container_path == "/opt/rgpu.dev/credentials"
        )
        given = {name: text for name, text in told.envs.items() if name.startswith("RGPU_")}
        given["RGPU_TOKEN_FILE"] = f"{folder}/token"
        return clients.run(given.pop("RGPU_SERVER"), source, **{**given, **more})


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, Path]]:
    """A server that lets in whoever has a credential, and the file with its key."""
    with short_folder() as folder:
        (folder / "key").write_bytes(base64.b64encode(b"n" * 32))
        config = folder / "rgpu.toml"
        config.write_text(f'[identity]\nrequire = "always"\nclaim_key = "{folder}/key"\n')
        words = ("--config", str(config), "--node-name", "gpu7", "--device", "emulated:2GiB")
        with Server(*words) as server:
            yield server, folder / "key"


@pytest.fixture
def node(served: tuple[Server, Path]) -> Iterator[Node]:
    server, key = served
    with (
        short_folder() as folder,
        UnitKubelet(folder) as kubelet,
        DevicePlugin(folder, "gpumanager", server.unix, key) as plugin,
    ):
        node = Node(server, key, kubelet, plugin)
        try:
            kubelet.accept()
            yield node
            kubelet.end_all()
            wait_until(lambda: not node.leases())
        except BaseException:
            print(plugin.told())
            raise


def test_it_offers_the_units_of_all_cards(node: Node) -> None:
    assert len(node.kubelet.devices(CORE, count=200)) == 200
    assert len(node.kubelet.devices(MEMORY, count=16)) == 16


@pytest.mark.parametrize("order", [1, -1])
def test_a_container_gets_a_lease_of_its_units(node: Node, order: int) -> None:
    told = node.kubelet.admit("p", {CORE: 40, MEMORY: 2}, order=order)
    assert node.leases() == []
    node.kubelet.begin("p")
    assert [lease[0] for lease in node.leases()] == ["team-a"]
    assert node.leases()[0][2:] == (400_000, GIB // 2)
    status, output, errors = node.run(told)
    assert (status, output.strip()) == (0, str(GIB // 2)), errors
    # A container that starts again has the same lease.
    node.kubelet.begin("p")
    assert len(node.leases()) == 1
    node.kubelet.end("p")
    wait_until(lambda: not node.leases())
    wait_until(lambda: not [*node.plugin.state.iterdir()])


def test_pods_that_come_together_get_what_each_asked_for(node: Node) -> None:
    wanted = {f"p{n}": {CORE: 10 + n, MEMORY: 1 + n} for n in range(3)}
    told = {pod: node.kubelet.admit(pod, units) for pod, units in wanted.items()}
    for pod in reversed(wanted):
        node.kubelet.begin(pod)
    assert sorted(lease[2:] for lease in node.leases()) == [
        (100_000, GIB // 4), (110_000, GIB // 2), (120_000, 3 * GIB // 4),
    ]  # fmt: skip
    for n, pod in enumerate(wanted):
        status, output, errors = node.run(told[pod])
        assert (status, output.strip()) == (0, str((1 + n) * GIB // 4)), errors
    other = told["p1"].envs["RGPU_LEASE"]
    status, _, errors = node.run(told["p0"], RGPU_LEASE=other)
    assert status != 0
    assert "and of no other" in errors


def test_whole_cards(node: Node) -> None:
    told = node.kubelet.admit("p", {CORE: 200})
    node.kubelet.begin("p")
    assert told.envs["RGPU_DEVICE"] == "0,1"
    assert [lease[1:3] for lease in node.leases()] == [(0, 1_000_000), (1, 1_000_000)]
    assert node.run(told)[0] == 0


def test_what_cannot_be_is_refused_with_a_sentence(node: Node) -> None:
    with pytest.raises(grpc.RpcError, match="or for a multiple of 100"):
        node.kubelet.admit("p", {CORE: 150})
    node.kubelet.admit("q", {CORE: 40})
    with pytest.raises(grpc.RpcError, match=r"name tencent\.com/vcuda-memory too"):
        node.kubelet.begin("q")
    ids = ["gpu-0.1", "gpu-1.1"]
    with pytest.raises(grpc.RpcError, match="are on 2 cards, and the container needs 1"):
        node.kubelet.allocate(CORE, ids)
    node.kubelet.admit("r", {CORE: 10, MEMORY: 12})
    with pytest.raises(grpc.RpcError, match="grants no lease"):
        node.kubelet.begin("r")


def test_it_registers_again_with_a_kubelet_that_starts_again(node: Node) -> None:
    told = node.kubelet.admit("p", {CORE: 40, MEMORY: 2})
    node.kubelet.begin("p")
    node.kubelet.stop()
    node.kubelet.start()
    node.kubelet.accept()
    assert len(node.kubelet.devices(CORE)) == 200
    assert node.run(told)[0] == 0


def test_leases_outlive_the_plugin_and_end_with_their_pods(node: Node) -> None:
    told = node.kubelet.admit("p", {CORE: 40, MEMORY: 2})
    node.kubelet.begin("p")
    node.kubelet.admit("q", {CORE: 40, MEMORY: 2})
    node.kubelet.begin("q")
    node.plugin.stop(signal.SIGKILL)
    node.kubelet.end("q")
    node.plugin.start()
    node.kubelet.accept()
    wait_until(lambda: len(node.leases()) == 1)
    assert node.run(told)[0] == 0


def test_units_of_a_server_that_is_away_are_not_healthy(node: Node) -> None:
    node.kubelet.devices(CORE)
    with Server("--node-name", "gpu8") as other:
        away = DevicePlugin(node.plugin.folder, "qgpu", other.unix, node.key)
        with away:
            found = node.kubelet.accept()
            assert set(found) == {
                f"tke.cloud.tencent.com/qgpu-{what}" for what in ("core", "memory")
            }
            node.kubelet.devices("tke.cloud.tencent.com/qgpu-core")
            other.stop()
            node.kubelet.devices("tke.cloud.tencent.com/qgpu-core", "Unhealthy")
