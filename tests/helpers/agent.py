"""Agents of `grpc:` for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

from typing_extensions import Self

from helpers.command import rgpu_command
from helpers.ends import stopped
from helpers.telling import Telling

# Arguments for `Server` so that it has an address for tunnels.
GRPC = ("--listen", "grpc:127.0.0.1:0", "--insecure")
DEADLINE_SECONDS = 60


class Agent(Telling):
    """`with Agent("grpc:127.0.0.1:7700") as agent:` runs `rgpu agent`; `agent.unix` is its
    socket.
    """

    def __init__(self, server: str, **environment: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="rgpu-test-")
        self._environment = {**os.environ, **environment}
        self.unix = f"unix:{self._folder}/agent"
        self._command = [rgpu_command(), "agent", "--server", server, "--listen", self.unix]
        self.process: subprocess.Popen[str] | None = None
        self.errors = ""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command,
            env=self._environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith("rgpu: set RGPU_SERVER="):
            raise RuntimeError(f"the agent did not start: {self.process.communicate()[1]}")
        return self

    def close(self) -> None:
        """As `stop`."""
        self.stop()

    def told(self) -> str:
        return self.errors

    def stop(self) -> None:
        """Ends the agent with SIGTERM; `errors` then has its output on stderr."""
        assert self.process is not None
        self.process.terminate()
        _, self.errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        stopped(self.process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def address(self, transport: str) -> str:
        """Returns the server address for programs, which is the same for every transport."""
        return self.unix
