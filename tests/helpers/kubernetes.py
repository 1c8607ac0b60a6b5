"""A real Kubernetes control plane on this machine: etcd, API server, scheduler, controllers.

There is no kubelet, so nodes are objects made by hand and a pod that is bound does not start;
`helpers.kubelet` has one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from ssl import create_default_context
from types import TracebackType
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from lightkube import Client, KubeConfig
from typing_extensions import Self

from helpers.ports import free_port
from helpers.waiting import wait_until

# Users of the token file, by the names and groups that Kubernetes' own roles are bound to.
USERS = {
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controllers": ("system:kube-controller-manager", ""),
    # Users without rights: tests give them roles.
    "manager": ("rgpu-manager", ""),
    "stranger": ("rgpu-stranger", ""),
    # ServiceAccounts of deploy/kubernetes, whose rights they have.
    "placer": ("system:serviceaccount:rgpu-system:rgpu-manager", ""),
    "webhook": ("system:serviceaccount:rgpu-system:rgpu-units-webhook", ""),
    "legacy": ("system:serviceaccount:rgpu-system:rgpu-legacy-controllers", ""),
    "agent": ("system:serviceaccount:rgpu-system:rgpu-agent-node", ""),
    "watchdog": ("system:serviceaccount:rgpu-system:rgpu-gate-watchdog", ""),
    "plugin": ("system:serviceaccount:rgpu-system:rgpu-node-plugin", ""),
    "kubelet": ("system:node:client-1", "system:nodes"),
}
# Starts the processes. They are to die with the tests, and Linux takes the thread that started them
# for their parent.
_STARTER = ThreadPoolExecutor(1)
START_SECONDS = 120
STOP_SECONDS = 20
_ISSUER = "https://kubernetes.default.svc"


class Part:
    """One process of the control plane; it can be stopped, killed and started again."""

    def __init__(self, name: str, file: Path, folder: Path, flags: list[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [str(file), name, *flags]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it.  It dies with the tests, whichever thread of theirs asks."""
        self._process = _STARTER.submit(self._open).result(START_SECONDS)

    def _open(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process, f"{self.name} was not started"
        return self._process.pid

    def running(self) -> bool:
        """Returns whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Ends it, by SIGKILL if it does not end by SIGTERM."""
        if not self._process:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def resident_bytes(self) -> int:
        """Returns the memory that it has now."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def told(self, characters: int = 3000) -> str:
        """Returns the end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.name}\n{text[-characters:]}"


class ControlPlane:
    """`with ControlPlane(file, gates) as plane:` runs one; `plane.client()` speaks to it.

    gates: feature gates for all parts, as `{"DRAOptionalNodeOperations": True}`. calls_a_second: how
    many calls scheduler and controllers may make; 0: as Kubernetes ships them. emulates: the minor
    release, as "1.35", whose APIs and defaults of gates it has; "": its own.
    """

    def __init__(
        self, file: Path, gates: dict[str, bool] | None = None, calls_a_second: int = 0,
        emulates: str = "",
    ) -> None:  # fmt: skip
        self.file = file
        self._emulates = emulates
        self._calls = calls_a_second
        self._gates = ",".join(f"{name}={str(on).lower()}" for name, on in (gates or {}).items())
        self.folder = Path(tempfile.mkdtemp(prefix="rgpu-k8s-"))
        self.kubelet_node = USERS["kubelet"][0].rpartition(":")[2]
        self.server = f"https://127.0.0.1:{free_port()}"
        self._clients: list[Client] = []
        self.parts: dict[str, Part] = {}
        self.started_seconds = 0.0

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def client(self, user: str = "admin") -> Client:
        """Returns a client that speaks as `user`, one of USERS."""
        client = Client(config=KubeConfig.from_dict(self.kubeconfig(user)))
        self._clients.append(client)
        return client

    def kubeconfig(self, user: str = "admin") -> dict[str, Any]:
        """Returns the content of a kubeconfig file of `user`."""
        cluster = {
            "server": self.server,
            "certificate-authority": str(self.folder / "certificates" / "apiserver.crt"),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": _token(user)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }

    def close(self) -> None:
        """Ends all processes and removes their files."""
        for client in self._clients:
            client.close()
        # The API server waits for its clients, and they for etcd.
        for part in reversed(self.parts.values()):
            part.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart_apiserver(self) -> None:
        """Ends the API server and starts it again: it knows no change that was before."""
        self.parts["kube-apiserver"].stop()
        self.parts["kube-apiserver"].start()
        self._wait_for_apiserver()

    def told(self) -> str:
        """Returns the ends of all logs."""
        return "\n".join(part.told() for part in self.parts.values())

    def _start(self) -> None:
        began = time.monotonic()
        self._write_files()
        for name, flags in (("etcd", self._etcd()), ("kube-apiserver", self._apiserver())):
            self._run(name, flags)
        self._wait_for_apiserver()
        config = ["--leader-elect=false", "--secure-port=0"]
        for name, user in (
            ("kube-scheduler", "scheduler"),
            ("kube-controller-manager", "controllers"),
        ):
            more = self._controllers() if user == "controllers" else []
            if self._calls:
                more += [f"--kube-api-qps={self._calls}", f"--kube-api-burst={self._calls}"]
            self._run(
                name,
                [f"--kubeconfig={self.kubeconfig_file(user)}", *config, *self._gate_flags(), *more],
            )
        self.started_seconds = time.monotonic() - began

    def _run(self, name: str, flags: list[str]) -> None:
        self.parts[name] = Part(name, self.file, self.folder, flags)
        self.parts[name].start()

    def kubeconfig_file(self, user: str) -> Path:
        """Writes the kubeconfig file of `user`; returns its path."""
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(json.dumps(self.kubeconfig(user)))
        return path

    def _write_files(self) -> None:
        rows = [f'{_token(user)},{name},{user},"{group}"' for user, (name, group) in USERS.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        text = key.private_bytes(pem, form, serialization.NoEncryption())
        (self.folder / "account.key").write_bytes(text)

    def _gate_flags(self) -> list[str]:
        flags = [f"--feature-gates={self._gates}"] if self._gates else []
        return [*flags, f"--emulated-version={self._emulates}"] if self._emulates else flags

    def _etcd(self) -> list[str]:
        # Sockets in our folder need no ports, and no other user reaches them.
        clients, peers = (f"unix://{self.folder}/{name}.sock" for name in ("etcd", "peers"))
        return [
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            # The data does not outlive the test.
            "--unsafe-no-fsync",
        ]  # fmt: skip

    def _apiserver(self) -> list[str]:
        port = self.server.rpartition(":")[2]
        return [
            f"--etcd-servers=unix://{self.folder}/etcd.sock",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}",
            # The service `kubernetes` may not point at a loopback address.
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}/certificates",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=Node,RBAC",
            f"--service-account-issuer={_ISSUER}", f"--api-audiences={_ISSUER},rgpu,rgpu.dev",
            f"--service-account-key-file={self.folder}/account.key",
            f"--service-account-signing-key-file={self.folder}/account.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            # As clusters have it whose nodes run drivers of any kind.
            "--allow-privileged=true",
            *self._gate_flags(),
        ]  # fmt: skip

    def _controllers(self) -> list[str]:
        return [
            f"--service-account-private-key-file={self.folder}/account.key",
            # Each controller acts by a service account whose role holds its own rights.
            "--use-service-account-credentials",
            # Nobody sends heartbeats for nodes that are made by hand.
            "--node-monitor-grace-period=24h",
        ]

    def _wait_for_apiserver(self) -> None:
        """Returns when the API server serves and has made its own roles and priority classes."""
        wait_until(lambda: self._dead() or self.ready(), START_SECONDS)
        if self._dead():
            raise RuntimeError(f"the control plane did not start:\n{self.told()}")

    def _dead(self) -> bool:
        return not all(part.running() for part in self.parts.values())

    def ready(self) -> bool:
        """Returns whether the API server serves, with its own roles."""
        certificate = self.folder / "certificates" / "apiserver.crt"
        if not certificate.exists():
            return False
        ask = urllib.request.Request(
            f"{self.server}/readyz", headers={"Authorization": f"Bearer {_token('admin')}"}
        )
        with suppress(OSError, urllib.error.URLError):
            context = create_default_context(cafile=str(certificate))
            with urllib.request.urlopen(ask, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        return False


def _token(user: str) -> str:
    return f"token-of-{user}"
