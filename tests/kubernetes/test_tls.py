"""TLS between pods, GPU nodes and the manager, with the Secrets that make-secrets.sh makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import pki
from helpers.command import run_rgpu
from helpers.gpu_client import (
    GPU,
    SECONDS,
    Client,
    Gpu,
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
STAYS = """
import os, time, numpy
from numba import cuda
held = cuda.to_device(numpy.ones(1000))
print("holds", os.environ["RGPU_SERVER"], flush=True)
while True:
    assert held.copy_to_host().sum() == 1000
    time.sleep(0.01)
"""
OPENS = "from numba import cuda; print('open', cuda.current_context().get_memory_info()[1])"
LOOKS = """
first=$(cat $RGPU_TLS_CA)
echo there
while [ "$(cat $RGPU_TLS_CA)" = "$first" ]; do sleep 0.1; done
echo changed
"""
# What a pod without the plugin would use.
BY_ANNOTATION = f"""
import os
os.environ["RGPU_TLS_CA"] = "/var/run/secrets/rgpu.dev/ca.crt"
print(open("/var/run/secrets/rgpu.dev/ca.crt").read(), flush=True)
{OPENS}
"""


@pytest.fixture(scope="module")
@fixture_needs("root", "namespaces", "openssl")  # a kubelet mounts volumes
def gpu(plane: ControlPlane) -> Iterator[Gpu]:
    with gpu_node(plane, secure=True) as gpu:
        yield gpu


@pytest.fixture
def client(plane: ControlPlane, space: Space, gpu: Gpu) -> Iterator[Client]:
    with client_with_tokens(plane, space, gpu) as client:
        yield client


def authority(gpu: Gpu) -> Path:
    assert gpu.secrets is not None
    return gpu.secrets.folder / "rgpu-tls" / "ca.crt"


def transports(gpu: Gpu) -> set[str]:
    done = run_rgpu("ps", "--json", "--server", gpu.server.unix)
    return {one["transport"] for one in json.loads(done.stdout)["sessions"]}


def test_a_program_speaks_tls_without_a_setting(client: Client) -> None:
    client.run("stays", "-c", STAYS)
    client.prints("stays", "holds tls:127.0.0.1:")
    assert transports(client.gpu) == {"tls"}
    # The manager tells the authority, for pods on nodes without the plugin.
    pod = client.space.get(Pod, "stays")
    assert pod.metadata.annotations["rgpu.dev/authority"] == authority(client.gpu).read_text()
    assert client.gpu.nodes.manager.pool()["nodes"][0]["address"].startswith("tls:127.0.0.1:")
    client.run("bare", "-c", BY_ANNOTATION)
    client.prints("bare", "open ")
    assert "-----BEGIN CERTIFICATE-----" in client.runtime.output("bare")


def test_a_rotated_secret_is_taken_while_programs_run(client: Client) -> None:
    client.run("before", "-c", STAYS)
    client.prints("before", "holds")
    assert client.gpu.secrets is not None
    seen = len(client.gpu.server.log)
    client.gpu.secrets.renew()

    def read() -> bool:
        lines = client.gpu.server.log[seen:]
        return any("read its certificates again" in line for line in lines)

    wait_until(read, SECONDS)
    client.run("after", "-c", OPENS)
    client.prints("after", "open ")
    assert client.phase("before") == "Running"
    assert transports(client.gpu) == {"tls"}


def test_a_program_says_why_it_does_not_believe_its_server(client: Client) -> None:
    """The plugin gives running containers other authorities, too."""
    client.run("looks", "/bin/sh", "-c", LOOKS)
    client.prints("looks", "there")
    file = authority(client.gpu)
    right = file.read_bytes()
    try:
        file.write_bytes((pki.folder() / "stranger" / "ca.pem").read_bytes())
        client.run("wrong", "-c", OPENS)
        client.prints("wrong", "name the authority that signed it in RGPU_TLS_CA")
        assert "is not trusted" in client.runtime.output("wrong")
        client.prints("looks", "changed")
    finally:
        file.write_bytes(right)
    client.run("right", "-c", OPENS)
    client.prints("right", "open ")
    assert GPU in client.gpu.nodes.manager.connected()
