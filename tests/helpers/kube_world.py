"""All parts of rgpu on Kubernetes as processes, each of which can be killed and stopped."""

from __future__ import annotations

import base64
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightkube.resources.resource_v1 import ResourceSlice
from typing_extensions import Self

from helpers import gpu_client, pki
from helpers.agent_node import AgentNode, allow
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, node
from helpers.kubernetes import ControlPlane
from helpers.node_plugin import FakeKubelet, NodePlugin
from helpers.ports import free_port
from helpers.replicas import Replicas
from helpers.server import Server
from helpers.steady import Steady
from helpers.waiting import wait_until
from rgpu_common.channels import open_channel
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import orders_pb2, orders_pb2_grpc

# For rgpu; and for Kubernetes, which takes long to begin on a machine with other work.
SECONDS, KUBERNETES_SECONDS = 60, 180
# A strike comes so long after the pods at most, and lasts so long at most.
_LATEST, _LONGEST = 0.4, 2.0


@dataclass
class Victim:
    """A process. signal: sends one. kill: by SIGKILL; returns when it has ended. mend: of a part of
    Kubernetes, returns when that serves again.
    """

    name: str
    signal: Callable[[signal.Signals], None]
    kill: Callable[[], None]
    start: Callable[[], None]
    mend: Callable[[], None] | None = None


class Strike:
    """Kills or stops a victim after a random time, and mends it after another. began: when; for a
    part of Kubernetes, since when it serves again. inf: not yet.
    """

    def __init__(self, victim: Victim, chance: random.Random) -> None:
        self.kills = chance.random() < 0.5
        self.name = f"{'kill' if self.kills else 'stop'} {victim.name}"
        self.began = math.inf
        self._victim = victim
        self._times = chance.uniform(0, _LATEST), chance.uniform(0, _LONGEST)
        self._failed: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            self._over.wait(self._times[0])
            began = time.monotonic()
            if self._victim.mend is None:
                self.began = began
            self._strike()
            if self._victim.mend is not None:
                self._victim.mend()
                self.began = time.monotonic()
        except BaseException as error:
            self._failed = error

    def _strike(self) -> None:
        if self.kills:
            self._victim.kill()
            self._over.wait(self._times[1])
            self._victim.start()
            return
        self._victim.signal(signal.SIGSTOP)
        try:
            self._over.wait(self._times[1])
        finally:
            self._victim.signal(signal.SIGCONT)


@dataclass
class World:
    """Two managers, a GPU node with one card, and a node whose kubelet is the test."""

    plane: ControlPlane
    space: Space
    replicas: Replicas
    server: Server
    agent: AgentNode
    plugin: NodePlugin
    kubelet: FakeKubelet

    def victims(self) -> list[Victim]:
        api = self.plane.parts["kube-apiserver"]

        def kill_api() -> None:
            api.signal(signal.SIGKILL)
            api.stop()

        def signal_agent(number: signal.Signals) -> None:
            assert self.agent.process is not None
            self.agent.process.send_signal(number)

        managers = [
            Victim(f"manager {one.name}", one.signal, one.end, one.start)
            for one in self.replicas.all
        ]
        return [
            *managers,
            Victim("agent", signal_agent, self.agent.kill, self.agent.start),
            Victim("plugin", self.plugin.signal, self.plugin.kill, self.plugin.start),
            Victim("API server", api.signal, kill_api, api.start, self._mend_api),
        ]

    def _mend_api(self) -> None:
        """Returns when the API server serves. The others of Kubernetes begin anew: they ask a dead
        one ever more seldom, up to once in half a minute. And kube-scheduler ends itself if that
        was killed while it bound a pod ("scheduler cache is corrupted").
        """
        wait_until(self.plane.ready, KUBERNETES_SECONDS)
        for name in ("kube-scheduler", "kube-controller-manager"):
            part = self.plane.parts[name]
            if part.running():
                part.signal(signal.SIGKILL)
            part.stop()
            part.start()

    def well(self) -> bool:
        """Returns whether the API server serves, and a manager that lives leads.

        Managers that have ended are started again, as a kubelet does: one that could not renew its
        Lease ends.
        """
        self.replicas.restart_ended()
        leader = self.replicas.leader() if self.plane.ready() else None
        return leader is not None and not leader.ended()

    def leases(self) -> list[Any]:
        """Returns what the server has, which is never more than a card."""
        with open_channel(parse_endpoint(self.server.unix), {}) as channel:
            stub = orders_pb2_grpc.NodeOrderServiceStub(channel)
            stream = stub.WatchReport(orders_pb2.WatchReportRequest(), timeout=30)
            found = list(next(stream).leases)
            stream.cancel()
        assert sum(one.share_ppm for one in found) <= 1_000_000, found
        return found

    def told(self) -> str:
        logs = (self.agent.told()[-3000:], self.plugin.told()[-3000:], self.server.told()[-3000:])
        return "\n---\n".join((*(one.told() for one in self.replicas.all), *logs))


@contextmanager
def world(plane: ControlPlane, space: Space, folder: Path) -> Iterator[World]:
    """Everything is up, and the card is published."""
    steady: Any = Steady(space.client)
    apply(
        plane.client(),
        "namespace.yaml", "classes.yaml", "manager-rbac.yaml", "node-plugin-rbac.yaml",
    )  # fmt: skip
    node(space.client, plane.kubelet_node)
    (folder / "key").write_bytes(base64.b64encode(gpu_client.KEY))
    config = folder / "rgpu.toml"
    config.write_text(f'[identity]\nrequire = "always"\nclaim_key = "{folder}/key"\n')
    with ExitStack() as stack:
        replicas = Replicas(plane, folder, free_port())
        for one in replicas.all:
            stack.callback(one.end)
        words = ("--node-name", gpu_client.GPU, "--state-dir", str(folder / "state"))
        server = stack.enter_context(
            Server("--join", replicas.address, "--config", str(config), *words, device="emulated:4GiB")
        )  # fmt: skip
        agent = stack.enter_context(AgentNode(*_agent_words(plane, server, folder)))
        wait_until(lambda: space.get(ResourceSlice, f"{gpu_client.GPU}-rgpu") is not None, SECONDS)
        plugin = NodePlugin(
            folder, plane.kubeconfig_file("plugin"), node=plane.kubelet_node,
            RGPU_TLS_CA=f"{pki.folder()}/ca.pem",
        )  # fmt: skip
        plugin.token_file.write_text(gpu_client.token(plane))
        stack.enter_context(plugin)
        kubelet = stack.enter_context(FakeKubelet(plugin))
        found = World(plane, Space(steady, space.name), replicas, server, agent, plugin, kubelet)
        try:
            yield found
        except BaseException:
            sys.stderr.write(found.told())
            raise


def _agent_words(plane: ControlPlane, server: Server, folder: Path) -> tuple[str, ...]:
    certificates = pki.folder()
    return (
        "--node-name", gpu_client.GPU, "--kubeconfig", allow(plane), "--server", server.unix,
        "--listen", f"127.0.0.1:{free_port()}", "--key-file", str(folder / "key"),
        "--tls-cert", f"{certificates}/server.pem", "--tls-key", f"{certificates}/server.key",
    )  # fmt: skip
