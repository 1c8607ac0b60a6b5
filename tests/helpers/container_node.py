"""A node with a real container runtime: containerd, runc and the kubelet in namespaces of their own.

A process keeps the namespaces of mounts, processes and the network. However it ends, all that runs
in them ends too, and mounts, bridges and packet filter rules are gone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from httpx2 import Timeout
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node, Pod

from helpers import node_image
from helpers.containerd import PODS, SOCKET, Containerd
from helpers.kubelet import arguments
from helpers.kubernetes import ControlPlane, Part
from helpers.node_network import NodeNetwork
from helpers.waiting import wait_until

ADDRESS = "10.77.0.1"
# The rows of the table of needs without which there is no such node.
NEEDED = ("controlplane", "containerd", "runc", "iptables", "iproute2", "root", "namespaces")
_CGROUPS = Path("/sys/fs/cgroup")
READY_SECONDS = 300
_STOP_SECONDS = 30
_TIMEOUT = Timeout(60)
# Programs of the node write to these folders, and the machine's own stay as they are.
_OWN = ("var/lib", "opt", "etc")
_SCRIPT = f"""
set -e
cd "$1"
mount --make-rprivate /
for one in {" ".join(_OWN)}; do
  mkdir -p "own/$one" "work/$one"
  mount -t overlay -o "lowerdir=/$one,upperdir=$1/own/$one,workdir=$1/work/$one" overlay "/$one"
done
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/cdi /var/lib/kubelet/plugins_registry
mount --make-rshared /
ip link set lo up
ip link add node0 type veth peer name node1
ip link set node1 up
ip address add {ADDRESS}/24 dev node0
ip link set node0 up
ip route add default dev node0 src {ADDRESS}
echo 1 > /proc/sys/net/ipv4/ip_forward
echo ready
read _
"""


class AuthorityPlane(ControlPlane):
    """A control plane that gives pods the authority of the API server, as clusters do. Who asks it
    has time: a node that unpacks images may take all processors.
    """

    def client(self, user: str = "admin") -> Client:
        client = Client(config=KubeConfig.from_dict(self.kubeconfig(user)), timeout=_TIMEOUT)
        self._clients.append(client)
        return client

    def _controllers(self) -> list[str]:
        authority = self.folder / "certificates" / "apiserver.crt"
        return [*super()._controllers(), f"--root-ca-file={authority}"]


class ContainerNode:
    """The node of `plane.kubelet_node`. folder: on a file system that overlayfs may write to."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.name = plane.kubelet_node
        self._plane, self._folder = plane, folder
        self._group = f"rgpu-node-{os.getpid()}"
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--net", "--ipc", "--uts",
             "--kill-child=KILL", "--", "bash", "-c", _SCRIPT, "bash", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
        )  # fmt: skip
        assert self._keeper.stdout
        assert self._keeper.stdout.readline() == b"ready\n", "the namespaces could not be made"
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text()
        self._first = children.split()[0]
        kinds = ("--mount", "--pid", "--net", "--ipc", "--uts")
        self.enter = ["nsenter", f"--target={self._first}", *kinds, "--"]
        self.containerd = Containerd(self.enter, folder, node_image.PAUSE)
        self._kubelet = Part("kubelet", self._entering(plane.file), folder, self._flags())

    @property
    def namespace(self) -> str:
        """The file of the network namespace."""
        return f"/proc/{self._first}/ns/net"

    def start(self) -> None:
        """Returns when the node is ready."""
        self._make_cgroups()
        self.containerd.start()
        archive = self._folder / "images.tar"
        node_image.write(archive)
        self.containerd.load(archive)
        archive.unlink()
        self._kubelet.start()
        wait_until(self._ready, READY_SECONDS)

    def close(self) -> None:
        """Ends all that runs on the node."""
        assert self._keeper.stdin
        assert self._keeper.stdout
        self._keeper.stdin.close()
        try:
            self._keeper.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()
        self._kubelet.stop()
        self.containerd.wait()
        self._remove_cgroups()

    def output(self, pod: Pod, container: str = "c") -> str:
        """Returns what a container has printed so far, without the runtime's marks."""
        assert pod.metadata
        name = f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}"
        files = sorted((self._folder / "logs" / name / container).glob("*.log"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return "\n".join(line.split(" ", 3)[-1] for line in lines)

    def told(self) -> str:
        """Returns the ends of the logs."""
        return f"{self.containerd.told()}\n{self._kubelet.told(6000)}"

    def _entering(self, file: Path) -> Path:
        """Writes a command that runs the file in the namespaces."""
        script = self._folder / "enter"
        script.write_text(f'#!/bin/sh\nexec {" ".join(self.enter)} {file} "$@"\n')
        script.chmod(0o700)
        return script

    def _ready(self) -> bool:
        rows = [one for one in self._plane.client().list(Node) if one.metadata.name == self.name]
        conditions = [c for one in rows for c in one.status.conditions or [] if c.type == "Ready"]
        return bool(conditions) and conditions[0].status == "True" and not rows[0].spec.taints

    def _make_cgroups(self) -> None:
        for parent in self._cgroup_parents():
            group = parent / self._group
            group.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):
                if parent != _CGROUPS and (parent / name).exists():
                    (group / name).write_text((parent / name).read_text())

    def _cgroup_parents(self) -> list[Path]:
        """Returns the roots of the hierarchies: one of version 2, or several of version 1."""
        if (_CGROUPS / "cgroup.controllers").exists():
            return [_CGROUPS]
        kinds = (one for one in _CGROUPS.iterdir() if one.is_dir() and not one.is_symlink())
        return [one for one in kinds if not (one / "cgroup.controllers").exists()]

    def _remove_cgroups(self) -> None:
        """Removes the groups, which are empty once their processes have ended, and those that runc
        makes of version 2 beside version 1.
        """
        roots = (one / self._group for one in (_CGROUPS, *_CGROUPS.iterdir()))
        groups = sorted((group for root in roots for group in root.glob("**/")), reverse=True)

        def gone() -> bool:
            for group in groups:
                with suppress(OSError):
                    group.rmdir()
            return not any(group.exists() for group in groups)

        wait_until(gone, _STOP_SECONDS)

    def _flags(self) -> list[str]:
        config: dict[str, Any] = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "healthzPort": 0,
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            # Machines with control groups of version 1 can run the tests too.
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "failSwapOn": False,
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "podLogsDir": f"{self._folder}/logs",
            "volumePluginDir": f"{self._folder}/volumes",
            "resolvConf": "/dev/null",
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "nodeStatusUpdateFrequency": "5s",
            # No pod that a test deletes waits long.
            "syncFrequency": "5s",
        }
        root = Path("/var/lib/kubelet")
        return [
            *arguments(config, self._folder, self._plane, self.name, root),
            f"--node-ip={ADDRESS}",
        ]


@contextmanager
def container_node(plane: ControlPlane, folder: Path) -> Iterator[ContainerNode]:
    """Yields the node, once it is ready."""
    folder.mkdir()
    port = int(plane.server.rpartition(":")[2])
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        node = ContainerNode(plane, folder)
        stack.callback(node.close)
        stack.enter_context(NodeNetwork(plane.client(), node.namespace, ADDRESS, port, PODS))
        node.start()
        yield node
