"""OBSERVE as a hostile client sends it: it gets a refusal or facts of its own, and makes nothing."""

from __future__ import annotations

import socket

import pytest
from helpers.server import Server

from rgpu_common.wire.frame import HEADER_BYTES, WIRE_MAJOR, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.observe import Observe, Observed, decode_observed, encode_observe, put_observe
from rgpu_common.wire.refused import Refused, decode_refused
from rgpu_common.wire.status import (
    CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUDA_ERROR_UNKNOWN,
)


def answer(server: Server, frame: bytes) -> tuple[int, Observed | Refused]:
    """Sends a frame; returns the status and the answer. The server then closes."""
    host, _, port = server.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(frame)
        data = b""
        while piece := connection.recv(65536):
            data += piece
    header = parse_header(data[:HEADER_BYTES])
    head = data[HEADER_BYTES:]
    assert (header.kind, len(head)) == (Kind.HANDSHAKE, header.payload_bytes)
    if header.opcode == Handshake.OBSERVED:
        return header.status, decode_observed(head)
    assert header.opcode == Handshake.REFUSED
    return header.status, decode_refused(head)


def framed(head: bytes) -> bytes:
    return encode_frame(Kind.HANDSHAKE, Handshake.OBSERVE, head)


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        pytest.param(framed(b""), CUDA_ERROR_UNKNOWN, id="empty"),
        pytest.param(framed(put_observe(Observe())[:-1]), CUDA_ERROR_UNKNOWN, id="short"),
        pytest.param(framed(put_observe(Observe()) + b"x"), CUDA_ERROR_UNKNOWN, id="long"),
        pytest.param(
            encode_observe(Observe(lease_key="a\nb")), CUDA_ERROR_UNKNOWN, id="control-character"
        ),
        pytest.param(
            encode_observe(Observe(major=WIRE_MAJOR + 1)), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, id="major"
        ),
        pytest.param(
            encode_observe(Observe(device=99)), CUDA_ERROR_DEVICE_UNAVAILABLE, id="no-such-device"
        ),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(server: Server, frame: bytes, status: int) -> None:
    found, refused = answer(server, frame)
    assert found == status
    assert isinstance(refused, Refused)
    assert refused.sentence


def test_a_question_makes_no_lease(server: Server) -> None:
    huge = {"memory_bytes": (1 << 64) - 1}, {"memory_ppm": (1 << 32) - 1}
    for sizes in huge:
        _, seen = answer(server, encode_observe(Observe(lease_key="nobody", **sizes)))
        assert isinstance(seen, Observed)
        # What a lease would have is at most what the device has.
        assert (seen.lease_id, seen.memory_limit_bytes, seen.processes) == ("", 2 << 30, ())
    assert "no leases" in server.sessions()


def test_a_client_that_says_nothing_more_costs_nobody_else(server: Server) -> None:
    """Connections with half a question wait for their deadline; others are answered meanwhile."""
    host, _, port = server.tcp.rpartition(":")
    half = encode_observe(Observe())[:-4]
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(20)]
    try:
        for connection in silent:
            connection.sendall(half)
        assert answer(server, encode_observe(Observe()))[0] == 0
    finally:
        for connection in silent:
            connection.close()
