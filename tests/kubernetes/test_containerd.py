"""The chart on a node with containerd, runc and the kubelet: from its installation to its end.

Images, cgroups, mounts, a network of pods and Services are real; only kube-proxy and the cluster's
DNS are helpers of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import node_image
from helpers.command import rgpu_command
from helpers.container_node import NEEDED, AuthorityPlane, ContainerNode, container_node
from helpers.helm import CHART, PROGRAM, Helm
from helpers.kube_objects import Space, claim_spec
from helpers.made_secrets import MadeSecrets
from helpers.needs import fixture_needs
from helpers.waiting import wait_until
from lightkube import Client, codecs
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

HELPERS = Path(__file__).parents[1] / "helpers"
PROGRAM_FILES = ("pod_program.py", "driver.py", "add_one.py")
SYSTEM = "rgpu-system"
VALUES = (
    f"image.repository={node_image.REPOSITORY}", f"image.tag={node_image.TAG}",
    "image.pullPolicy=Never", "gpuNodes.runtimeClassName=", "gpuNodes.devices={emulated:8GiB}",
)  # fmt: skip
# The server waits for the file that the agent writes, and so starts twice.
SECONDS = 300
OUT_OF_MEMORY = 2
MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}


@dataclass
class Cluster:
    """A cluster of one node, on which nothing of rgpu is installed. folder: for the secrets."""

    client: Client
    node: ContainerNode
    helm: Helm
    folder: Path

    def helmed(self, command: str, *words: str) -> None:
        done = self.helm.run(command, "rgpu", *words, "--namespace", SYSTEM)
        assert done.returncode == 0, done.stderr

    def install(self) -> None:
        """Does what the page says: the chart, the Secrets, and the label of the GPU node."""
        values = [word for value in VALUES for word in ("--set", value)]
        self.helmed("install", str(CHART), "--create-namespace", *values)
        made = MadeSecrets(self.folder).run(SYSTEM)
        assert made.returncode == 0, made.stderr
        for one in filter(None, yaml.safe_load_all(made.stdout)):
            self.client.create(codecs.from_dict(one))
        self.client.patch(Node, self.node.name, {"metadata": {"labels": {"rgpu.dev/gpu": "true"}}})
        wait_until(self._is_installed, SECONDS)

    def _is_installed(self) -> bool:
        """Whether each part has a pod that is ready, and the card is published."""
        ready = {one.metadata.labels["app"] for one in self.pods() if _is_ready(one)}
        parts = {"rgpu-manager", "rgpu-gate-watchdog", "rgpu-gpu-node", "rgpu-node-plugin"}
        return ready >= parts and bool(list(self.client.list(ResourceSlice)))

    def pods(self) -> list[Any]:
        return list(self.client.list(Pod, namespace=SYSTEM))

    def leases(self) -> int:
        """Returns how many leases the server has, as it says itself."""
        (pod,) = self.client.list(Pod, namespace=SYSTEM, labels={"app": "rgpu-gpu-node"})
        folder = f"/var/lib/kubelet/pods/{pod.metadata.uid}/volumes/kubernetes.io~empty-dir/socket"
        # Its path is too long for the address of a socket.
        at = f"ln -sfn {folder} /run/server && exec {rgpu_command()} lease list --json"
        ask = f"{at} --server unix:/run/server/rgpu.sock"
        done = subprocess.run(
            [*self.node.enter, "sh", "-c", ask],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return len(json.loads(done.stdout)["leases"])

    def told(self) -> str:
        """Returns what pods are in, and what their containers said."""
        rows = [self.node.told()]
        for pod in self.client.list(Pod, namespace="*"):
            metadata, status = pod.metadata, pod.status
            rows.append(f"--- {metadata.name}: {status.phase} {metadata.deletionTimestamp or ''}")
            rows += [
                f"{one.name}: {one.state}\n{self.node.output(pod, one.name)[-2000:]}"
                for one in status.containerStatuses or []
            ]
        return "\n".join(rows)


def _is_ready(pod: Any) -> bool:
    rows = pod.status.conditions or []
    return any(one.type == "Ready" and one.status == "True" for one in rows)


@pytest.fixture(scope="module")
@fixture_needs(*NEEDED, "helm", "openssl")
def cluster(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # /tmp may lie in memory, and images take half a gibibyte.
    with (
        tempfile.TemporaryDirectory(prefix="rgpu-node-", dir="/var/tmp") as folder,
        AuthorityPlane(built) as plane,
        container_node(plane, Path(folder) / "node") as node,
    ):
        config = str(plane.kubeconfig_file("admin"))
        helm = Helm(PROGRAM.find(), tmp_path_factory.mktemp("helm"), config)
        yield Cluster(plane.client(), node, helm, tmp_path_factory.mktemp("secrets"))


@pytest.fixture
def team(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace with the program of its pods.  A test that fails shows what all parts said."""
    space = Space(cluster.client, "team")
    space.open()
    texts = {name: (HELPERS / name).read_text() for name in PROGRAM_FILES}
    space.make("v1", "ConfigMap", "program", data=texts)
    space.template("third", claim_spec(30, "2Gi"))
    failed = request.session.testsfailed
    yield space
    if request.session.testsfailed > failed:
        sys.stderr.write(cluster.told())
    space.close()


def run(team: Space, name: str, **context: Any) -> None:
    """Makes a pod with a third of the card. context: its securityContext."""
    container = {
        "name": "c", "image": node_image.IMAGE, "imagePullPolicy": "Never",
        "command": ["python", "/program/pod_program.py"],
        "resources": {"claims": [{"name": "gpu"}]},
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
    }  # fmt: skip
    team.pod(
        name, template="third", metadata=MANAGED, containers=[container], restartPolicy="Never",
        volumes=[{"name": "program", "configMap": {"name": "program"}}],
        securityContext=context, terminationGracePeriodSeconds=30,
    )  # fmt: skip


def seen(cluster: Cluster, team: Space, name: str) -> dict[str, Any]:
    """Returns what the program of a pod prints, once it has."""

    def printed() -> str:
        pod = team.get(Pod, name)
        assert pod.status.phase != "Failed", cluster.node.output(pod)
        lines = cluster.node.output(pod).splitlines()
        return next((line for line in lines if line.startswith("{")), "")

    wait_until(lambda: bool(printed()), SECONDS)
    found: dict[str, Any] = json.loads(printed())
    return found


def third_of_user(user: int) -> dict[str, Any]:
    """Returns what a program sees that has 30 % and 2 GiB of a card of 8 GiB."""
    return {
        "user": user, "transport": "tls", "token": "/var/run/secrets/rgpu.dev/token",
        "devices": 1, "mebibytes": 2048, "right": True, "3 GiB more": OUT_OF_MEMORY,
    }  # fmt: skip


def delete(team: Space, name: str) -> None:
    """Deletes a pod as users do, and waits until the kubelet has let it go."""
    team.client.delete(Pod, name, namespace=team.name)
    team.gone(Pod, name)


def test_a_release_from_its_install_to_its_end(cluster: Cluster, team: Space) -> None:
    cluster.install()
    # Two users beside each other: that of the image, and root.
    run(team, "first")
    run(team, "second", runAsUser=0)
    assert seen(cluster, team, "first") == third_of_user(65532)
    assert seen(cluster, team, "second") == third_of_user(0)
    assert cluster.leases() == 2

    delete(team, "first")
    wait_until(lambda: cluster.leases() == 1, SECONDS)

    # New plugins and managers, while a pod computes; the pod of the GPU node stays.
    changes = ("manager.replicas=1", "nodePlugin.resources.limits.memory=300Mi")
    words = [word for value in changes for word in ("--set", value)]
    before = {one.metadata.uid for one in cluster.pods()}
    cluster.helmed("upgrade", str(CHART), "--reuse-values", *words)

    def upgraded() -> bool:
        plugin = cluster.client.get(DaemonSet, "rgpu-node-plugin", namespace=SYSTEM)
        news = plugin.status.observedGeneration == plugin.metadata.generation
        return bool(news and plugin.status.updatedNumberScheduled and plugin.status.numberReady)

    wait_until(upgraded, SECONDS)
    assert team.get(Pod, "second").status.phase == "Running"
    run(team, "third")
    assert seen(cluster, team, "third") == third_of_user(65532)
    new = {one.metadata.labels["app"] for one in cluster.pods() if one.metadata.uid not in before}
    assert new == {"rgpu-node-plugin"}

    # In the order of docs/how-to/kubernetes-upgrade.md.
    for one in cluster.client.list(DeviceClass):
        cluster.client.delete(DeviceClass, one.metadata.name)
    for name in ("second", "third"):
        delete(team, name)
    wait_until(lambda: not list(cluster.client.list(ResourceClaim, namespace=team.name)), SECONDS)
    wait_until(lambda: cluster.leases() == 0, SECONDS)
    cluster.helmed("uninstall")
    wait_until(lambda: not cluster.pods(), SECONDS)
