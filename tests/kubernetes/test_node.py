"""Pods on a node without a GPU, under the real kubelet: what their programs get, and when it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.device_plugin import DevicePlugin
from helpers.figures import figures
from helpers.gpu_client import (
    SECONDS,
    Client,
    Gpu,
    client_node,
    client_with_tokens,
    gpu_node,
)
from helpers.kube_objects import Space
from helpers.kubernetes import ControlPlane
from helpers.needs import fixture_needs
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod

import rgpu_client

pytestmark = pytest.mark.full

PROGRAMS = Path(rgpu_client.__file__).parent / "demo" / "programs"
STAYS = (
    "import numpy, time; from numba import cuda; a = cuda.to_device(numpy.ones(1000)); "
    "print('holds', cuda.current_context().get_memory_info()[1], flush=True); time.sleep(600)"
)
BUSY = """
import numpy
from numba import cuda
@cuda.jit
def spin(out):
    total = 0.0
    for i in range(20000):
        total += i * 0.5
    out[cuda.grid(1)] = total
out = cuda.to_device(numpy.zeros(256))
print("begins", flush=True)
while True:
    spin[4, 64](out)
    cuda.synchronize()
"""


@pytest.fixture(scope="module")
@fixture_needs("root", "namespaces")  # a kubelet mounts volumes
def gpu(plane: ControlPlane) -> Iterator[Gpu]:
    with gpu_node(plane) as gpu:
        yield gpu


@pytest.fixture
def client(plane: ControlPlane, space: Space, gpu: Gpu) -> Iterator[Client]:
    with client_node(plane, space, gpu, credentials=True) as client:
        yield client


@pytest.fixture
def with_tokens(plane: ControlPlane, space: Space, gpu: Gpu) -> Iterator[Client]:
    with client_with_tokens(plane, space, gpu) as client:
        yield client


def test_an_unmodified_program_computes_on_the_gpu_of_another_node(client: Client) -> None:
    client.run("calculate", str(PROGRAMS / "calculate.py"))
    found = client.finished("calculate")
    assert [one["right"] for one in found] == [True] * 3, found
    # The memory of its lease, not that of the card.
    assert "with 1024 MiB" in found[0]["step"]
    client.run("overfill", str(PROGRAMS / "overfill.py"), memory="256Mi")
    found = client.finished("overfill")
    assert [one["right"] for one in found] == [True] * 2, found
    assert "of 256 MiB" in found[0]["step"]


@pytest.mark.measures
def test_a_pod_is_held_to_its_share_of_time(client: Client) -> None:
    client.run("busy", "-c", BUSY, core=20)
    client.prints("busy", "begins")
    used = []

    def measured() -> bool:
        now = client.used_ppm()
        if now and now not in used:
            used.append(now)
        return len(used) >= 5

    wait_until(measured, SECONDS)
    assert client.phase("busy") == "Running"
    with figures():
        assert max(used) <= 300_000, used


def test_a_pod_shows_its_own_token_where_there_are_no_credentials(with_tokens: Client) -> None:
    with_tokens.run("calculate", str(PROGRAMS / "calculate.py"))
    found = with_tokens.finished("calculate")
    assert [one["right"] for one in found] == [True] * 3, found
    assert "with 1024 MiB" in found[0]["step"]


def test_the_lease_ends_with_the_pod(client: Client) -> None:
    client.run("stays", "-c", STAYS)
    client.prints("stays", f"holds {1 << 30}")
    uid = client.space.claim_of("stays").metadata.uid
    assert client.leases() == [uid]
    client.delete("stays")
    # Long before its time (600 s), for the agent hears that the claim is free: 0.4 s on a machine
    # with nothing else to do.
    wait_until(lambda: client.leases() == [], SECONDS)
    assert client.plugin.spec(uid) is None


def test_a_credential_is_for_the_pods_own_claim(client: Client) -> None:
    client.run("owner", "-c", STAYS)
    client.prints("owner", "holds")
    other = client.space.claim_of("owner").metadata.uid
    program = f"import os; os.environ['RGPU_LEASE'] = '{other}'; {STAYS}"
    client.run("thief", "-c", program)
    client.prints("thief", "of its own Kubernetes claim and of no other")
    wait_until(lambda: client.phase("thief") == "Failed", SECONDS)
    assert client.phase("owner") == "Running"


def test_a_container_of_another_user_reads_its_credential(client: Client) -> None:
    reads = "id -u; head -c 7 $RGPU_TOKEN_FILE; echo; ls -ln $RGPU_TOKEN_FILE"
    program = f"{reads}; touch /opt/rgpu.dev/lib/x"
    client.run("plain", "/bin/sh", "-c", program, securityContext={"runAsUser": 1000})
    client.prints("plain", "Read-only file system")
    user, token, listed, *_ = client.runtime.output("plain").splitlines()
    assert (user, token) == ("1000", "rgpuc1.")
    assert listed.startswith("-r-------- 1 1000 ")


def test_a_pod_waits_for_the_plugin_and_outlives_it(client: Client) -> None:
    client.plugin.stop()
    client.run("first", "-c", STAYS)
    assert "DRA driver rgpu.dev is not registered" in client.event("first", "is not registered")
    client.plugin.start()
    client.prints("first", "holds")
    client.plugin.kill()
    client.plugin.start()
    client.run("second", "-c", STAYS)
    client.prints("second", "holds")
    assert client.phase("first") == "Running"
    for name in ("first", "second"):
        client.delete(name)


def test_a_pod_outlives_the_kubelet(client: Client) -> None:
    client.run("first", "-c", STAYS)
    client.prints("first", "holds")
    client.kubelet.stop()
    client.kubelet.start()
    client.run("second", "-c", STAYS)
    client.prints("second", "holds")
    assert client.phase("first") == "Running"
    client.delete("first")


def test_the_pods_events_say_why_it_does_not_start(client: Client) -> None:
    context = {"runAsNonRoot": True}
    client.run("nobody", "-c", STAYS, securityContext=context)
    assert "set securityContext.runAsUser" in client.event("nobody", "NodePrepareResources failed")


def test_pods_can_go_from_a_node_that_has_lost_the_plugin(client: Client) -> None:
    client.run("left", "-c", STAYS)
    client.prints("left", "holds")
    client.plugin.stop()
    client.space.client.delete(Pod, "left", namespace=client.space.name, grace_period=1)
    wait_until(lambda: client.runtime.running() == [], SECONDS)
    assert client.space.get(Pod, "left"), "the pod goes before its claim is unprepared"
    with client.plugin.closing():
        client.space.gone(Pod, "left")
    client.plugin.start()


def test_a_pod_with_the_units_of_others_on_a_gpu_node(client: Client) -> None:
    units = {"tencent.com/vcuda-core": "40", "tencent.com/vcuda-memory": "3"}
    folder = client.plugin.folder
    with DevicePlugin(folder, "gpumanager", client.gpu.server.unix, client.gpu.key) as plugin:
        wait_until(lambda: client.allocatable("tencent.com/vcuda-core") == "100", SECONDS)
        # A kubelet that does not know both yet fails the pod.
        wait_until(lambda: int(client.allocatable("tencent.com/vcuda-memory") or 0) >= 3, SECONDS)
        container = {
            "name": "c", "image": "none", "resources": {"limits": units},
            "command": [sys.executable, "-u", str(PROGRAMS / "calculate.py")],
        }  # fmt: skip
        spec = {"containers": [container], "restartPolicy": "Never"}
        client.space.make("v1", "Pod", "old", spec=spec)
        found = client.finished("old")
        assert [one["right"] for one in found] == [True] * 3, found
        assert "with 768 MiB" in found[0]["step"]
        client.delete("old")
        wait_until(lambda: client.leases() == [], SECONDS)
        wait_until(lambda: not [*plugin.state.iterdir()], SECONDS)
