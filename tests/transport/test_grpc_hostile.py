"""The gateway process and clients that mean harm: others are served, and memory stays bounded."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.agent import Agent
from helpers.gateway import Gateway, receive
from helpers.waiting import wait_until

from rgpu_common.http2 import frames, headers
from rgpu_common.http2.frames import Error, Flag, Kind
from rgpu_common.tunnel.chunk import OPEN
from rgpu_server.http2 import allowance
from rgpu_server.http2.connection import MAX_STREAMS
from rgpu_server.http2.stream import STREAM_WINDOW

MIB = 1 << 20
HELLO = frames.PREFACE + frames.settings({})
FIELDS = headers.encode(
    [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", OPEN),
        ("content-type", "application/grpc"),
    ]
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


@pytest.fixture
def hostile(gateway: Gateway) -> Iterator[socket.socket]:
    """A connection to the gateway, which serves others while and after it is there."""
    host, _, port = gateway.address.removeprefix("grpc:").rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(HELLO)
        yield connection
        serves(gateway)


def serves(gateway: Gateway) -> None:
    """Somebody else's bytes go both ways."""
    word = os.urandom(8)
    with Agent(gateway.address) as agent, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(agent.unix.removeprefix("unix:"))
        client.sendall(word)
        while True:
            inner, _ = gateway.accept()
            with inner, contextlib.suppress(AssertionError):
                if receive(inner, 8) == word:
                    inner.sendall(word)
                    assert receive(client, 8) == word
                    return


def begins(stream: int) -> bytes:
    return frames.frame(Kind.HEADERS, Flag.END_HEADERS, stream, FIELDS)


def brings(payload: bytes, stream: int) -> bytes:
    return frames.frame(Kind.DATA, 0, stream, payload)


def code_of_the_end(connection: socket.socket) -> int:
    """Why the gateway gives the connection up."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            said += piece
    at = 0
    while at + frames.HEAD_BYTES <= len(said):
        head = frames.parse_head(said, at)
        at += frames.HEAD_BYTES
        if head.kind == Kind.GOAWAY:
            return frames.parse_number(said, at + 4)
        at += head.left
    raise AssertionError("it went without a word")


def test_streams_hold_their_windows_and_no_more(gateway: Gateway, hostile: socket.socket) -> None:
    before = gateway.resident_bytes()
    # Messages that are not only data, and so have to wait until they are whole.
    payload = b"\0" + MIB.to_bytes(4, "big") + b"\x7a" + bytes(STREAM_WINDOW - 6)
    count = 400
    for number in range(count):
        hostile.sendall(begins(2 * number + 1) + brings(payload, 2 * number + 1))
    wait_until(lambda: gateway.resident_bytes() - before > count * STREAM_WINDOW // 2)
    assert gateway.resident_bytes() - before < 2 * count * STREAM_WINDOW + 32 * MIB
    hostile.sendall(brings(b"x", 1))
    pieces = b""
    while frames.reset(Error.FLOW_CONTROL, 1) not in pieces:
        pieces += hostile.recv(1 << 16)
    hostile.close()
    wait_until(lambda: len(os.listdir(f"/proc/{gateway.process.pid}/fd")) < 40)


@pytest.mark.parametrize("kind", ["resets", "pings", "empty data", "continuations", "one byte"])
def test_floods_are_ended(gateway: Gateway, hostile: socket.socket, kind: str) -> None:
    many = 2 * int(allowance.MOST)
    flood = {
        "resets": b"".join(
            begins(n) + frames.reset(Error.CANCEL, n) for n in range(1, 2 * many, 2)
        ),
        "pings": frames.frame(Kind.PING, 0, 0, bytes(8)) * many,
        "empty data": begins(1) + brings(b"", 1) * many,
        "continuations": frames.frame(Kind.HEADERS, 0, 1, FIELDS)
        + frames.frame(Kind.CONTINUATION, 0, 1, b"") * many,
        "one byte": begins(1) + frames.reset(Error.CANCEL, 1) + brings(b"x", 1) * many,
    }[kind]
    with contextlib.suppress(ConnectionError):
        hostile.sendall(flood)
    assert code_of_the_end(hostile) == Error.ENHANCE_YOUR_CALM


def test_more_streams_than_agreed(gateway: Gateway, hostile: socket.socket) -> None:
    numbers = range(1, 2 * MAX_STREAMS + 2, 2)
    hostile.sendall(b"".join(begins(number) for number in numbers))
    refused = frames.reset(Error.REFUSED_STREAM, numbers[-1])
    said = b""
    while refused not in said:
        said += hostile.recv(1 << 16)
    assert said.count(refused[:5]) == 1


def test_who_is_silent_keeps_nothing(gateway: Gateway) -> None:
    host, _, port = gateway.address.removeprefix("grpc:").rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection((host, int(port)), 30))
        serves(gateway)
    wait_until(lambda: len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir())) < 40)
