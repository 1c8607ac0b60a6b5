"""Clients that attack, break the rules or send nothing, at the gateway of `grpc:`."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest
from helpers.gateway import Gateway, receive
from helpers.http2 import (
    HELLO,
    MAX_WINDOW,
    PREFACE,
    STREAM_WINDOW,
    Error,
    Fields,
    Flag,
    Kind,
    Raw,
    Setting,
    block,
    data,
    fields_of,
    frame,
    message,
    ping,
    request,
    reset,
    settings,
    window_update,
)
from helpers.waiting import wait_until

from rgpu_common.tunnel.chunk import OPEN, encode

END_HEADERS, END_STREAM = Flag.END_HEADERS, Flag.END_STREAM
BEGINNING: Fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running
        tunnels(running)


def tunnels(gateway: Gateway) -> None:
    """The gateway still carries somebody's bytes."""
    with Raw(gateway.target, HELLO, request(OPEN), message(encode(b"hello"))):
        inner, _ = gateway.accept()
        with inner:
            assert receive(inner, 5) == b"hello"


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(40), PREFACE[:-2] + b"XX"]
)
def test_another_protocol(gateway: Gateway, words: bytes) -> None:
    before = gateway.refused("handshake")
    with Raw(gateway.target, words) as raw:
        assert raw.ends() == Error.PROTOCOL
    wait_until(lambda: gateway.refused("handshake") == before + 1)


def test_who_says_nothing_goes() -> None:
    with Gateway("--handshake-ms", "100") as gateway:
        with Raw(gateway.target) as silent, Raw(gateway.target, HELLO[:20]) as slow:
            silent.ends()
            slow.ends()
        wait_until(lambda: gateway.refused("late") == 2)


def test_who_has_no_calls_goes() -> None:
    with (
        Gateway("--idle-ms", "100") as gateway,
        Raw(gateway.target, HELLO, request(OPEN)) as busy,
        Raw(gateway.target, HELLO) as idle,
    ):
        assert idle.ends() == Error.NO_ERROR
        busy.answers()


def test_who_is_silent_is_asked() -> None:
    with (
        Gateway("--ping-ms", "2000") as gateway,  # `alive` has as long for its answer
        Raw(gateway.target, HELLO, request(OPEN), message(encode(b"x"))) as dead,
    ):
        inner, _ = gateway.accept()
        with inner, Raw(gateway.target, HELLO, request(OPEN)) as alive:
            for _ in range(3):
                alive.say(frame(Kind.PING, Flag.ACK, 0, alive.hears(Kind.PING)))
            dead.ends()
            assert receive(inner, 1) == b"x"
            assert inner.recv(1) == b""


def test_answers_that_nobody_reads(gateway: Gateway) -> None:
    wide = settings({Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW})
    with Raw(gateway.target, PREFACE, wide, window_update(0, 1 << 30)) as deaf:
        # Its windows are wide open, and its socket is full.
        streams = range(1, 40, 2)
        deaf.say(*(request(OPEN, n) + message(encode(b"x"), n) for n in streams))
        with contextlib.ExitStack() as stack:
            inner = [stack.enter_context(gateway.accept()[0]) for _ in streams]
            for one in inner:
                one.setblocking(False)
            for _ in range(100):
                for one in inner:
                    # A gateway that has given the deaf one up takes nothing more for it.
                    with contextlib.suppress(BlockingIOError, BrokenPipeError):
                        one.send(bytes(1 << 20))
            assert gateway.resident_bytes() < 200 << 20
            tunnels(gateway)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ([(":method", "GET"), *BEGINNING[1:]], "405"),
        (BEGINNING, "415"),
        ([*BEGINNING, ("content-type", "a/b")], "415"),
        ([*BEGINNING, ("content-type", "application/grpc-web")], "415"),
        ([BEGINNING[0], *BEGINNING[2:]], ""),
        ([*BEGINNING, (":status", "200")], ""),
        ([("x", "y"), *BEGINNING], ""),
        ([*BEGINNING, ("Upper", "x")], ""),
        ([*BEGINNING, ("connection", "x")], ""),
        ([*BEGINNING, ("upgrade", "x")], ""),
        ([*BEGINNING, BEGINNING[2]], ""),
    ],
)
def test_what_is_no_grpc(gateway: Gateway, fields: Fields, answer: str) -> None:
    """The request is answered in HTTP, or its stream is reset."""
    with Raw(gateway.target, HELLO) as raw:
        raw.say(frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, block(fields)))
        if answer:
            assert fields_of(raw.hears(Kind.HEADERS))[0] == (":status", answer)
        else:
            assert raw.hears_number(Kind.RST_STREAM, 1) == Error.PROTOCOL
        raw.answers()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (data(b"x"), Error.PROTOCOL),
        (data(b"x", 0), Error.PROTOCOL),
        (request(OPEN, 0), Error.PROTOCOL),
        (request(OPEN, 2), Error.PROTOCOL),
        (request(OPEN, 1, 0) + data(b"x"), Error.PROTOCOL),
        (
            request(OPEN, 1, 0) + frame(Kind.CONTINUATION, END_HEADERS, 3, b""),
            Error.PROTOCOL,
        ),
        (frame(Kind.CONTINUATION, END_HEADERS, 1, b""), Error.PROTOCOL),
        (frame(Kind.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), Error.PROTOCOL),
        (frame(Kind.PING, 0, 0, bytes(7)), Error.FRAME_SIZE),
        (frame(Kind.PING, 0, 1, bytes(8)), Error.PROTOCOL),
        (frame(Kind.RST_STREAM, 0, 1, bytes(5)), Error.FRAME_SIZE),
        (reset(0, 1), Error.PROTOCOL),
        (window_update(1, 1), Error.PROTOCOL),
        (window_update(0, 0), Error.PROTOCOL),
        (window_update(0, MAX_WINDOW), Error.FLOW_CONTROL),
        (frame(Kind.SETTINGS, 0, 0, bytes(5)), Error.FRAME_SIZE),
        (frame(Kind.SETTINGS, 0, 3, b""), Error.PROTOCOL),
        (frame(Kind.SETTINGS, Flag.ACK, 0, b""), Error.PROTOCOL),
        (settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), Error.FLOW_CONTROL),
        (settings({Setting.MAX_FRAME_SIZE: 100}), Error.PROTOCOL),
        (frame(Kind.HEADERS, END_HEADERS, 1, b"\xff\xff\xff"), Error.COMPRESSION),
        (frame(Kind.HEADERS, END_HEADERS | Flag.PADDED, 1, b"\x09x"), Error.PROTOCOL),
        (request(OPEN) + frame(Kind.DATA, Flag.PADDED, 1, b"\x01"), Error.PROTOCOL),
        (data(bytes((1 << 20) + 1)), Error.FRAME_SIZE),
        (request(OPEN) + data(b"", 1, END_STREAM) + data(b"x"), Error.STREAM_CLOSED),
    ],
)
def test_what_ends_the_connection(gateway: Gateway, said: bytes, code: Error) -> None:
    with Raw(gateway.target, HELLO) as neighbour, Raw(gateway.target, HELLO, said) as raw:
        assert raw.ends() == code
        neighbour.answers()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (window_update(1, MAX_WINDOW), Error.FLOW_CONTROL),
        (data(bytes(16384)) * 4 + data(b"x"), Error.FLOW_CONTROL),
    ],
)
def test_what_ends_a_stream_leaves_the_others(gateway: Gateway, said: bytes, code: Error) -> None:
    with Raw(gateway.target, HELLO, request(OPEN, 1), request(OPEN, 3)) as raw:
        # One byte is known to be a tunnel's, and waits for a worker that reads nothing.
        raw.say(message(encode(b"on"), 3))
        inner, _ = gateway.accept()
        with inner:
            raw.say(said)
            ended = [p for k, _, n, p in until_ping(raw) if (k, n) == (Kind.RST_STREAM, 1)]
            assert all(int.from_bytes(p, "big") in (code, Error.NO_ERROR) for p in ended)
            assert receive(inner, 2) == b"on"
            raw.say(message(encode(b"more"), 3))
            assert receive(inner, 4) == b"more"


def until_ping(raw: Raw) -> Iterator[tuple[int, int, int, bytes]]:
    """Yields the frames that the gateway sends before it answers a PING."""
    raw.say(ping())
    for said in raw.frames():
        if said[0] == Kind.PING:
            return
        yield said


def test_a_window_is_no_larger_than_agreed(gateway: Gateway) -> None:
    """The daemon has not answered, and its end is full."""
    with Raw(gateway.target, HELLO, request(OPEN)) as raw:
        raw.say(message(encode(b"x")))
        inner, _ = gateway.accept()
        with inner:
            piece = message(encode(bytes(8000)))
            told = 0
            for _ in range(1000):
                raw.say(piece)
                told += sum(1 for k, _, n, _ in until_ping(raw) if (k, n) == (Kind.RST_STREAM, 1))
                if told:
                    break
            assert told == 1
            assert gateway.resident_bytes() < 100 << 20
    assert len(piece) < STREAM_WINDOW


def test_a_client_that_is_reset_ends_its_connection(gateway: Gateway) -> None:
    """The bytes that the client sent before arrive, and then the end."""
    with Raw(gateway.target, HELLO, request(OPEN), message(encode(b"last words"))) as raw:
        inner, _ = gateway.accept()
        raw.answers()
        raw.say(message(encode(b", and more")))
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with inner:
        assert receive(inner, 20) == b"last words, and more"
        assert inner.recv(1) == b""


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def stranger(target: str, context: ssl.SSLContext | None, first: bytes = b"") -> None:
    """Stays until it is sent away."""
    host, _, port = target.rpartition(":")
    one = socket.create_connection((host, int(port)), 20)
    with contextlib.suppress(OSError):
        if context is not None:
            one = context.wrap_socket(one)
        one.sendall(first)
        while one.recv(4096):
            pass
    one.close()


def test_handshakes_that_fail() -> None:
    with Gateway(scheme="grpcs") as gateway:
        stranger(gateway.target, None, b"GET / HTTP/1.1\r\n\r\n")
        wait_until(lambda: gateway.refused("not_tls") == 1)
        old = client_context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        stranger(gateway.target, old)
        wait_until(lambda: gateway.refused("handshake") == 1)
        # Without ALPN it is no HTTP/2.
        stranger(gateway.target, client_context(), HELLO)
        wait_until(lambda: gateway.refused("handshake") == 2)
        other = client_context()
        other.set_alpn_protocols(["rgpu"])
        stranger(gateway.target, other)
        wait_until(lambda: gateway.refused("handshake") == 3)
