"""A real kubelet on this machine, with a fake container runtime. It needs root."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from lightkube.resources.core_v1 import Node
from typing_extensions import Self

from helpers.fake_runtime import FakeRuntime
from helpers.kubernetes import ControlPlane, Part
from helpers.ports import free_port
from helpers.waiting import wait_until

# The kubelet makes this folder, whatever its root folder is.
_FIXED = Path("/var/lib/kubelet")
READY_SECONDS = 90


class Kubelet:
    """`with Kubelet(plane, folder, runtime) as kubelet:` is the node of `plane.kubelet_node`."""

    def __init__(self, plane: ControlPlane, folder: Path, runtime: FakeRuntime) -> None:
        self.node = plane.kubelet_node
        self.root = folder / "kubelet"
        self._plane, self._folder, self._runtime = plane, folder, runtime
        self._had_fixed = _FIXED.exists()
        self._part = Part("kubelet", plane.file, folder, self._flags())

    def __enter__(self) -> Self:
        self.root.mkdir(exist_ok=True)
        (self.root / "plugins_registry").mkdir(exist_ok=True)
        # Programs find it where they look for it.
        (self.root / "device-plugins").symlink_to(_FIXED / "device-plugins")
        self.start()
        try:
            wait_until(self._ready, READY_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        self._part.start()

    def stop(self) -> None:
        self._part.stop()

    def told(self) -> str:
        """Returns the end of its log."""
        return self._part.told(6000)

    def close(self) -> None:
        """Ends it, and removes what it leaves mounted."""
        self._part.stop()
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        for path in sorted((row.split()[1] for row in mounts), reverse=True):
            if path.startswith(f"{self.root}"):
                subprocess.run(["umount", "-l", path], check=True, timeout=20)
        if not self._had_fixed:
            shutil.rmtree(_FIXED, ignore_errors=True)

    def _ready(self) -> bool:
        assert self._part.running(), self.told()
        rows = [one for one in self._plane.client().list(Node) if one.metadata.name == self.node]
        conditions = [c for one in rows for c in one.status.conditions or [] if c.type == "Ready"]
        return bool(conditions) and conditions[0].status == "True" and not rows[0].spec.taints

    def _flags(self) -> list[str]:
        config = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "port": free_port(),
            "healthzPort": 0,
            "containerRuntimeEndpoint": self._runtime.endpoint,
            # What a container without its own cgroups can do.
            "failCgroupV1": False,
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "evictionHard": {"memory.available": "1Mi"},
            "localStorageCapacityIsolation": False,
            "podLogsDir": f"{self._folder}/logs",
            "volumePluginDir": f"{self._folder}/volumes",
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "5s",
            # No pod that a test deletes waits long.
            "syncFrequency": "5s",
        }
        return arguments(config, self._folder, self._plane, self.node, self.root)


def arguments(
    config: dict[str, Any], folder: Path, plane: ControlPlane, name: str, root: Path
) -> list[str]:
    """Returns the arguments of a kubelet with this configuration, which is written to `folder`.
    name: the node's. root: where the kubelet keeps its state.
    """
    path = folder / "kubelet.json"
    path.write_text(json.dumps(config))
    return [
        f"--config={path}",
        f"--kubeconfig={plane.kubeconfig_file('kubelet')}",
        f"--root-dir={root}",
        f"--cert-dir={folder}/kubelet-certificates",
        f"--hostname-override={name}",
        "--v=2",
    ]
