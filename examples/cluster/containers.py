"""Containers without a container engine: namespaces, bridges and an unprivileged user (needs root).

A container ends with this process, however that ends: its first process waits for the end of its
input, and the kernel ends the rest with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEADLINE_SECONDS = 15.0
_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NEEDED = {
    "ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
}  # fmt: skip


class ClusterError(Exception):
    """The demo cannot go on; the message says why and what helps."""


def check() -> None:
    """ClusterError where containers cannot be made."""
    if os.geteuid() != 0:
        raise ClusterError("containers out of namespaces need root: run this with sudo")
    missing = {package for name, package in _NEEDED.items() if find(name) is None}
    if missing:
        raise ClusterError(f"install {', '.join(sorted(missing))}: apt-get install them")


def find(program: str) -> str | None:
    """Where a program is, also where only root looks."""
    return shutil.which(program, path=f"{Path(sys.executable).parent}:{_PATHS}")


class Space:
    """Namespaces that a waiting process keeps."""

    def __init__(self, flags: tuple[str, ...], words: tuple[str, ...]) -> None:
        command = ["unshare", "--fork", "--kill-child=KILL", *flags, "--", *words]
        self._keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            self.close()
            raise ClusterError("namespaces cannot be made here: this needs CAP_SYS_ADMIN")
        self.pid = _child(self._keeper.pid)

    def ip(self, *lines: str) -> None:
        """Runs commands of ip(8) in this network namespace."""
        subprocess.run(
            ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", "ip", "-batch", "-"],
            input="\n".join(lines), text=True, check=True, timeout=DEADLINE_SECONDS,
        )  # fmt: skip

    def close(self) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()


def _child(pid: int) -> int:
    """The only child of a process of one thread."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


class Switch(Space):
    """Holds a bridge for each network, and nothing else."""

    def __init__(self, networks: list[str]) -> None:
        super().__init__(("--net",), ("sh", "-c", "echo ready; exec cat"))
        self.networks = networks
        self._ports = 0
        lines = [f"link add {self._bridge(name)} type bridge" for name in networks]
        self.ip(*lines, *(f"link set {self._bridge(name)} up" for name in networks))

    def _bridge(self, network: str) -> str:
        return f"br{self.networks.index(network)}"

    def plug(self, space: Space, network: str, addresses: list[str]) -> None:
        """Gives a container an interface in a network.  addresses: with the bits of their nets."""
        self._ports += 1
        port, inside = f"p{self._ports}", f"eth{self._ports}"
        self.ip(
            f"link add {port} type veth peer name {inside} netns {space.pid}",
            f"link set {port} master {self._bridge(network)} up",
        )
        # Nobody else can have these addresses: IPv6 need not look for that for a second.
        lines = [f"addr add {address} dev {inside}" for address in addresses]
        space.ip(
            *(f"{line} nodad" if "::" in line else line for line in lines),
            f"link set {inside} up",
        )


class Container(Space):
    """One container.  mounts: (source, target, read-only)."""

    def __init__(self, name: str, mounts: list[tuple[str, str, bool]], read_only: bool) -> None:
        self.name = name
        plan = {"name": name, "mounts": mounts, "read_only": read_only, "keep": _kept()}
        program = (sys.executable, "-I", "-S", str(HERE / "enclose.py"), json.dumps(plan))
        super().__init__(("--net", "--mount", "--pid", "--ipc", "--uts", "--mount-proc"), program)
        self.ip("link set lo up")

    def start(
        self, words: list[str], user: int, environment: dict[str, str]
    ) -> subprocess.Popen[str]:
        """Starts a program without any privilege; its output comes by a pipe."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--ipc", "--uts"]
        drop = [
            "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all",
            "--bounding-set=-all", "--no-new-privs", "--pdeathsig=KILL",
        ]  # fmt: skip
        path = f"{Path(sys.executable).parent}:{_PATHS}"
        return subprocess.Popen(
            [*enter, "--wd=/", "--", *drop, "--", *words],
            env={"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8", **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd="/",
        )  # fmt: skip


def stop(process: subprocess.Popen[str], seconds: float) -> None:
    """SIGTERM to what nsenter started, as `docker stop` does, then a deadline, then SIGKILL."""
    deadline = time.monotonic() + seconds
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(OSError, IndexError, ProcessLookupError):
                os.kill(_child(process.pid), number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        deadline += 2
    if process.poll() is None:
        process.kill()
        process.wait()


def _kept() -> list[str]:
    """Folders of this Python that an unprivileged user must be able to read."""
    paths = {sys.prefix, sys.base_prefix, *(p for p in sys.path if p and os.path.isdir(p))}
    paths = {os.path.realpath(path) for path in paths} - {"/usr", "/usr/local"}
    return sorted(p for p in paths if not any(p.startswith(f"{o}/") for o in paths))
