"""Resumable sessions and clients that lie about them: a session that breaks the rules ends alone,
and an honest one continues where it was.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until
from transport.lanes import HELLO, RECORD, ByHand, connect, frame, refusal, resumed

from rgpu_common.wire.codec import encode_command
from rgpu_common.wire.frame import Kind, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import encode_hello
from rgpu_common.wire.messages import Control, encode_message
from rgpu_common.wire.resume import Lane

ALIVE = encode_message(Control.KEEP_ALIVE)
SECONDS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one
        code, output, errors = clients.run(one.tcp, "cuda.open()\nprint('served')")
        assert (code, output) == (0, "served\n"), errors


def session(server: Server, name: str) -> ByHand:
    return ByHand(server.tcp, HELLO._replace(lease_key=name))


@pytest.fixture
def honest(server: Server) -> Iterator[ByHand]:
    """A session that must be there afterwards, and answer."""
    one = session(server, "honest")
    yield one
    assert ping(one, one.command, 1) == 4
    bye(one)


def ping(one: ByHand, connection: socket.socket, seq: int) -> object:
    """Sends a command in a record and reads the answers up to its reply."""
    command = encode_command("rgpuPing", {"echo": 4}, seq=seq)
    connection.sendall(RECORD.pack(len(command), 0, len(command) * (seq - 1), 0) + command)
    while True:
        data = one.record(connection)[4]
        if data and parse_header(data[:40]).kind is Kind.REPLY:
            return int.from_bytes(data[40:44], "little")


def bye(one: ByHand) -> None:
    end = encode_message(Control.BYE)
    one.control.sendall(RECORD.pack(len(end), 0, 0, 0) + end)
    wait_until(lambda: is_over(one))
    one.close()


def is_over(one: ByHand) -> bool:
    with contextlib.suppress(EOFError, ConnectionError):
        connection, answer = one.resume(4_000_000_000)
        connection.close()
        return answer.header.opcode == Handshake.REFUSED and refusal(answer)[0] == 46
    return False


@pytest.mark.parametrize(
    "record",
    [
        RECORD.pack(0, 0, 0, 41),
        RECORD.pack(0, 0, 0, 1 << 63),
        RECORD.pack(0, 0, 1, 0),
        RECORD.pack(0, 0, (1 << 64) - 1, 0),
        RECORD.pack((512 << 10) + 1, 0, 0, 0),
        RECORD.pack(0, 2, 0, 0),
    ],
    ids=["never sent", "far beyond", "a gap", "near the end", "too long", "a flag"],
)
def test_a_record_that_cannot_be_ends_its_session_alone(
    server: Server, honest: ByHand, record: bytes
) -> None:
    liar = session(server, "liar")
    assert liar.record(liar.control)[0] == 40  # ATTACHED
    liar.control.sendall(record)
    wait_until(lambda: is_over(liar))
    liar.close()


def test_acknowledgements_that_go_back_change_nothing(server: Server) -> None:
    one = session(server, "backwards")
    assert one.record(one.control)[0] == 40
    for received in (40, 0, 40, 13, 40, 0):
        one.control.sendall(RECORD.pack(0, 0, 0, received))
    one.control.sendall(RECORD.pack(len(ALIVE), 0, 0, 0) + ALIVE)
    # Acknowledged bytes are not kept, so they cannot be sent again to a client that says it lacks
    # them.
    connection, answer = one.resume(1, 0, Lane.CONTROL)
    assert resumed(answer) in (0, 40)
    connection.close()
    connection, answer = one.resume(2, 40, Lane.CONTROL)
    assert answer.header.opcode == Handshake.RESUMED
    one.control.close()
    one.control = connection
    end = encode_message(Control.BYE)
    there = resumed(answer)
    connection.sendall(RECORD.pack(40, 0, 0, 40) + ALIVE if there == 0 else b"")
    connection.sendall(RECORD.pack(len(end), 0, 40, 40) + end)
    wait_until(lambda: is_over(one))
    one.close()


def test_guesses_keep_nobody_from_going_on(server: Server, honest: ByHand) -> None:
    """By hundreds, before and while the session comes back on another connection."""
    welcome, refused = honest.welcome, 0
    for guess in range(300):
        connection = connect(server.tcp)
        thief = welcome._replace(secret=guess.to_bytes(32, "little"))
        own, honest.welcome = honest.welcome, thief
        try:
            with contextlib.suppress(EOFError, ConnectionError):
                other, answer = honest.resume(guess, received=guess)
                other.close()
                assert answer.header.opcode == Handshake.REFUSED
                refused += 1
        finally:
            honest.welcome = own
            connection.close()
    assert refused, "no guess was answered"
    connection, answer = honest.resume(1)
    assert resumed(answer) == 0
    honest.command.close()
    honest.command = connection


@needs("root")  # who may look into a worker
def test_resumes_by_the_hundred_leave_one_connection(server: Server, honest: ByHand) -> None:
    """The client reads no answer. Each RESUME replaces the connection before, and others are served
    meanwhile.
    """
    greedy = session(server, "greedy")
    (worker,) = (pid for pid in server.children() if held_by(pid, greedy))
    before = descriptors(worker)
    links = []
    for epoch in range(1, 400):
        link, answer = greedy.resume(epoch)
        assert answer.header.opcode == Handshake.RESUMED
        links.append(link)
    wait_until(lambda: descriptors(worker) <= before + 4)
    for link in links:
        link.close()
    wait_until(lambda: is_over(greedy))
    greedy.close()


def test_descriptors_that_nobody_asked_for_are_dropped(server: Server) -> None:
    """With HELLO, in the middle of it, and with what follows: neither the daemon nor a worker keeps
    them.
    """
    assert server.process is not None
    path = server.unix.removeprefix("unix:")
    read, write = os.pipe()
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [write] * 100))]
    greeting = encode_hello(HELLO._replace(lease_key="descriptors"))
    with socket.socket(socket.AF_UNIX) as lane:
        lane.settimeout(SECONDS)
        lane.connect(path)
        for part in (greeting[:10], greeting[10:]):
            lane.sendmsg([part], passed)
        assert frame(lane).header.opcode == Handshake.WELCOME
        lane.sendmsg([RECORD.pack(0, 0, 0, 0)], passed)
        command = encode_command("rgpuPing", {"echo": 4}, seq=1)
        lane.sendmsg([RECORD.pack(len(command), 0, 0, 0) + command], passed)
        assert lane.recv(RECORD.size, socket.MSG_WAITALL)
        pipe = os.readlink(f"/proc/self/fd/{write}")
        os.close(write)
        for pid in (server.process.pid, *server.descendants()):
            assert pipe not in open_files(pid)
    os.set_blocking(read, False)
    wait_until(lambda: is_closed(read))
    os.close(read)


def is_closed(read: int) -> bool:
    """Whether the last writing end of a pipe is closed."""
    with contextlib.suppress(BlockingIOError):
        return os.read(read, 1) == b""
    return False


def held_by(pid: int, one: ByHand) -> bool:
    """True for the worker at the other end of the session's command lane."""
    port = one.command.getsockname()[1]
    with contextlib.suppress(OSError):
        sockets = Path("/proc/net/tcp").read_text()
        for line in sockets.splitlines()[1:]:
            words = line.split()
            if words[2].endswith(f":{port:04X}") and f"socket:[{words[9]}]" in open_files(pid):
                return True
    return False


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found
