"""The server that benchmarks talk to: the tests' helper, with what only benchmarks ask."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
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


@contextlib.contextmanager
def serving(command: Sequence[str]) -> Iterator[None]:
    """Runs a command that starts `rgpu serve`, from when it serves to the end of the block.

    Raises:
        RuntimeError: the server did not start.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        if not server.stdout.readline():
            raise RuntimeError(f"the server did not start: {' '.join(command)}")
        try:
            yield
        finally:
            server.terminate()


def client_environment(server: Server, kind: str) -> dict[str, str]:
    """The environment of a client of `server` over `kind`."""
    return environment(server.address(kind))
