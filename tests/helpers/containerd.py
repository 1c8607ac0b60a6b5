"""containerd, its shim and its command `ctr`, and CNI's plugins, of `tests/kubernetes/containerd`.

`python -m helpers.containerd` in `tests` builds them, as `make k8s-node` does, and prints where the
folder is. runc is the machine's own, because it is not written in Go alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from helpers.go_programs import GoProgram
from helpers.needs import program
from helpers.waiting import wait_until

PROGRAM = GoProgram(
    "containerd",
    "containerd",
    "github.com/containerd/containerd/v2",
    "tool",
    ("github.com/containerd/containerd/v2/version.Version={version}",),
)
SOCKET = "/run/containerd/containerd.sock"
PODS = "10.88.0.0/24"
_SECONDS = 300


class Containerd:
    """enter: the command by which a program comes into the namespaces of the node. folder: for all
    that it keeps, on a file system that overlayfs may write to. pause: the image of sandboxes.
    """

    def __init__(self, enter: list[str], folder: Path, pause: str) -> None:
        self._enter = enter
        self._programs = PROGRAM.find()
        self._log = folder / "containerd.log"
        self._process: subprocess.Popen[bytes] | None = None
        network = folder / "cni"
        network.mkdir()
        (network / "10-bridge.conflist").write_text(json.dumps(_NETWORK))
        self._config = folder / "containerd.toml"
        self._config.write_text(
            _CONFIG.format(
                folder=folder, programs=self._programs, pause=pause, runc=program("runc"),
                network=network, socket=SOCKET,
            )
        )  # fmt: skip

    def start(self) -> None:
        """Starts it; it ends with its namespaces."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, str(self._programs / "containerd"), "--config", str(self._config)],
                env={**os.environ, "PATH": f"{self._programs}:/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(lambda: self._ctr("version").returncode == 0, _SECONDS)

    def wait(self) -> None:
        """Returns when it has ended with its namespaces."""
        if self._process:
            self._process.wait(_SECONDS)

    def load(self, archive: Path) -> None:
        """Takes the images of an archive."""
        done = self._ctr("images", "import", str(archive))
        assert done.returncode == 0, done.stderr

    def told(self) -> str:
        """Returns the end of its log."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return f"--- containerd\n{text[-3000:]}"

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, str(self._programs / "ctr"), "--namespace=k8s.io", *words],
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip


# Pods reach each other and the node, and nothing else.
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "bridge",
    "plugins": [
        {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}  # fmt: skip
# A root without CAP_SYS_RESOURCE may not lower oom_score_adj.
_CONFIG = """\
version = 3
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile",
]
[grpc]
address = "{socket}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{programs}"]
conf_dir = "{network}"
use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""

if __name__ == "__main__":
    PROGRAM.main()
