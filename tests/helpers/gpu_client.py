"""A cluster for tests: a GPU node, and a node without a GPU under the real kubelet."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightkube import ApiError
from lightkube.resources.admissionregistration_v1 import MutatingAdmissionPolicyBinding
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, Node, Pod, ServiceAccountToken
from lightkube.resources.resource_v1 import ResourceSlice

from helpers import pki
from helpers.agent_node import AgentNode, allow
from helpers.command import run_rgpu
from helpers.fake_runtime import FakeRuntime
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, claim_spec
from helpers.kubelet import Kubelet
from helpers.kubernetes import ControlPlane
from helpers.made_secrets import MadeSecrets
from helpers.manager import ManagerProcess
from helpers.node_plugin import NodePlugin
from helpers.nodes import Nodes
from helpers.ports import free_port
from helpers.server import Server
from helpers.short_folder import short_folder
from helpers.waiting import wait_until
from rgpu_common.channels import open_channel
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import orders_pb2, orders_pb2_grpc

GPU = "gpu7"
KEY = b"k" * 32
MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}
SECONDS = 90


@dataclass
class Gpu:
    """A manager with one GPU node. key: the file with the node's key for credentials. secrets: the
    certificates, if they are used.
    """

    nodes: Nodes
    key: Path
    secrets: MadeSecrets | None = None

    @property
    def server(self) -> Server:
        return self.nodes.servers[GPU]


@dataclass
class Client:
    """A node without a GPU, and a cluster with one."""

    space: Space
    plugin: NodePlugin
    kubelet: Kubelet
    runtime: FakeRuntime
    gpu: Gpu

    def run(self, name: str, *words: str, core: int = 30, memory: str = "1Gi", **spec: Any) -> None:
        """Makes a pod with a claim of its own. words: what Python runs, or a program."""
        command = [*words] if words[0].startswith("/bin/") else [sys.executable, "-u", *words]
        self.space.template(name, claim_spec(core, memory))
        container = {
            "name": "c", "image": "none", "command": command,
            "resources": {"claims": [{"name": "gpu"}]},
        }  # fmt: skip
        self.space.pod(
            name, template=name, gated=True, metadata=MANAGED, containers=[container],
            restartPolicy="Never", **spec,
        )  # fmt: skip

    def phase(self, name: str) -> str:
        found = self.space.get(Pod, name)
        return str(found.status.phase) if found else ""

    def prints(self, name: str, text: str) -> None:
        """Waits until the program of a pod has printed a text."""
        wait_until(lambda: text in self.runtime.output(name) or self._over(name), SECONDS)
        assert text in self.runtime.output(name), self.runtime.output(name)

    def finished(self, name: str) -> list[Any]:
        """Waits until the program of a pod has ended well; returns the JSON lines that it printed."""
        wait_until(lambda: self._over(name), SECONDS)
        output = self.runtime.output(name)
        found = self.space.get(Pod, name)
        assert self.phase(name) == "Succeeded", f"{output}\n{found and found.status.to_dict()}"
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def _over(self, name: str) -> bool:
        return self.phase(name) in ("Succeeded", "Failed")

    def event(self, name: str, text: str) -> str:
        """Waits for an event of a pod; returns its sentence."""

        def found() -> list[str]:
            events = self.space.client.list(Event, namespace=self.space.name)
            mine = (one for one in events if one.involvedObject.name == name)
            return [str(one.message) for one in mine if text in str(one.message)]

        wait_until(lambda: bool(found()), SECONDS)
        return found()[0]

    def delete(self, name: str) -> None:
        """Deletes a pod as users do, and waits until the kubelet has let it go."""
        self.space.client.delete(Pod, name, namespace=self.space.name, grace_period=1)
        self.space.gone(Pod, name)

    def allocatable(self, resource: str) -> str:
        """Returns how much the kubelet's node has of a resource."""
        node = self.space.client.get(Node, self.kubelet.node)
        return str((node.status.allocatable or {}).get(resource, ""))

    def used_ppm(self) -> int:
        """Returns how much of the card's time of the last second programs have used."""
        with open_channel(parse_endpoint(self.gpu.server.unix), {}) as channel:
            stub = orders_pb2_grpc.NodeOrderServiceStub(channel)
            stream = stub.WatchReport(orders_pb2.WatchReportRequest(), timeout=60)
            uses = [one.used_ppm for one in next(stream).uses]
            stream.cancel()
        return sum(uses)

    def leases(self) -> list[str]:
        """Returns the keys of the leases that the server on the GPU node has."""
        words = ("lease", "list", "--json", "--server", self.gpu.server.unix)
        done = run_rgpu(*words)
        assert done.returncode == 0, done.stderr
        return [str(one["key"]) for one in json.loads(done.stdout)["leases"]]


@contextmanager
def gpu_node(plane: ControlPlane, secure: bool = False) -> Iterator[Gpu]:
    """A manager, and a GPU node that lets in whoever shows the credential of a claim. secure: with
    TLS, as the manifests have it.
    """
    apply(
        plane.client(),
        "namespace.yaml",
        "classes.yaml",
        "manager-rbac.yaml",
        "node-plugin-rbac.yaml",
    )
    words = (
        "--kubernetes", "--kubeconfig", str(plane.kubeconfig_file("placer")),
        "--namespace", "rgpu-system",
    )  # fmt: skip
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        secrets = MadeSecrets(folder) if secure else None
        serves: tuple[str, ...] = ()
        known: dict[str, str] = {}
        if secrets is None:
            manager = stack.enter_context(ManagerProcess(*words))
        else:
            secrets.make()
            known = secrets.variables
            mine = secrets.options("rgpu-tls-manager")
            # Its host has a name, as its Service has, and a GPU node's has none.
            opened = ManagerProcess(
                *words, *mine, scheme="tls:", host="localhost", own=known, **known
            )
            manager = stack.enter_context(opened)
            address = f"tls:127.0.0.1:{free_port()}"
            serves = "--listen", address, "--advertise", address, *secrets.options("rgpu-tls")
        (folder / "key").write_bytes(base64.b64encode(KEY))
        config = folder / "rgpu.toml"
        config.write_text(
            f'[identity]\nrequire = "always"\nclaim_key = "{folder}/key"\n'
            f'pod_keys = "{folder}/pod-keys.json"\n'
        )
        (folder / "pod-keys.json").write_text('{"keys": []}')
        more = ("--config", str(config), *serves)
        with Nodes(manager, {GPU: "r1"}, "emulated:4GiB", *more, **known) as nodes:
            yield Gpu(nodes, folder / "key", secrets)


@contextmanager
def agent(plane: ControlPlane, space: Space, gpu: Gpu, credentials: bool) -> Iterator[None]:
    """The agent of the GPU node, which has published its cards. credentials: it gives some."""
    certificates = pki.folder()
    gives = (
        "--listen", f"127.0.0.1:{free_port()}", "--key-file", str(gpu.key),
        "--tls-cert", f"{certificates}/server.pem", "--tls-key", f"{certificates}/server.key",
    )  # fmt: skip
    words = (
        "--node-name", GPU, "--kubeconfig", allow(plane), "--server", gpu.server.unix,
        "--pod-keys", str(gpu.key.with_name("pod-keys.json")), *(gives if credentials else ()),
    )  # fmt: skip
    known = gpu.secrets.variables if gpu.secrets is not None else {}
    with AgentNode(*words, **known):
        wait_until(lambda: space.get(ResourceSlice, f"{GPU}-rgpu") is not None, SECONDS)
        yield


def token(plane: ControlPlane) -> str:
    """Returns what the plugin's pod on the kubelet's node would find in its volume."""
    client = plane.client()
    uid = client.get(Node, plane.kubelet_node).metadata.uid
    bound = {"kind": "Node", "apiVersion": "v1", "name": plane.kubelet_node, "uid": uid}
    spec = {"audiences": ["rgpu.dev"], "boundObjectRef": bound, "expirationSeconds": 3600}
    account = {"name": "rgpu-node-plugin", "namespace": "rgpu-system"}
    asked = ServiceAccountToken.from_dict({"metadata": account, "spec": spec})
    made: Any = client.create(asked, account["name"], namespace=account["namespace"])
    return str(made.status.token)


@contextmanager
def client_node(plane: ControlPlane, space: Space, gpu: Gpu, credentials: bool) -> Iterator[Client]:
    # Another test may have applied it, and this kubelet would run it beside ours.
    with suppress(ApiError):
        plane.client().delete(DaemonSet, "rgpu-node-plugin", namespace="rgpu-system")
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        stack.enter_context(agent(plane, space, gpu, credentials))
        known = {"RGPU_TLS_CA": f"{pki.folder()}/ca.pem"}
        plugin = NodePlugin(
            folder, plane.kubeconfig_file("plugin"), node=plane.kubelet_node,
            **(known if gpu.secrets is None else gpu.secrets.variables),
        )  # fmt: skip
        runtime = stack.enter_context(FakeRuntime(folder, plugin.cdi))
        kubelet = stack.enter_context(Kubelet(plane, folder, runtime))
        plugin.token_file.write_text(token(plane))
        stack.enter_context(plugin)
        found = Client(space, plugin, kubelet, runtime, gpu)
        try:
            yield found
            for pod in space.client.list(Pod, namespace=space.name):
                found.delete(pod.metadata.name)
            wait_until(lambda: not plugin.prepared(), SECONDS)
            wait_until(lambda: not found.leases(), SECONDS)
        except BaseException:
            sys.stderr.write(f"{kubelet.told()}\n--- plugin\n{plugin.told()[-3000:]}\n")
            raise


@contextmanager
def client_with_tokens(plane: ControlPlane, space: Space, gpu: Gpu) -> Iterator[Client]:
    """A client node without credentials.  The API server gives each pod a token to show, and says
    how its server is trusted.
    """
    admin = plane.client()
    apply(admin, "policy.yaml")
    numbers = itertools.count()

    def counts() -> bool:
        pod = space.pod(f"probe-{next(numbers)}", claim="none", metadata=MANAGED)
        return any(one.name == "rgpu-token" for one in pod.spec.volumes)

    try:
        wait_until(counts, SECONDS)
        admin.deletecollection(Pod, namespace=space.name)
        with client_node(plane, space, gpu, credentials=False) as client:
            yield client
    finally:
        admin.delete(MutatingAdmissionPolicyBinding, "rgpu-placement")
