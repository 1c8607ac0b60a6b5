"""The server that benchmarks talk to: the tests' helper, with what only benchmarks ask."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from helpers import links as links
from helpers import probing as probing
from helpers.agent import GRPC as GRPC
from helpers.agent import Agent as Agent
from helpers.clients import environment
from helpers.command import rgpu_command as rgpu_command
from helpers.manager import ManagerProcess as ManagerProcess
from helpers.manager import node as node
from helpers.server import Server as TestServer


class Server(TestServer):
    """A running `rgpu serve` with an emulated device."""

    def session_workers(self) -> list[int]:
        """Process ids of the workers that serve a session (warm ones hold no arena)."""
        return [pid for pid in self.children() if self.proportional_bytes(pid) > 0]

    @staticmethod
    def proportional_bytes(pid: int) -> int:
        """Proportional set size of a process, bytes."""
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return 0


def client_environment(server: Server, kind: str) -> dict[str, str]:
    """The environment of a client of `server` over `kind`."""
    return environment(server.address(kind))
