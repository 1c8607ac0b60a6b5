"""What a client may send without bringing data: the gateway's half of HTTP/2, apart from sockets."""

from __future__ import annotations

import pytest

from rgpu_common.http2 import frames
from rgpu_common.http2.frames import Error, Flag, Kind
from rgpu_server.http2 import allowance, reader
from rgpu_server.http2.connection import MAX_STREAMS
from transport.test_http2_connection import END_HEADERS, begun, data, request


def test_so_many_streams() -> None:
    peer = begun()
    for number in range(MAX_STREAMS + 1):
        peer.hears(request(2 * number + 1))
    assert len(peer.connection.streams) == MAX_STREAMS
    assert peer.says()[-1][0] == Kind.RST_STREAM


def test_a_turn_has_so_many_frames() -> None:
    peer = begun()
    pings = memoryview(frames.frame(Kind.PING, 0, 0, bytes(8)) * (reader.FRAMES_A_TURN + 10))
    taken = peer.connection.receive(pings, 0.0)
    assert taken == 17 * reader.FRAMES_A_TURN
    assert peer.connection.receive(pings[taken:], 0.0) == 170


@pytest.mark.parametrize(
    "said",
    [
        frames.frame(Kind.PING, 0, 0, bytes(8)),
        frames.frame(Kind.PING, Flag.ACK, 0, bytes(8)),
        frames.settings({}),
        frames.frame(Kind.SETTINGS, Flag.ACK, 0, b""),
        frames.frame(Kind.PRIORITY, 0, 9, bytes(5)),
        frames.frame(0xBE, 0, 0, b""),
        frames.window_update(1, 1),
        data(b""),
        frames.frame(Kind.GOAWAY, 0, 0, bytes(8)),
    ],
)
def test_floods_end(said: bytes) -> None:
    begun().hears(request()).fails(said * (int(allowance.MOST) + 10), code=Error.ENHANCE_YOUR_CALM)


def test_rapid_resets_end() -> None:
    peer = begun()
    streams = range(1, 2 * int(allowance.MOST), 2)
    said = (request(number) + frames.reset(Error.CANCEL, number) for number in streams)
    peer.fails(*said, code=Error.ENHANCE_YOUR_CALM)
    assert len(peer.told) < allowance.MOST


def test_frames_on_closed_streams_end() -> None:
    peer = begun().hears(request(), frames.reset(Error.CANCEL, 1))
    peer.fails(data(b"x") * (int(allowance.MOST) + 10), code=Error.ENHANCE_YOUR_CALM)


def test_time_gives_back() -> None:
    peer = begun()
    ping = frames.frame(Kind.PING, 0, 0, bytes(8))
    for second in range(100):
        peer.hears(ping * int(allowance.A_SECOND), now=float(second))


def test_messages_earn_what_their_windows_cost() -> None:
    peer = begun().hears(request())
    for _ in range(3 * int(allowance.MOST)):
        peer.hears(data(b"x"), frames.window_update(1, 1))
        peer.told.clear()


def test_continuation_floods_end() -> None:
    peer = begun().hears(request(1, 0))
    more = frames.frame(Kind.CONTINUATION, 0, 1, b"") * 100
    peer.fails(more, code=Error.ENHANCE_YOUR_CALM)
    peer = begun().hears(frames.frame(Kind.HEADERS, 0, 1, bytes(32 << 10)))
    peer.fails(frames.frame(Kind.CONTINUATION, 0, 1, b"x"), code=Error.ENHANCE_YOUR_CALM)


def test_header_bombs_end() -> None:
    # A field of 4 KB that is kept, and then named by one byte again and again.
    kept = b"\x40\x01x\x7f\xa1\x1e" + bytes(4000)
    bomb = frames.frame(Kind.HEADERS, END_HEADERS, 1, kept + b"\xbe" * 100)
    begun().fails(bomb, code=Error.COMPRESSION)
