"""Sessions that asked for shared memory: which get it, and what the server shows of them."""

from __future__ import annotations

import contextlib
import json
import socket
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import run_rgpu
from helpers.server import Server
from helpers.waiting import wait_until
from observe import page
from worker.client import hello

from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import HEADER_BYTES, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import encode_hello
from rgpu_common.wire.shm import Shm, put_shm
from rgpu_common.wire.welcome import decode_welcome, encode_welcome
from transport.shm_programs import COPIES, CTYPES, MAPPINGS, run


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--metrics", "127.0.0.1:0") as running:
        yield running


class Between:
    """A Unix proxy: bytes go through, descriptors do not, and WELCOME may be changed."""

    def __init__(self, folder: Path, server: str, grants: tuple[Wish, ...] | None) -> None:
        self.path = str(folder / "between.sock")
        self._server = server.removeprefix("unix:")
        self._grants = grants
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._open = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                self._open += [client, upstream]
                upstream.connect(self._server)
                both = (
                    threading.Thread(target=self._pass, args=(client, upstream)),
                    threading.Thread(target=self._answer, args=(upstream, client)),
                )
                self._threads += both
                for thread in both:
                    thread.start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            header = parse_header(exactly(upstream, HEADER_BYTES))
            head = exactly(upstream, header.payload_bytes)
            frame = encode_frame(header.kind, header.opcode, head, status=header.status)
            welcome = header.kind is Kind.HANDSHAKE and header.opcode == Handshake.WELCOME
            if welcome and self._grants is not None:
                frame = encode_welcome(decode_welcome(head)._replace(grants=self._grants))
                declined = put_shm(Shm(0, "a test"))
                upstream.sendall(encode_frame(Kind.HANDSHAKE, Handshake.SHM, declined))
            client.sendall(frame)
        self._pass(upstream, client)

    def close(self) -> None:
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for sock in self._open:
            sock.close()


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        got = sock.recv(count - len(data))
        if not got:
            raise OSError("the end")
        data += got
    return data


@pytest.mark.parametrize(
    ("grants", "reason"),
    [
        (None, "did not arrive"),
        ((), "the server's release is older than shm:"),
        ((Wish(WishKey.SHM, 1 << 8),), "the server cannot make any (Operation not permitted)"),
    ],
)
def test_falls_back_to_the_socket_and_says_why_once(
    server: Server, tmp_path: Path, grants: tuple[Wish, ...] | None, reason: str
) -> None:
    before = fallbacks(server, "declined")
    between = Between(tmp_path, server.unix, grants)
    try:
        output, errors = run(f"shm:{between.path}", COPIES + MAPPINGS, RGPU_MEMORY="512MiB")
    finally:
        between.close()
    assert output.split() == ["ok", "False", "False"]
    (line,) = errors.splitlines()
    assert line.startswith("rgpu: no shared memory with the server: ")
    assert reason in line
    assert "uses the Unix socket instead" in line
    # The worker tells the server by a message of its own.
    wait_until(lambda: fallbacks(server, "declined") == before + 1)


def fallbacks(server: Server, reason: str) -> float:
    return page.value(page.text(server), "rgpu_shm_fallbacks_total", reason=reason)


def test_sessions_with_a_ring_are_counted(server: Server) -> None:
    def counted() -> tuple[float, float]:
        names = ("rgpu_sessions_opened_total", "rgpu_shm_sessions_total")
        opened, sharing = (page.value(page.text(server), name) for name in names)
        return opened, sharing

    opened, sharing = counted()
    run(server.address("shm"), MAPPINGS)
    run(server.address("unix"), MAPPINGS)
    wait_until(lambda: counted()[0] == opened + 2)
    assert counted()[1] == sharing + 1


def test_a_wish_that_comes_over_a_network_is_counted(server: Server) -> None:
    before = fallbacks(server, "not_local")
    host, _, port = server.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as client:
        client.sendall(encode_hello(hello(minor=2, wishes=(Wish(WishKey.SHM, 1),))))
        header = parse_header(exactly(client, HEADER_BYTES))
        assert header.opcode == Handshake.WELCOME
        assert decode_welcome(exactly(client, header.payload_bytes)).grants == ()
        wait_until(lambda: fallbacks(server, "not_local") == before + 1)


@pytest.mark.parametrize("transport", ["shm", "unix"])
def test_ps_says_over_what_a_session_goes(server: Server, transport: str) -> None:
    holder = clients.start(server.address(transport), "cuda.open(); print(flush=True); input()")
    try:
        clients_line = holder.stdout.readline() if holder.stdout is not None else ""
        assert clients_line == "\n"
        sessions = json.loads(run_rgpu("ps", "--json", "--server", server.tcp).stdout)["sessions"]
        assert [s["transport"] for s in sessions if s["client_pid"] == holder.pid] == [transport]
    finally:
        holder.communicate("\n", timeout=60)


def test_copies_are_counted_whichever_way_they_go(server: Server) -> None:
    source = """
    cuda.open()
    size = 16 << 20
    address = cuda.alloc(size)
    cuda.upload(address, bytes(size))
    cuda.download(address, size)
    print("copied", flush=True)
    wait_for_line()
    """
    client = clients.start(
        server.address("shm"), CTYPES + textwrap.dedent(source), RGPU_TENANT="counted"
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "copied\n"
        # The worker counts a direct copy when it hears that the client has done it.
        wait_until(
            lambda: str(32 << 20) in run_rgpu("ps", "--server", server.unix, "--json").stdout
        )
    finally:
        client.communicate()
