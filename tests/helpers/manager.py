"""A real `rgpu manager` and the nodes of its cluster, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import Self

from helpers.asking import events_of, passing_in, pool_of, release_all
from helpers.command import rgpu_command
from helpers.ends import killed, stopped
from helpers.leaving import standing
from helpers.ports import free_port
from helpers.server import DEADLINE_SECONDS, Server
from helpers.telling import Telling
from helpers.waiting import wait_until

_READY = re.compile(r"^rgpu: managing a cluster on (?P<where>.+)$")


class ManagerProcess(Telling):
    """`with ManagerProcess() as manager:` runs a manager; it can be killed and started again.

    scheme: "tls:" or "". host: under which name it is reached. own: variables of the manager.
    environment: of those who ask for the pool and the events.
    """

    def __init__(
        self,
        *arguments: str,
        scheme: str = "",
        host: str = "127.0.0.1",
        own: Mapping[str, str] | None = None,
        **environment: str,
    ) -> None:
        self.address = f"{scheme}{host}:{free_port()}"
        self._own = dict(own or {})
        self._environment = environment
        self.log: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._command = [rgpu_command(), "manager", "--listen", self.address, *arguments]

    def __enter__(self) -> Self:
        self.start()
        standing.begin(self.passing)
        return self

    def start(self) -> None:
        """Starts it, and returns when it serves."""
        ready = threading.Event()
        self.process = subprocess.Popen(
            self._command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env={**_plain(), **self._own},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reader.start()
        if not ready.wait(DEADLINE_SECONDS) or self.process.poll() is not None:
            raise RuntimeError("the manager did not start:\n" + self.told())

    def _read(self, ready: threading.Event) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            if _READY.match(line.rstrip("\n")):
                ready.set()
        ready.set()

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        killed(self.process)
        self._reader.join(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def restart(self) -> None:
        """Kills it and starts it again at the same address."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        standing.end(self.passing)
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        stopped(self.process)
        self._reader.join(DEADLINE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def told(self) -> str:
        return "".join(self.log[-300:])

    def pool(self) -> dict[str, Any]:
        """Returns what `rgpu pool --json` prints."""
        return pool_of(self.address, self._environment)

    def events(self) -> list[dict[str, Any]]:
        """Returns what `rgpu pool --events --json` prints."""
        return events_of(self.address, self._environment)

    def release_all(self) -> None:
        """Releases all reservations."""
        release_all(self.address, self._environment)

    def leases(self) -> list[str]:
        """Returns the ids of the requests that have cards."""
        cards = [card for node in self.pool()["nodes"] for card in node["cards"]]
        return [lease["request_id"] for card in cards for lease in card["leases"]]

    def passing(self) -> set[str]:
        """Returns a word for each thing that is soon gone if nobody uses the cluster."""
        assert self.process is not None
        return passing_in(self.pool()) if self.process.poll() is None else set()

    def has(self, *names: str) -> None:
        """Waits until these nodes are connected."""
        wait_until(lambda: set(names) <= self.connected(), DEADLINE_SECONDS)

    def connected(self) -> set[str]:
        """Returns the names of the nodes that are connected and ready."""
        nodes = self.pool()["nodes"]
        return {n["name"] for n in nodes if n["connected"] and "stale" not in n["taints"]}


def node(
    manager: str,
    name: str,
    state: Path,
    *arguments: str,
    device: str = "emulated:1GiB",
    socket: Path | None = None,
    **environment: str,
) -> Server:
    """Returns a server that joins a manager; a later one with the same state goes on with it."""
    return Server(
        "--join", manager, "--node-name", name, "--state-dir", str(state), "--no-socket",
        *arguments, device=device, socket=socket, **environment,
    )  # fmt: skip


def _plain() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("RGPU_")}
