"""`rgpu serve` as a process, with real workers: how it starts, and how it and its sessions end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from helpers.command import WEAK_ISOLATION
from helpers.needs import needs

from rgpu_common.endpoints import TcpEndpoint, UnixEndpoint, parse_endpoint
from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.fields import Band
from rgpu_common.wire.frame import HEADER_BYTES, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import Welcome, decode_welcome

RGPU = str(Path(sys.executable).parent / "rgpu")
DEADLINE_SECONDS = 60
BANDS = (Band(0x200000000000, 1 << 36), Band(0x280000000000, 1 << 36))
PINNED = (Band(0x300000000000, 1 << 34), Band(0x380000000000, 1 << 34))
BYE = 1


class Daemon:
    """`rgpu serve` with an emulated device of 1 GiB, on TCP and a Unix socket. within: a command that
    starts it.
    """

    def __init__(self, folder: Path, *arguments: str, within: Sequence[str] = ()) -> None:
        listen = ("--listen", "127.0.0.1:0", "--listen", f"unix:{folder}/s")
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    *within,
                    RGPU,
                    "serve",
                    *listen,
                    "--device",
                    "emulated:1GiB",
                    WEAK_ISOLATION,
                    *arguments,
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("rgpu: serving emulated device (1 GiB) on "), (
            folder / "log"
        ).read_text()
        self.endpoints = [parse_endpoint(e) for e in line.rpartition(" on ")[2].strip().split(", ")]

    def stop(self, number: int) -> int:
        """Sends a signal and returns the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def children(self) -> dict[int, str]:
        """Process id -> name of every child."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        names = {}
        for pid in listed.split():
            with contextlib.suppress(FileNotFoundError):  # it has ended since it was listed
                names[int(pid)] = Path(f"/proc/{pid}/comm").read_text().strip()
        return names


class Client:
    """A client that speaks the handshake by hand."""

    def __init__(self, endpoint: TcpEndpoint | UnixEndpoint, **fields: object) -> None:
        self.endpoint = endpoint
        self.command = self.connect()
        hello = Hello(program="test", device_bands=BANDS, pinned_bands=PINNED, **fields)  # type: ignore[arg-type]
        self.command.sendall(encode_hello(hello))

    def connect(self) -> socket.socket:
        if isinstance(self.endpoint, UnixEndpoint):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(DEADLINE_SECONDS)
            made.connect(self.endpoint.path)
            return made
        return socket.create_connection((self.endpoint.host, self.endpoint.port), DEADLINE_SECONDS)

    def welcome(self) -> Welcome:
        opcode, _, head = frame(self.command)
        assert opcode == Handshake.WELCOME, decode_refused(head)
        return decode_welcome(head)

    def attach(self, welcome: Welcome) -> socket.socket:
        lane = self.connect()
        lane.sendall(encode_attach(Attach(welcome.session, welcome.secret)))
        assert frame(lane)[0] == Handshake.ATTACHED
        return lane

    def last_words(self) -> bytes:
        """Returns what the worker says until it closes."""
        words = b""
        while piece := self.command.recv(65536):
            words += piece
        return words

    def closed(self) -> bool:
        """True when the worker has closed, whatever it said before; TimeoutError if it does not."""
        try:
            while self.command.recv(65536):
                pass
        except ConnectionResetError:
            return True
        return True


def frame(connection: socket.socket) -> tuple[int, int, bytes]:
    """Opcode, status and head of the next handshake frame."""
    header = parse_header(exactly(connection, HEADER_BYTES))
    assert header.kind is Kind.HANDSHAKE
    return header.opcode, header.status, exactly(connection, header.payload_bytes)


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, f"closed after {len(data)} of {count} bytes"
        data += piece
    return data


def wait_for_end(pid: int) -> None:
    """Waits until a process that need not be a child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0], f"{pid} goes on"
    finally:
        os.close(descriptor)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    running = Daemon(tmp_path)
    yield running
    if running.process.poll() is None:
        assert running.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("transport", [0, 1], ids=["tcp", "unix"])
def test_a_session_opens_and_its_worker_ends_with_it(daemon: Daemon, transport: int) -> None:
    client = Client(daemon.endpoints[transport], memory_bytes=100 << 20)
    welcome = client.welcome()
    assert welcome.memory_limit_bytes == 100 << 20
    assert welcome.devices[0].name == "rgpu emulated device"
    assert welcome.band in BANDS
    lane = client.attach(welcome)
    workers = [pid for pid, name in daemon.children().items() if name == "rgpu-worker"]
    lane.sendall(encode_frame(Kind.CONTROL, BYE))
    assert client.closed()
    lane.close()
    client.command.close()
    after = [pid for pid, name in daemon.children().items() if name == "rgpu-worker"]
    gone = set(workers) - set(after)
    for pid in gone:
        wait_for_end(pid)


def test_sigterm_leaves_running_sessions_alone(daemon: Daemon) -> None:
    client = Client(daemon.endpoints[0])
    welcome = client.welcome()
    lane = client.attach(welcome)
    children = daemon.children()
    assert daemon.stop(signal.SIGTERM) == 0
    client.command.setblocking(False)
    with pytest.raises(BlockingIOError):  # open, and nothing to read
        client.command.recv(1)
    lane.close()
    client.command.close()
    for pid in children:
        wait_for_end(pid)


@needs("namespaces")
def test_sigterm_ends_sessions_that_nothing_outlives(tmp_path: Path) -> None:
    """Its container ends with a server that is its first process, and with it all workers."""
    container = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    daemon = Daemon(tmp_path, within=container)
    client = Client(daemon.endpoints[0])
    client.welcome()
    (server,) = daemon.children()
    os.kill(server, signal.SIGTERM)
    assert daemon.process.wait(DEADLINE_SECONDS) == 0
    assert b"the server was stopped by its operator" in client.last_words()
    client.command.close()
    assert daemon.process.stdout is not None
    daemon.process.stdout.close()


def test_a_terminal_that_goes_is_as_sigterm(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    client = Client(daemon.endpoints[0])
    client.welcome()
    assert daemon.stop(signal.SIGHUP) == 0
    assert not (tmp_path / "s").exists()
    client.command.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.command.recv(1)
    client.command.close()


def test_sigint_ends_sessions_with_a_sentence(daemon: Daemon) -> None:
    client = Client(daemon.endpoints[0])
    client.welcome()
    children = daemon.children()
    assert daemon.stop(signal.SIGINT) == 0
    assert client.closed()
    client.command.close()
    for pid in children:
        wait_for_end(pid)


def test_a_daemon_that_is_killed_takes_nobody_with_it_and_leaves_nothing(daemon: Daemon) -> None:
    client = Client(daemon.endpoints[0])
    client.welcome()
    children = daemon.children()
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
    client.command.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.command.recv(1)
    client.command.close()
    for pid in children:
        wait_for_end(pid)


def test_a_worker_that_is_killed_ends_its_session_only(daemon: Daemon) -> None:
    first = Client(daemon.endpoints[0])
    first.welcome()  # the session 1
    second = Client(daemon.endpoints[0])
    second.welcome()
    listed = subprocess.run(
        [RGPU, "ps", "--json", "--server", str(daemon.endpoints[0])],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    sessions = json.loads(listed)["sessions"]
    victim = next(s for s in sessions if s["session_id"] == 1)
    os.kill(int(victim["worker_pid"]), signal.SIGKILL)
    assert first.closed()
    second.command.setblocking(False)
    with pytest.raises(BlockingIOError):
        second.command.recv(1)
    first.command.close()
    second.command.close()


def test_a_socket_that_a_dead_server_left_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(f"{tmp_path}/s")
    left.close()
    daemon = Daemon(tmp_path)
    assert daemon.stop(signal.SIGINT) == 0
    assert not (tmp_path / "s").exists()


def test_a_socket_of_a_living_server_is_not_taken(daemon: Daemon) -> None:
    unix = daemon.endpoints[1]
    done = subprocess.run(
        [RGPU, "serve", "--listen", str(unix), "--device", "emulated:1GiB"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"rgpu: cannot listen on {unix}: Address already in use" in done.stderr
