"""A manager with several servers, and programs that run on the cards that it chooses."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from typing_extensions import Self

from helpers import clients
from helpers.asking import leases_of
from helpers.command import rgpu_command
from helpers.manager import ManagerProcess, node
from helpers.server import Server
from helpers.waiting import wait_until
from rgpu_common.closing import Closing
from rgpu_common.units import PPM

_SECONDS = 120
# Counts on the device, so that a wrong result shows; ends by itself.
COUNTS = r"""
from helpers.add_one import PTX
import sys
try:
    cuda.open()
    address = cuda.alloc(1 << 20)
    cuda.upload(address, bytes(1 << 20))   # it has all its connections then
    print("open", flush=True)
    add_one = cuda.function(cuda.load(PTX), "add_one")
    for step in range(ROUNDS):
        for _ in range(10):
            cuda.launch(add_one, 4, 32, address)
        cuda.synchronize()
    counted = int.from_bytes(cuda.download(address, 4), "little")
    cuda.free(address)
    print("right" if counted == ROUNDS * 1280 else f"wrong: {counted}")
except CudaError as error:
    print("ended with", error.result)
    sys.exit(3)
"""
STAYS = "cuda.open(); print(cuda.memory()[1], flush=True); wait_for_line(); print('right')"


def counts(rounds: int) -> str:
    """Returns a program that prints "open", and then "right"."""
    return f"ROUNDS = {rounds}\n{COUNTS}"


class Nodes(Closing):
    """Servers by name. rack_of: the rack of each. A server that starts again listens at its first
    socket, because a program may have been told that path already.
    """

    def __init__(
        self,
        manager: ManagerProcess,
        rack_of: dict[str, str],
        device: str,
        *arguments: str,
        **environment: str,
    ) -> None:
        self.manager = manager
        self.servers: dict[str, Server] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="rgpu-nodes-")
        self._device = device
        self._arguments = arguments
        self._environment = environment
        self._rack_of = rack_of
        for name in rack_of:
            self.start(name)
        manager.has(*rack_of)

    def start(self, name: str, *arguments: str) -> None:
        """Starts a server; it goes on with what an earlier one of this name has left."""
        folder = Path(self._folder.name)
        server = node(
            self.manager.address, name, folder / name,
            "--rack", self._rack_of[name], *self._arguments, *arguments, device=self._device,
            socket=folder / f"{name}.sock", **self._environment,
        )  # fmt: skip
        self.servers[name] = server.__enter__()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a server."""
        process = self.servers[name].process
        assert process is not None
        process.send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL; its sessions go on."""
        self.signal(name, signal.SIGKILL)
        self.servers[name].stop()

    def leases(self, name: str) -> list[dict[str, Any]]:
        """Returns what the server itself says of its leases."""
        return leases_of(self.servers[name].tcp)

    def booked(self) -> dict[str, set[str]]:
        """Returns the keys of the leases of runs, by node, as the servers have them."""
        return {
            name: {
                str(one["key"]) for one in self.leases(name) if str(one["key"]).startswith("run-")
            }
            for name in self.servers
        }

    def idle(self, seconds: float = 60) -> None:
        """Waits until no server has a run's lease, and the manager knows."""
        wait_until(lambda: not any(self.booked().values()), seconds)
        wait_until(lambda: not self.manager.leases(), seconds)

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._folder.cleanup)
            for name, server in self.servers.items():
                if server.process is not None and server.process.poll() is None:
                    self.signal(name, signal.SIGCONT)
                stack.callback(server.stop)

    def __enter__(self) -> Self:
        return self


def patient(folder: Path) -> tuple[str, str]:
    """Returns options for servers that are started again under programs that go on: the sessions
    wait for longer than a start takes on a busy machine.
    """
    config = folder / "servers.toml"
    config.write_text("[sessions]\nresume_grace_seconds = 120\n")
    return "--config", str(config)


@contextmanager
def configured(
    folder: Path, text: str, racks: dict[str, str], device: str, *arguments: str
) -> Iterator[Nodes]:
    """A manager with this configuration, and a server of one card for each name of `racks`, with
    these arguments.
    """
    config = folder / "manager.toml"
    config.write_text(text)
    with (
        ManagerProcess("--config", str(config)) as manager,
        Nodes(manager, racks, device, *arguments) as nodes,
    ):
        yield nodes


def check_books(pool: dict[str, Any]) -> None:
    """Asserts that no card is promised beyond what it has, and no request twice on one card."""
    for one in pool["nodes"]:
        for card in one["cards"]:
            assert card["used_ppm"] <= PPM, card
            assert int(card["used_bytes"]) <= int(card["memory_bytes"]), card
            held = [lease["request_id"] for lease in card["leases"]]
            assert len(held) == len(set(held)), card


@contextmanager
def started(
    manager: str, *options: str, source: str = STAYS, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Runs a program by `rgpu run`, on a card that the manager chooses."""
    process = start(manager, *options, source=source, **environment)
    with process:
        try:
            yield process
        finally:
            process.kill()


def start(
    manager: str, *options: str, source: str = STAYS, **environment: str
) -> subprocess.Popen[str]:
    """As `started`; the caller ends it. manager: "" if the options name servers."""
    named = ("--manager", manager) if manager else ()
    return subprocess.Popen(
        [rgpu_command(), "run", *named, *options, "--", *clients.command(source)],
        env={**clients.environment(None), **environment}, cwd="/", stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def where(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Returns the node and the request that `rgpu run -v` names; its program is open then."""
    assert process.stderr is not None
    assert process.stdout is not None
    said = ""
    for said in process.stderr:
        if "(request run-" in said:
            break
    words = said.split()
    assert "(request" in words, said
    assert process.stdout.readline(), process.stderr.read()
    return words[words.index("at") - 1], words[-1].rstrip(")")


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Lets a program end; returns its exit status, its lines and its errors.

    `communicate` would lose the lines that a `readline` before it has read and not returned.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with ThreadPoolExecutor(2) as readers:
        output = readers.submit(process.stdout.read)
        errors = readers.submit(process.stderr.read)
        try:
            with suppress(BrokenPipeError), process.stdin as told:
                told.write("\n")
            process.wait(_SECONDS)
            said = output.result(_SECONDS), errors.result(_SECONDS)
        except BaseException:
            process.kill()  # else the readers would wait on
            raise
    process.stdin = None  # so that it may be communicated with once more
    return process.returncode, said[0].splitlines(), said[1]


def check_end(process: subprocess.Popen[str], *expected: str) -> None:
    """Lets a program end; asserts that it has succeeded, and printed these lines."""
    status, lines, errors = ended(process)
    assert (status, lines) == (0, list(expected)), f"{status} {lines} {errors}"
