"""A real `rgpu serve` for tests: started from what is installed, stopped and checked for
leftovers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

READY = re.compile(r"^rgpu: serving .* on (?P<where>.+)$")
DEADLINE_SECONDS = 60


def rgpu_command() -> str:
    """The `rgpu` beside the running Python."""
    return str(Path(sys.executable).parent / "rgpu")


class Server:
    """`with Server() as server:` serves on a free TCP port and a Unix socket.

    tcp, unix: what to give to `--server`.
    """

    def __init__(self, *arguments: str, device: str = "emulated:2GiB", **environment: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="rgpu-test-")
        self.unix = f"unix:{self._folder}/rgpu.sock"
        self.tcp = ""
        self.log: list[str] = []
        self._ready = threading.Event()
        self._command = [
            rgpu_command(), "serve", "--listen", "127.0.0.1:0", "--listen", self.unix,
            "--device", device, *arguments,
        ]  # fmt: skip
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
        if not self._ready.wait(DEADLINE_SECONDS) or not self.tcp:
            self.stop()
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        return self

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            found = READY.match(line.rstrip("\n"))
            if found:
                self.tcp = next(w for w in re.split(r"[,\s]+", found["where"]) if "127.0.0.1" in w)
                self._ready.set()
        self._ready.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if error is not None:
            sys.stderr.write("--- server log\n" + "".join(self.log[-200:]))

    def stop(self) -> None:
        """SIGTERM, then a deadline, then SIGKILL."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self._reader.join(DEADLINE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def address(self, transport: str) -> str:
        """What to give to `--server` for a transport kind."""
        return self.unix if transport == "unix" else self.tcp

    def children(self, name: str = "rgpu-worker") -> list[int]:
        """Process ids of the daemon's descendants whose executable is called `name`."""
        assert self.process is not None
        found: list[int] = []
        pending = [self.process.pid]
        while pending:
            for child in _children(pending.pop()):
                pending.append(child)
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_text().strip() == name[:15]:
                        found.append(child)
        return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += [int(c) for c in (task / "children").read_text().split()]
    return children


def run_client(
    server: str,
    *command: str,
    options: tuple[str, ...] = (),
    timeout: float = 120,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """`rgpu run --server SERVER OPTIONS -- COMMAND`, with its output."""
    return subprocess.run(
        [rgpu_command(), "run", "--server", server, *options, "--", *command],
        env={**os.environ, **environment},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
