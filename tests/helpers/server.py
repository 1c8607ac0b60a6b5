"""A real `rgpu serve` for tests: started from the installed package, stopped, and checked for
leftovers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

from helpers import clients
from helpers.agent import Agent
from helpers.asking import passing_at
from helpers.command import WEAK_ISOLATION, rgpu_command
from helpers.ends import descendants, stopped, watch
from helpers.leaving import standing
from helpers.needs import is_here, needs
from helpers.telling import Telling

READY = re.compile(r"^rgpu: serving .* on (?P<where>.+)$")
DEADLINE_SECONDS = 150
# A worker with a library of arrays starts for seconds, and on a busy machine for many.
PATIENT = "[sessions]\nopen_seconds = 60\n"
# Arguments for Server: UCX needs an access token or `--insecure`, also at 127.0.0.1.
UCX = ("--listen", "ucx:127.0.0.1:0", "--insecure")
# Servers of tests of every transport listen for ucx where the operator has installed the library.
HAS_UCX = is_here("ucx")
# Parameters of tests: the transports that `Server.address` knows. The client puts frames into a ring
# or into a stream of bytes: `shm` and `tcp` are one of each, and plain `pytest` uses these two.
_FULL = pytest.mark.full
TRANSPORTS = (
    "shm",
    "tcp",
    *(pytest.param(name, marks=_FULL) for name in ("unix", "tls", "grpc")),
    pytest.param("ucx", marks=(_FULL, needs("ucx"))),
)


class Server(Telling):
    """`with Server() as server:` serves on a free TCP port and a Unix socket.

    tcp, unix: addresses for `--server`. tls: the text of a configuration with [tls]; with it the
    server has a `tls:` address too. grpc: the address with the arguments of `helpers.agent`; ucx:
    the address with UCX. strict: the server refuses to run if a measure of isolation is missing.
    socket: the path of its Unix socket, where one that starts after another is found again; in a
    folder of its own by default.
    before: words of a command that starts the server. RGPU_TEST_DEVICE (`cuda:0`, say) takes the
    place of the emulated device, so that the same tests run on a GPU.
    """

    def __init__(
        self,
        *arguments: str,
        device: str = "emulated:2GiB",
        tls: str | None = None,
        strict: bool = False,
        before: tuple[str, ...] = (),
        socket: Path | None = None,
        **environment: str,
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="rgpu-test-")
        self.unix = f"unix:{socket or Path(self._folder) / 'rgpu.sock'}"
        self.tcp = self.tls = self.ucx = self.grpc = ""
        self.log: list[str] = []
        self._agent: Agent | None = None
        self._one_agent = threading.Lock()
        self._ready = threading.Event()
        self._command = [
            *before, rgpu_command(), "serve", "--listen", "127.0.0.1:0", "--listen", self.unix,
            "--device", os.environ.get("RGPU_TEST_DEVICE", device), *([] if strict else [WEAK_ISOLATION]), *arguments,
        ]  # fmt: skip
        if tls is not None:
            (Path(self._folder) / "rgpu.toml").write_text(tls)
            self._command += [
                "--listen",
                "tls:127.0.0.1:0",
                "--config",
                f"{self._folder}/rgpu.toml",
            ]
        self._environment = {**os.environ, **environment}
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command,
            env=self._environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        watch.log(self.log)
        if not self._ready.wait(DEADLINE_SECONDS) or not self.tcp:
            self._end(None)
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        standing.begin(self.passing)
        return self

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            found = READY.match(line.rstrip("\n"))
            if found:
                where = re.split(r"[,\s]+", found["where"])
                self.tcp = next(w for w in where if w.startswith("127.0.0.1"))
                self.tls = next((w for w in where if w.startswith("tls:")), "")
                self.ucx = next((w for w in where if w.startswith("ucx:")), "")
                self.grpc = next((w for w in where if w.startswith("grpc")), "")
                self._ready.set()
        self._ready.set()

    def close(self) -> None:
        """As `stop`."""
        self.stop()

    def told(self) -> str:
        return "".join(self.log[-200:])

    def stop(self) -> None:
        """Ends the server with SIGTERM, and after a deadline with SIGKILL."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.stop()
        self._end(0)

    def _end(self, right: int | None) -> None:
        standing.end(self.passing)
        assert self.process is not None
        try:
            stopped(self.process, right, DEADLINE_SECONDS)
        finally:
            self._clean()
        watch.read_out(self.log)

    def _clean(self) -> None:
        assert self.process is not None
        self._reader.join(DEADLINE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        findings = [line for line in self.log if "Sanitizer" in line or "runtime error:" in line]
        assert not findings, "".join(self.log)

    def address(self, transport: str) -> str:
        """Returns the address for `--server` for a transport; for grpc the socket of an agent."""
        if transport == "grpc":
            with self._one_agent:  # threads of a test may ask at once
                if self._agent is None:
                    self._agent = Agent(self.grpc).__enter__()
            return self._agent.unix
        shared = "shm:" + self.unix.removeprefix("unix:")
        known = {"unix": self.unix, "shm": shared, "tls": self.tls, "ucx": self.ucx}
        return known.get(transport, self.tcp)

    def passing(self) -> set[str]:
        """Returns a word for each thing that is soon gone if nobody uses the server."""
        assert self.process is not None
        return passing_at(self.unix) if self.process.poll() is None else set()

    def sessions(self) -> str:
        """Returns the output of `rgpu ps`."""
        return subprocess.run(
            [rgpu_command(), "ps", "--server", self.tcp],
            cwd="/", check=True, capture_output=True, text=True, timeout=60,
        ).stdout  # fmt: skip

    def children(self, name: str = "rgpu-worker") -> list[int]:
        """Returns the process ids of the daemon's descendants whose executable is called `name`."""
        found: list[int] = []
        for child in self.descendants():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text().strip() == name[:15]:
                    found.append(child)
        return found

    def gateways(self) -> list[int]:
        """Returns the process ids of the daemon's gateways."""
        return self.children("rgpu-gateway")

    def descendants(self) -> list[int]:
        """Returns the process ids of all of the daemon's descendants."""
        assert self.process is not None
        return descendants(self.process.pid)

    def called(self, words: str) -> list[int]:
        """Returns the process ids of the daemon's descendants whose command line has these words."""
        found: list[int] = []
        for child in self.descendants():
            with contextlib.suppress(OSError):  # it has ended
                line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [child] if words in line else []
        return found


@contextlib.contextmanager
def patient_server(*arguments: str, **options: Any) -> Iterator[Server]:
    """A server that waits long for its workers to start."""
    with tempfile.TemporaryDirectory(prefix="rgpu-test-") as folder:
        file = Path(folder) / "rgpu.toml"
        file.write_text(PATIENT)
        with Server("--config", str(file), *arguments, **options) as server:
            yield server


def configured(folder: Path, **sessions: object) -> str:
    """Writes a configuration file with these keys of `[sessions]`; returns its path."""
    path = folder / "rgpu.toml"
    rows = "".join(f"{key} = {value}\n" for key, value in sessions.items())
    path.write_text("[sessions]\n" + rows + "[leases]\ngrace_seconds = 0\n")
    return str(path)


def run_client(
    server: str,
    *command: str,
    options: tuple[str, ...] = (),
    timeout: float = 120,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs `rgpu run --server SERVER OPTIONS -- COMMAND` over exactly this path; captures its
    output.
    """
    exact = f"tcp:{server}" if server[0].isdigit() else server
    trusted = clients.trust() if server.startswith("tls:") else {}
    return subprocess.run(
        [rgpu_command(), "run", "--server", exact, *options, "--", *command],
        env={**os.environ, **clients.preload(), **trusted, **environment},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
