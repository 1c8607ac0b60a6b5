"""Frames that a client may send without data: the gateway ends floods, and serves the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.gateway import Gateway
from helpers.http2 import (
    ALLOWANCE,
    HELLO,
    MAX_STREAMS,
    PREFACE,
    Error,
    Flag,
    Kind,
    Raw,
    Setting,
    block,
    data,
    frame,
    ping,
    request,
    reset,
    settings,
    window_update,
)

from rgpu_common.tunnel.chunk import OPEN

FIELDS: list[tuple[str, str]] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", OPEN),
    (":authority", "x"),
]
MANY = 2 * ALLOWANCE


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


def is_a_flood(gateway: Gateway, *says: bytes) -> None:
    with Raw(gateway.target, HELLO) as neighbour:
        with Raw(gateway.target, HELLO, *says) as raw:
            assert raw.ends() == Error.ENHANCE_YOUR_CALM
        neighbour.answers()


@pytest.mark.parametrize(
    "said",
    [
        ping(),
        ping(Flag.ACK),
        settings({}),
        settings({Setting.INITIAL_WINDOW_SIZE: 70_000}),
        frame(Kind.PRIORITY, 0, 9, bytes(5)),
        window_update(0, 1),
        window_update(1, 1),
        data(b""),
        frame(Kind.GOAWAY, 0, 0, bytes(8)),
    ],
)
def test_frames_without_data(gateway: Gateway, said: bytes) -> None:
    is_a_flood(gateway, request(OPEN), said * MANY)


def test_rapid_resets(gateway: Gateway) -> None:
    """CVE-2023-44487."""
    streams = range(1, 2 * MANY, 2)
    is_a_flood(gateway, *(request(OPEN, n) + reset(Error.CANCEL, n) for n in streams))


@pytest.mark.parametrize("said", [frame(0xBE, 0, 0, b""), data(b"x"), data(bytes(16384))])
def test_frames_that_are_passed_over(gateway: Gateway, said: bytes) -> None:
    """The frames are of another protocol, or of a stream that is closed."""
    count = 2 * ALLOWANCE * 4096 // len(said)
    is_a_flood(gateway, request(OPEN), reset(Error.CANCEL, 1), said * count)


def test_what_was_on_its_way_to_a_closed_stream(gateway: Gateway) -> None:
    """Data for a closed stream is not a flood, with the largest window that a stream gets."""
    with Raw(gateway.target, HELLO, request(OPEN), reset(Error.CANCEL, 1)) as raw:
        raw.say(data(bytes(16384)) * 256)
        raw.answers()


def test_empty_continuations(gateway: Gateway) -> None:
    """CVE-2024-28182."""
    first = frame(Kind.HEADERS, 0, 1, block(FIELDS))
    is_a_flood(gateway, first, frame(Kind.CONTINUATION, 0, 1, b"") * MANY)


def test_continuations_of_headers_without_an_end(gateway: Gateway) -> None:
    more = frame(Kind.CONTINUATION, 0, 1, block([("x", "y" * 100)] * 100))
    is_a_flood(gateway, frame(Kind.HEADERS, 0, 1, block(FIELDS)), more * MANY)


def test_long_headers(gateway: Gateway) -> None:
    is_a_flood(
        gateway,
        frame(Kind.HEADERS, Flag.END_HEADERS, 1, block([*FIELDS, *[("x", "y" * 100)] * 400])),
    )


def test_header_bombs(gateway: Gateway) -> None:
    """A field of 4 KB that is kept, and then named by one byte again and again."""
    kept = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000
    bomb = frame(Kind.HEADERS, Flag.END_HEADERS, 1, block(FIELDS) + kept + b"\xbe" * 100)
    is_a_flood(gateway, bomb)


def test_settings_with_very_many_values(gateway: Gateway) -> None:
    said = settings(dict.fromkeys(range(0x1000, 0x1400), 1))
    with Raw(gateway.target, HELLO, said) as raw:
        assert raw.ends() is not None


def test_more_streams_than_agreed(gateway: Gateway) -> None:
    numbers = range(1, 2 * MAX_STREAMS + 2, 2)
    requests = [request(OPEN, number) for number in numbers]
    with Raw(gateway.target, PREFACE, settings({}), *requests) as early:
        assert early.hears_number(Kind.RST_STREAM, numbers[-1]) == Error.REFUSED_STREAM
        early.answers()
    with Raw(gateway.target, HELLO, *requests) as raw:
        assert raw.ends() == Error.PROTOCOL


def test_messages_earn_what_their_windows_cost(gateway: Gateway) -> None:
    with Raw(gateway.target, HELLO, request(OPEN)) as raw:
        # Empty messages, each in five frames of one byte.
        for _ in range(3):
            raw.say((data(b"\0") + window_update(1, 1)) * 5 * (ALLOWANCE // 5))
            raw.answers()


def test_the_allowance_comes_back(gateway: Gateway) -> None:
    """A client that sends a PING now and then is not a flood, however long it stays."""
    with Raw(gateway.target, HELLO, ping() * (ALLOWANCE - 200)) as raw:
        for _ in range(ALLOWANCE - 200):
            raw.hears(Kind.PING)
        for _ in range(50):
            raw.answers()
