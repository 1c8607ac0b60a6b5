"""A real `rgpu agent-node` for tests."""

from __future__ import annotations

import os
import re
import subprocess
import threading

from typing_extensions import Self

from helpers.command import rgpu_command
from helpers.ends import killed, stopped
from helpers.kube_deploy import apply
from helpers.kubernetes import ControlPlane
from helpers.server import DEADLINE_SECONDS
from helpers.telling import Telling
from helpers.waiting import wait_until

_READY = re.compile(r"^rgpu: agent of node ")


def allow(plane: ControlPlane) -> str:
    """Gives the agent the rights of deploy/kubernetes; returns its kubeconfig file."""
    apply(plane.client(), "namespace.yaml", "agent-rbac.yaml")
    return str(plane.kubeconfig_file("agent"))


class AgentNode(Telling):
    """`with AgentNode("--node-name", "gpu7", ...) as agent:` runs one."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._command = [rgpu_command(), "agent-node", *arguments]
        self._environment = environment
        self.log: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Starts it, and returns when it works."""
        ready = threading.Event()
        clean = {name: text for name, text in os.environ.items() if not name.startswith("RGPU_")}
        self.process = subprocess.Popen(
            self._command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env={**clean, **self._environment},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reader.start()
        if not ready.wait(DEADLINE_SECONDS) or self.process.poll() is not None:
            self._close(None)
            raise RuntimeError("the agent did not start:\n" + self.told())

    def _read(self, ready: threading.Event) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            if _READY.match(line):
                ready.set()
        ready.set()

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        killed(self.process)
        self._end()

    def says(self, text: str, seconds: float = 90) -> None:
        """Waits until a line of the log has the text."""
        wait_until(lambda: any(text in line for line in self.log), seconds)

    def close(self) -> None:
        self._close(0)

    def _close(self, right: int | None) -> None:
        assert self.process is not None
        try:
            stopped(self.process, right)
        finally:
            self._end()

    def told(self) -> str:
        return "".join(self.log[-300:])

    def _end(self) -> None:
        assert self.process is not None
        self._reader.join(DEADLINE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
