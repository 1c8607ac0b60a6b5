"""A GPU node of a Kubernetes cluster: a real server with its real agent."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice

from helpers import pki
from helpers.agent_node import AgentNode, allow
from helpers.kube_objects import Space
from helpers.kubernetes import ControlPlane
from helpers.server import Server
from helpers.waiting import wait_until
from rgpu_common.channels import open_channel
from rgpu_common.closing import Closing
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import agent_pb2, lease_pb2, lease_pb2_grpc, orders_pb2, orders_pb2_grpc

POOL = "gpu7"
SECONDS = 90


class GpuNode(Closing):
    """A server, its agent, and the control plane that they serve. options: of the server."""

    def __init__(self, plane: ControlPlane, space: Space, folder: Path, *options: str) -> None:
        self.plane, self.space = plane, space
        self._options = options
        self._folder = folder
        self._stack = ExitStack()
        self.socket = f"unix:{folder}/rgpu.sock"
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self.server = self.serve()
        self._channel = open_channel(parse_endpoint(self.socket), {})
        self._stack.callback(self._channel.close)
        self.orders = orders_pb2_grpc.NodeOrderServiceStub(self._channel)
        self.operator = lease_pb2_grpc.LeaseServiceStub(self._channel)
        self.authority = pki.folder() / "ca.pem"
        known = {"RGPU_TLS_CA": str(self.authority)}
        self.agent = self._stack.enter_context(AgentNode(*self.arguments(), **known))

    def serve(self) -> Server:
        state = f"{self._folder}/state"
        words = ("--listen", self.socket, "--node-name", POOL, "--state-dir", state)
        return self._stack.enter_context(Server(*words, *self._options))

    def arguments(self, *more: str) -> list[str]:
        path = allow(self.plane)
        return ["--node-name", POOL, "--server", self.socket, "--kubeconfig", path, *more]

    def close(self) -> None:
        self._stack.close()

    def pool(self) -> Any:
        """The spec of the node's slice; None: there is none."""
        found = self.space.get(ResourceSlice, f"{POOL}-rgpu")
        return None if found is None else found.spec

    def published(self) -> Any:
        wait_until(lambda: self.pool() is not None, SECONDS)
        return self.pool()

    def taints(self) -> list[tuple[str, str]]:
        (device,) = self.pool().devices
        return [(taint.key, taint.effect) for taint in device.taints or []]

    def tainted(self, *taints: tuple[str, str]) -> None:
        wait_until(lambda: self.taints() == [*taints], SECONDS)

    def leases(self) -> list[agent_pb2.HeldLease]:
        stream = self.orders.WatchReport(orders_pb2.WatchReportRequest(), timeout=60)
        report = next(stream)
        stream.cancel()
        return list(report.leases)

    def remaining(self) -> list[int]:
        """In how many seconds each lease ends unless it is kept alive."""
        rows = self.operator.ListLeases(lease_pb2.ListLeasesRequest(), timeout=60).leases
        return [round(row.remaining_seconds) for row in rows]

    def has_lease(self, claim: ResourceClaim) -> bool:
        assert claim.metadata
        return any(lease.request_id == claim.metadata.uid for lease in self.leases())
