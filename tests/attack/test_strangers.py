"""Strangers without an access token: the traffic, the leftovers and the claims that they can cause
are bounded.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command import run_rgpu
from helpers.http2 import HELLO, Flag, Raw, message, request
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.wire.frame import HEADER_BYTES, MAGIC, encode_frame, parse_header
from rgpu_common.wire.frame import Kind as WireKind
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.refused import decode_refused

MIB = 1 << 20
# As small as the server lets an operator set it, so that the test moves little.
RATE = 16 * MIB
# The bytes that one peer may move after a pause.
BURST = 4 * RATE
TRAIN_BYTES = 32 * MIB
PROBE = encode_frame(WireKind.HANDSHAKE, Handshake.PROBE, struct.pack("<IHH", MAGIC, 1, 0))
DOWN = encode_frame(
    WireKind.HANDSHAKE, Handshake.PROBE, struct.pack("<IIQII", 3, 64 << 10, TRAIN_BYTES, 0, 7)
)


def config(folder: Path, text: str) -> str:
    path = folder / "rgpu.toml"
    path.write_text(text)
    return str(path)


# probes


def receive(peer: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (piece := peer.recv(count - len(data))):
        data += piece
    return bytes(data)


def broken_off(server: Server) -> int:
    """Asks for 32 MiB, takes 1 MiB and leaves; returns the bytes that came, 0 after a refusal."""
    host, _, port = server.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as peer:
        peer.sendall(PROBE + DOWN)
        header = parse_header(receive(peer, HEADER_BYTES))
        head = receive(peer, header.payload_bytes)
        if header.opcode == Handshake.REFUSED:
            assert "too often" in decode_refused(head).sentence
            return 0
        header = parse_header(receive(peer, HEADER_BYTES))
        if header.opcode == Handshake.REFUSED:
            return 0
        return len(receive(peer, MIB))


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Server]:
    """A server that lets probes move little."""
    with Server("--config", config(tmp_path, f"[probe]\nbytes_per_second = {RATE}\n")) as running:
        yield running


def test_a_down_train_that_is_broken_off_is_charged(slow: Server) -> None:
    started = time.monotonic()
    taken = 0
    while piece := broken_off(slow):
        taken += piece
        assert taken <= BURST + RATE / 4 * (time.monotonic() - started)
    assert taken


def test_an_operator_can_switch_probes_off(tmp_path: Path) -> None:
    with Server("--config", config(tmp_path, "[probe]\nanswer = false\n")) as server:
        result = run_rgpu("probe", server.tcp)
        assert result.returncode != 0
        assert "probe.answer = false" in result.stderr
        # A program goes to the address that was named.
        code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        result = run_rgpu("run", "--server", server.tcp, "--", "python", "-c", code)
        assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr


# the gateway of grpc:


def refused_call(server: Server, source: str) -> None:
    """A call of the API without an access token, from an address that the server has not seen."""
    call = request("/rgpu.v1.DeviceService/ListDevices")
    with Raw(
        server.grpc.removeprefix("grpc:"), HELLO, call, message(b"", 1, Flag.END_STREAM),
        source=source,
    ) as peer:  # fmt: skip
        for _, flags, stream, _ in peer.frames():
            if stream == 1 and flags & Flag.END_STREAM:
                return
    raise AssertionError("the call was not answered")


def client_sockets(state: Path) -> list[Path]:
    """The sockets by which the gateway brings clients to the API; their names are numbers."""
    return [path for path in state.rglob("*") if path.name.isdecimal() and path.is_socket()]


def test_refused_calls_leave_no_files_behind(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    tokens_file = tmp_path / "tokens.toml"
    assert run_rgpu("token", "new", "alice", "--tokens", str(tokens_file)).returncode == 0
    options = (
        "--listen",
        "grpc:127.0.0.1:0",
        "--tokens",
        str(tokens_file),
        "--state-dir",
        str(state),
    )
    with Server(*options) as server:
        for n in range(300):
            refused_call(server, f"127.0.{3 + n // 250}.{n % 250 + 1}")
        wait_until(lambda: not client_sockets(state))


# loopback


def test_an_unknown_user_over_loopback_is_nobody(tmp_path: Path) -> None:
    """The server has a user of its machine configured. A loopback connection does not say which
    user it belongs to. `tcp:` is that connection alone: without it root goes on to the socket.
    """
    text = f'[identity]\nusers = {{{os.geteuid() + 4711} = "alice"}}\n'
    text += "[leases]\nttl_seconds = 600\n"  # nobody uses the lease
    with Server("--config", config(tmp_path, text)) as server:
        granted = run_rgpu("lease", "grant", "job", "--tenant", "alice", "--server", server.unix)
        assert granted.returncode == 0, granted.stderr
        for command in (("ps",), ("lease", "revoke", "job"), ("drain",)):
            result = run_rgpu(*command, "--server", f"tcp:{server.tcp}")
            assert result.returncode != 0, command
            assert "identity.users" in result.stderr
        code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        result = run_rgpu("run", "--server", f"tcp:{server.tcp}", "--", "python", "-c", code)
        assert "identity.users" in result.stderr
        listed = run_rgpu("ps", "--server", server.unix)
        assert "job" in listed.stdout, listed.stderr


# the metrics port


def test_the_metrics_port_holds_so_many_connections(tmp_path: Path) -> None:
    with Server("--metrics", "127.0.0.1:0") as server:
        port = next(
            int(line.rpartition(":")[2].partition("/")[0])
            for line in server.log
            if "metrics on http://" in line
        )
        assert server.process is not None
        descriptors = Path(f"/proc/{server.process.pid}/fd")
        before = len(list(descriptors.iterdir()))
        with contextlib.ExitStack() as stack:
            for n in range(200):
                source = (f"127.0.5.{n % 4 + 1}", 0)
                where = ("127.0.0.1", port)
                silent = socket.create_connection(where, 20, source_address=source)
                stack.enter_context(silent)
            assert get(port, "GET", "/health")[1] == b"ok\n"
            wait_until(lambda: len(list(descriptors.iterdir())) < before + 80)


def get(port: int, method: str, path: str) -> tuple[bytes, bytes]:
    """Head and body of an answer."""
    with socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while piece := peer.recv(1 << 16):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def test_the_metrics_port_answers_head(tmp_path: Path) -> None:
    with Server("--metrics", "127.0.0.1:0") as server:
        line = next(line for line in server.log if "metrics on http://" in line)
        port = int(line.rpartition(":")[2].partition("/")[0])
        head, body = get(port, "HEAD", "/health")
        assert head == get(port, "GET", "/health")[0]
        assert head.startswith(b"HTTP/1.1 200")
        assert body == b""
        head, _ = get(port, "PUT", "/health")
        assert head.startswith(b"HTTP/1.1 405")
        assert b"Allow: GET, HEAD" in head
