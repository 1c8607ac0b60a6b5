"""The `[kubernetes]` table of the manager's configuration."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rgpu_cluster.core.request import Mode
from rgpu_common.errors import UsageError
from rgpu_common.key_kinds import Choice, File, Flag, Text
from rgpu_common.keys import Option, key
from rgpu_server.config_kinds import MetricsAddress

if TYPE_CHECKING:
    from rgpu_common.endpoints import TcpEndpoint

_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

_REACHES = (Mode.LOCAL, Mode.NEAR, Mode.ANY)


@dataclass(frozen=True, slots=True)
class KubernetesKeys:
    """How the manager serves Kubernetes."""

    serve: bool = key(
        "kubernetes.serve", Flag(), False,
        "Place the claims of pods, too. The manager listens only while it leads its replicas.",
        option=Option("--kubernetes"),
    )  # fmt: skip
    kubeconfig: str = key(
        "kubernetes.kubeconfig", File(), "",
        "The file that says how to reach Kubernetes' API server.",
        option=Option("--kubeconfig", "FILE"),
        unset="`KUBECONFIG`, or the ServiceAccount of the manager's pod",
    )  # fmt: skip
    namespace: str = key(
        "kubernetes.namespace", Text(), "",
        "The namespace of the Lease by which replicas choose a leader.",
        option=Option("--namespace", "NAME"), unset="that of the manager's pod, else `default`",
    )  # fmt: skip
    extender: TcpEndpoint | None = key(
        "kubernetes.extender", MetricsAddress(), None,
        "Serve a scheduler extender at this address, for clusters before Kubernetes 1.34 "
        "([how](../how-to/migrating.md#before-kubernetes-134-the-scheduler-extender)).",
        unset="none",
    )  # fmt: skip
    extender_certificate: str = key(
        "kubernetes.extender_certificate", File(), "",
        "The extender's certificate, in PEM. The file is read again when it changes.",
        unset="HTTP without TLS, on loopback addresses alone",
    )  # fmt: skip
    extender_key: str = key(
        "kubernetes.extender_key", File(), "", "The key of that certificate.", unset="none"
    )
    extender_ca: str = key(
        "kubernetes.extender_ca", File(), "",
        "The extender answers only callers with a certificate of this authority. Who can ask it "
        "can bind pods.", unset="only on loopback addresses",
    )  # fmt: skip
    extender_reach: Mode = key(
        "kubernetes.extender_reach", Choice({mode.word: mode for mode in _REACHES}), Mode.ANY,
        "How far a card may be from a pod of the extender: on its node, in its rack, or anywhere.",
    )  # fmt: skip
    identity: str = key(
        "kubernetes.identity", Text(), "",
        "The name of this replica, another one for each.", unset="the host name and the process id",
    )  # fmt: skip

    def check(self) -> None:
        """Raises UsageError if the extender could be asked by anybody, or lacks a file."""
        if self.extender is None:
            return
        files = (self.extender_certificate, self.extender_key, self.extender_ca)
        if not self.serve:
            raise UsageError("kubernetes.extender needs the manager to serve Kubernetes too; add "
                             "--kubernetes")  # fmt: skip
        if any(files) and not all(files[:2]):
            raise UsageError(
                "kubernetes.extender_certificate and kubernetes.extender_key belong together"
            )
        if not self.extender.loopback and not all(files):
            raise UsageError(
                f"kubernetes.extender {self.extender} can be reached from other machines, and who "
                "can ask it can bind pods; set kubernetes.extender_certificate, extender_key and "
                "extender_ca, or serve it on 127.0.0.1"
            )

    def filled(self) -> KubernetesKeys:
        """Returns it with what is known of the place where it runs."""
        identity = self.identity or f"{socket.gethostname()}-{os.getpid()}"
        return replace(self, namespace=self.namespace or namespace_here(), identity=identity)


def namespace_here() -> str:
    """Returns the namespace of this pod; `default` where this is no pod."""
    try:
        with open(_FOLDER, encoding="utf-8") as file:
            return file.read(256).strip() or "default"
    except OSError:
        return "default"
