"""Who has a place at the gateway's HTTP/2 server, and how much memory all of them together."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rgpu_common.http2 import frames
from rgpu_common.http2.frames import Error, Kind
from rgpu_server.http2.server import Server, where
from rgpu_server.http2.stream import STREAM_WINDOW
from rgpu_server.http2.windows import ALL_WINDOWS_BYTES, Windows
from transport.test_http2_hostile import HELLO, Dial, Raw, message, request, with_raw
from transport.test_http2_server import MIB, Handlers, until

NEIGHBOUR, CROWD = "127.0.0.2", "127.0.0.3"


def test_windows_never_come_to_more_than_their_total() -> None:
    chance = random.Random(7)
    total = 64 * MIB
    windows, out = Windows(total), []
    for _ in range(20_000):
        if out and chance.random() < 0.3:
            windows.give(out.pop(chance.randrange(len(out))))
        else:
            out.append(windows.take(chance.choice((0, 1, 4 * MIB, total))))
        assert 0 <= sum(out) <= total
    for granted in out:
        windows.give(granted)
    assert windows.take(MIB) == MIB


def test_as_many_as_usual_get_all_they_want_and_the_last_still_something() -> None:
    windows = Windows()
    granted = [windows.take(4 * MIB) for _ in range(256)]
    assert granted[:64] == [4 * MIB] * 64
    assert granted[-1] > STREAM_WINDOW
    assert sum(granted) <= ALL_WINDOWS_BYTES
    assert windows.take(-5) == 0


async def handed_out(raw: Raw, streams: int) -> Counter[int]:
    """What each stream may send beyond what it may at first, by what the server has said."""
    extra: Counter[int] = Counter()
    while len(extra) < streams:
        head, payload = await raw.hears(Kind.WINDOW_UPDATE)
        if head.stream:
            extra[head.stream] += frames.parse_number(payload, 0)
    return extra


def test_all_calls_of_a_server_share_their_windows() -> None:
    total = 4 * MIB

    async def work(dial: Dial, server: Server, handlers: Handlers) -> None:
        first, second = await dial(), await dial()
        extra: Counter[int] = Counter()
        for raw in (first, second):
            await raw.say(HELLO, *(request("/t/take", 2 * n + 1) for n in range(20)))
            extra += Counter({(raw, n): v for n, v in (await handed_out(raw, 20)).items()})  # type: ignore[misc]
        assert min(extra.values()) > 0
        assert total // 3 < sum(extra.values()) <= total
        # Who is sent away gives back what it had.
        await first.say(*(frames.reset(Error.CANCEL, 2 * n + 1) for n in range(20)))
        second.close()
        await until(lambda: len(handlers.ended) == 40)
        assert server.windows.take(total) == total // 64

    with_raw(work, windows=total)


def test_a_call_that_got_no_more_has_what_every_stream_has() -> None:
    async def work(dial: Dial, server: Server, handlers: Handlers) -> None:
        raw = await dial()
        await raw.say(HELLO, request("/t/take"))
        await until(lambda: len(handlers.calls) == 1)
        # Short messages, which are not gathered.
        whole, rest = divmod(STREAM_WINDOW, 1024)
        await raw.say(message(bytes(1019)) * whole, message(bytes(rest - 5)))
        await raw.say(frames.frame(Kind.PING, 0, 0, bytes(8)))
        await raw.hears(Kind.PING)
        await raw.say(frames.frame(Kind.DATA, 0, 1, b"x"))
        assert (await raw.hears(Kind.RST_STREAM, 1))[1] == Error.FLOW_CONTROL.to_bytes(4, "big")

    with_raw(work, windows=0)


def test_silent_calls_of_the_largest_crowd_make_room() -> None:
    async def work(dial: Dial, server: Server, handlers: Handlers) -> None:
        neighbour, crowd, more = await dial(NEIGHBOUR), await dial(CROWD), await dial(CROWD)
        await neighbour.say(HELLO, request("/t/wait"))
        await until(lambda: len(handlers.calls) == 1)
        for raw in (crowd, more):
            await raw.say(HELLO, *(request("/t/wait", 2 * n + 1) for n in range(9)))
        await until(lambda: server.refused["too_many"] == 15)
        assert not handlers.calls[0].over
        await neighbour.say(frames.reset(Error.CANCEL, 1))
        await until(lambda: handlers.calls[0].over)

    with_raw(work, calls=4)


def test_idle_connections_of_the_largest_crowd_make_room() -> None:
    async def work(dial: Dial, server: Server, handlers: Handlers) -> None:
        neighbour = await dial(NEIGHBOUR)
        await neighbour.say(HELLO)
        await neighbour.hears(Kind.SETTINGS)
        crowd = []
        for _ in range(9):
            crowd.append(await dial(CROWD))
            await crowd[-1].say(HELLO)
            await crowd[-1].hears(Kind.SETTINGS)
        for raw in crowd[:7]:
            await raw.ends()
        assert server.refused["too_many"] == 7
        await neighbour.say(frames.frame(Kind.PING, 0, 0, bytes(8)))
        await neighbour.hears(Kind.PING)

    with_raw(work, connections=3)


def test_a_connection_has_business_as_long_as_its_calls() -> None:
    async def work(dial: Dial, server: Server, handlers: Handlers) -> None:
        busy = await dial()
        await busy.say(HELLO, request("/t/take", 1), request("/t/take", 3))
        await until(lambda: len(handlers.calls) == 2)
        await busy.say(frames.reset(Error.CANCEL, 1))
        await until(lambda: len(handlers.ended) == 1)
        refused = await dial()
        await refused.ends()
        await busy.say(frames.reset(Error.CANCEL, 3))
        await until(lambda: len(handlers.ended) == 2)
        newcomer = await dial()
        await busy.ends()
        await newcomer.say(HELLO)
        await newcomer.hears(Kind.SETTINGS)
        assert server.refused["too_many"] == 2

    with_raw(work, connections=1)


@pytest.mark.parametrize(
    ("address", "written"),
    [
        (("192.0.2.1", 5), "192.0.2.1:5"),
        (("::ffff:192.0.2.1", 5), "192.0.2.1:5"),
        (("2001:db8::1", 5), "[2001:db8::1]:5"),
    ],
)
def test_addresses_are_written_as_grpc_does(address: tuple[str, int], written: str) -> None:
    assert where(address) == written
