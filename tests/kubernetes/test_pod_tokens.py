"""A pod's own ServiceAccount token opens sessions in the leases of its claim and of no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.agent_node import AgentNode, allow
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, claim_spec, node
from helpers.kubernetes import ControlPlane
from helpers.server import Server
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod, ServiceAccountToken

pytestmark = pytest.mark.full


@pytest.fixture
def gpu(plane: ControlPlane, space: Space, tmp_path: Path) -> Iterator[Server]:
    """A GPU node whose server knows pods by the API server's keys."""
    apply(plane.client(), "namespace.yaml", "classes.yaml", "agent-rbac.yaml")
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    config = tmp_path / "rgpu.toml"
    config.write_text(f'[identity]\nrequire = "always"\npod_keys = "{keys}"\n')
    node(space.client, "client")
    words = ("--node-name", "gpu7", "--config", str(config), "--state-dir", str(tmp_path / "state"))
    with (
        Server(*words, device="emulated:16GiB") as server,
        AgentNode(
            "--node-name", "gpu7", "--server", server.unix, "--kubeconfig", allow(plane),
            "--pod-keys", str(keys),
        ),
    ):  # fmt: skip
        wait_until(lambda: bool(json.loads(keys.read_text())["keys"]))
        yield server


def token(space: Space, pod: str, audience: str = "rgpu.dev") -> str:
    """Returns a token as the kubelet mounts it into a pod."""
    found = space.get(Pod, pod)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": found.metadata.uid}
    asked = ServiceAccountToken.from_dict({
        "metadata": {"name": "default", "namespace": space.name},
        "spec": {"audiences": [audience], "boundObjectRef": bound, "expirationSeconds": 600},
    })  # fmt: skip
    made = space.client.create(asked, "default", namespace=space.name)
    return str(made.status.token)


def session(server: Server, lease: str, shown: str) -> tuple[int, str, str]:
    source = "cuda.open(); print(cuda.memory()[1])"
    return clients.run(server.tcp, source, RGPU_LEASE=lease, RGPU_TOKEN=shown)


def test_a_pod_computes_in_its_own_lease_alone(gpu: Server, space: Space) -> None:
    uids = {}
    for name in ("mine", "other"):
        uids[name] = space.claim(name, claim_spec(30)).metadata.uid
        space.pod(name, claim=name)
        assert space.bound(name) == "client"
    shown = token(space, "mine")

    def opens() -> bool:
        return session(gpu, uids["mine"], shown)[0] == 0

    wait_until(opens)
    status, output, errors = session(gpu, uids["mine"], shown)
    assert (status, output.strip()) == (0, str(1 << 30)), errors
    for lease, credential, says in (
        (uids["other"], shown, "of its own Kubernetes claim"),
        (uids["mine"], token(space, "other"), "of its own Kubernetes claim"),
        (uids["mine"], token(space, "mine", "kubernetes"), "not valid here"),
        ("", shown, "of its own Kubernetes claim"),
    ):
        status, _, errors = session(gpu, lease, credential)
        assert status != 0
        assert says in errors
