"""Which connections have a place at the gateway of `grpc:`, and how much memory all have
together.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from helpers.gateway import Gateway, receive
from helpers.http2 import HELLO, STREAM_WINDOW, Error, Kind, Raw, message, request, reset
from helpers.waiting import wait_until

from rgpu_common.tunnel.chunk import OPEN, encode

NEIGHBOUR, CROWD = "127.0.0.2", "127.0.0.3"
MIB = 1 << 20
# The window that a tunnel gets in addition to a stream's own.
WIDE = 4 * MIB - STREAM_WINDOW


@contextlib.contextmanager
def answered(gateway: Gateway, raw: Raw, stream: int = 1) -> Iterator[int]:
    """The stream becomes a tunnel that the daemon answers; yields by how much its window grew."""
    raw.say(request(OPEN, stream), message(encode(b"x"), stream))
    inner, _ = gateway.accept()
    with inner:
        assert receive(inner, 1) == b"x"
        inner.sendall(b"y")
        grown = 0
        for kind, _, number, payload in raw.frames():
            if kind == Kind.WINDOW_UPDATE and number == stream:
                grown = int.from_bytes(payload, "big")
            elif kind == Kind.DATA and number == stream:
                break
        raw.answers()
        yield grown


def test_who_has_no_business_makes_room() -> None:
    with (
        Gateway("--connections", "3") as gateway,
        Raw(gateway.target, HELLO) as busy,
        answered(gateway, busy),
        Raw(gateway.target, HELLO) as first,
    ):
        first.hears(Kind.SETTINGS)
        with Raw(gateway.target, HELLO, request(OPEN)) as second:
            second.answers()
            with Raw(gateway.target, HELLO) as third:
                third.hears(Kind.SETTINGS)
                first.ends()
                busy.answers()
                second.answers()
        wait_until(lambda: gateway.refused("too_many") == 1)


def test_idle_connections_of_the_largest_crowd_make_room() -> None:
    with (
        Gateway("--connections", "3") as gateway,
        Raw(gateway.target, HELLO, source=NEIGHBOUR) as neighbour,
        contextlib.ExitStack() as stack,
    ):
        neighbour.answers()
        crowd = []
        for _ in range(9):
            crowd.append(stack.enter_context(Raw(gateway.target, HELLO, source=CROWD)))
            crowd[-1].hears(Kind.SETTINGS)
        for raw in crowd[:7]:
            raw.ends()
        wait_until(lambda: gateway.refused("too_many") == 7)
        neighbour.answers()


def test_a_connection_has_business_as_long_as_its_tunnels() -> None:
    with Gateway("--connections", "1") as gateway, Raw(gateway.target, HELLO) as busy:
        with answered(gateway, busy, 1), answered(gateway, busy, 3):
            busy.say(reset(Error.CANCEL, 1))
            busy.answers()
            with Raw(gateway.target) as refused:
                refused.ends()
            busy.say(reset(Error.CANCEL, 3))
            busy.answers()
        with Raw(gateway.target, HELLO) as newcomer:
            newcomer.hears(Kind.SETTINGS)
            busy.ends()
        wait_until(lambda: gateway.refused("too_many") == 2)


def test_silent_calls_of_the_largest_crowd_make_room() -> None:
    with (
        Gateway("--calls", "4") as gateway,
        Raw(gateway.target, HELLO, request(OPEN), source=NEIGHBOUR) as neighbour,
        Raw(gateway.target, HELLO, source=CROWD) as crowd,
        Raw(gateway.target, HELLO, source=CROWD) as more,
    ):
        neighbour.answers()
        for raw in (crowd, more):
            raw.say(*(request(OPEN, 2 * n + 1) for n in range(9)))
        wait_until(lambda: gateway.refused("too_many") == 15)
        # The neighbour's call has its place, and may still say what it wants.
        neighbour.say(message(encode(b"here")))
        inner, _ = gateway.accept()
        with inner:
            assert receive(inner, 4) == b"here"


def test_calls_that_the_daemon_has_answered_make_no_room() -> None:
    with (
        Gateway("--calls", "2") as gateway,
        Raw(gateway.target, HELLO) as raw,
        answered(gateway, raw, 1),
        answered(gateway, raw, 3),
    ):
        raw.say(request(OPEN, 5))
        raw.hears(Kind.HEADERS, 5)
        wait_until(lambda: gateway.refused("too_many") == 1)
        raw.say(reset(Error.CANCEL, 3))
        with answered(gateway, raw, 7):
            raw.answers()


def test_all_tunnels_share_their_windows() -> None:
    total = 64 * MIB
    with (
        Gateway("--windows-mib", "64") as gateway,
        Raw(gateway.target, HELLO) as first,
        Raw(gateway.target, HELLO) as second,
        contextlib.ExitStack() as stack,
    ):
        granted: Counter[int] = Counter()
        for stream in range(1, 40, 2):
            for number, raw in enumerate((first, second)):
                granted[number] += stack.enter_context(answered(gateway, raw, stream))
        assert total // 3 < sum(granted.values()) <= total
        # A client that leaves releases its places.
        first.say(*(reset(Error.CANCEL, stream) for stream in range(1, 40, 2)))
        first.answers()
        left = total - granted[1]
        with answered(gateway, first, 41) as again:
            assert again == left // 64


def test_a_tunnel_gets_a_wide_window_where_there_are_few() -> None:
    with Gateway() as gateway, Raw(gateway.target, HELLO) as raw, answered(gateway, raw) as grown:
        assert grown == WIDE
