"""The gateway's half of HTTP/2, apart from sockets: bytes in, events and bytes out."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_common.http2 import frames, headers
from rgpu_common.http2.frames import Error, Flag, Kind, Setting
from rgpu_server.http2.allowance import ConnectionFailedError
from rgpu_server.http2.connection import CONNECTION_WINDOW, MAX_STREAMS, Connection
from rgpu_server.http2.stream import STREAM_WINDOW, Stream

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/x")]
HELLO = frames.PREFACE + frames.settings({})
END_HEADERS, END_STREAM = Flag.END_HEADERS, Flag.END_STREAM


class Peer:
    """A connection, and what it told; `keeps`: nobody reads the data."""

    def __init__(self, keeps: bool = False) -> None:
        self.connection = Connection(self, 0.0)
        self.told: list[tuple[object, ...]] = []
        self.keeps = keeps

    def opened(self, stream: Stream, fields: headers.Headers) -> None:
        self.told.append(("opened", stream.number, fields, stream.heard_all))

    def data(self, stream: Stream, piece: memoryview) -> None:
        if self.told and self.told[-1][:2] == ("data", stream.number):
            self.told[-1] = (*self.told[-1][:2], self.told[-1][2] + bytes(piece))  # type: ignore[operator]
        elif piece:
            self.told.append(("data", stream.number, bytes(piece)))
        if not self.keeps:
            self.connection.holds(stream, 0)

    def ended(self, stream: Stream) -> None:
        self.told.append(("ended", stream.number))

    def reset(self, stream: Stream, code: int) -> None:
        self.told.append(("reset", stream.number, code))

    def room(self, stream: Stream | None) -> None:
        pass

    def hears(self, *pieces: bytes, now: float = 0.0) -> Peer:
        """All of it, in as many turns as that takes."""
        data = memoryview(b"".join(pieces))
        while data:
            data = data[self.connection.receive(data, now) :]
        return self

    def fails(self, *pieces: bytes, code: Error = Error.PROTOCOL) -> None:
        with pytest.raises(ConnectionFailedError) as caught:
            self.hears(*pieces)
        assert caught.value.code == code
        assert frames_of(self.connection)[-1][0] == Kind.GOAWAY

    def says(self) -> list[tuple[int, int, int, bytes]]:
        return frames_of(self.connection)


def frames_of(connection: Connection) -> list[tuple[int, int, int, bytes]]:
    """What it has to say: kind, flags, stream, payload."""
    found, at, out = [], 0, bytes(connection.out)
    while at < len(out):
        head = frames.parse_head(out, at)
        at += frames.HEAD_BYTES
        found.append((head.kind, head.flags, head.stream, out[at : at + head.left]))
        at += head.left
    connection.out.clear()
    return found


def begun(keeps: bool = False) -> Peer:
    peer = Peer(keeps).hears(HELLO)
    peer.says()
    return peer


def request(stream: int = 1, flags: int = END_HEADERS) -> bytes:
    return frames.frame(Kind.HEADERS, flags, stream, headers.encode(REQUEST))


def data(payload: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return frames.frame(Kind.DATA, flags, stream, payload)


def test_the_first_words() -> None:
    peer = Peer()
    peer.hears(HELLO[:10])
    assert not peer.connection.out
    peer.hears(HELLO[10:])
    settings, window, ack = peer.says()
    assert settings[0] == Kind.SETTINGS
    values = frames.parse_settings(settings[3])
    assert values[Setting.MAX_CONCURRENT_STREAMS] == MAX_STREAMS
    assert (window[0], ack[:2]) == (Kind.WINDOW_UPDATE, (Kind.SETTINGS, Flag.ACK))


def test_who_speaks_something_else_hears_what_is_spoken_here() -> None:
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nXX"):
        peer = Peer()
        with pytest.raises(ConnectionFailedError):
            peer.hears(words)
        assert b"no HTTP/2" in peer.connection.out


CONVERSATION = (
    HELLO
    + frames.frame(Kind.PRIORITY, 0, 5, bytes(5))
    + request()
    + data(b"one" * 100)
    + frames.frame(0xBE, 0, 0, b"an extension")
    + request(3, END_HEADERS | END_STREAM)
    + data(b"")
    + frames.frame(Kind.DATA, Flag.PADDED, 1, b"\x03two" + bytes(3))
    + frames.frame(Kind.DATA, Flag.PADDED, 1, b"\x02" + bytes(2))
    + frames.frame(Kind.PING, 0, 0, b"12345678")
    + frames.frame(Kind.HEADERS, 0, 7, headers.encode(REQUEST)[:9])
    + frames.frame(Kind.CONTINUATION, 0, 7, b"")
    + frames.frame(Kind.CONTINUATION, END_HEADERS, 7, headers.encode(REQUEST)[9:])
    + frames.window_update(0, 5)
    + frames.reset(Error.CANCEL, 7)
    + data(b"late", 7)
    + frames.frame(Kind.DATA, Flag.PADDED | END_STREAM, 1, b"\x00end")
)
TOLD = [
    ("opened", 1, REQUEST, False),
    ("data", 1, b"one" * 100),
    ("opened", 3, REQUEST, True),
    ("data", 1, b"two"),
    ("opened", 7, REQUEST, False),
    ("reset", 7, Error.CANCEL),
    ("data", 1, b"end"),
    ("ended", 1),
]


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=30))
def test_it_may_come_cut_anywhere(cuts: list[int]) -> None:
    peer = Peer()
    places = [0, *sorted(cuts), len(CONVERSATION)]
    for start, end in itertools.pairwise(places):
        peer.hears(CONVERSATION[start:end])
    assert peer.told == TOLD
    said = peer.says()
    assert (Kind.PING, Flag.ACK, 0, b"12345678") in said


def test_byte_by_byte() -> None:
    peer = Peer()
    for octet in CONVERSATION:
        peer.hears(bytes((octet,)))
    assert peer.told == TOLD


@given(st.lists(st.binary(max_size=80), max_size=6), st.booleans())
def test_whatever_comes_is_taken_or_refused(pieces: list[bytes], framed: bool) -> None:
    peer = begun()
    peer.hears(request())
    try:
        for piece in pieces:
            if framed and piece:
                kind, flags = piece[0] % 12, piece[-1]
                peer.hears(frames.head(Kind.DATA, flags, 1, len(piece))[:3] + bytes((kind, flags)))
                peer.hears(struct.pack(">I", 1) + piece)
            else:
                peer.hears(piece)
    except ConnectionFailedError:
        assert peer.says()[-1][0] == Kind.GOAWAY


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frames.head(Kind.DATA, 0, 1, frames.MAX_DATA_FRAME + 1), Error.PROTOCOL),
        (frames.head(Kind.HEADERS, 0, 1, frames.MAX_OTHER_FRAME + 1), Error.PROTOCOL),
        (data(b"x"), Error.PROTOCOL),
        (data(b"x", 0), Error.PROTOCOL),
        (request(0), Error.PROTOCOL),
        (request(2), Error.PROTOCOL),
        (request(1, 0) + data(b"x"), Error.PROTOCOL),
        (request(1, 0) + frames.frame(Kind.CONTINUATION, END_HEADERS, 3, b""), Error.PROTOCOL),
        (frames.frame(Kind.CONTINUATION, END_HEADERS, 1, b""), Error.PROTOCOL),
        (frames.frame(Kind.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), Error.PROTOCOL),
        (frames.frame(Kind.PING, 0, 0, bytes(7)), Error.FRAME_SIZE),
        (frames.frame(Kind.PING, 0, 1, bytes(8)), Error.PROTOCOL),
        (frames.frame(Kind.RST_STREAM, 0, 1, bytes(5)), Error.FRAME_SIZE),
        (frames.reset(0, 1), Error.PROTOCOL),
        (frames.window_update(1, 1), Error.PROTOCOL),
        (frames.window_update(0, 0), Error.PROTOCOL),
        (frames.window_update(0, frames.MAX_WINDOW), Error.FLOW_CONTROL),
        (frames.frame(Kind.SETTINGS, 0, 0, bytes(5)), Error.PROTOCOL),
        (frames.frame(Kind.SETTINGS, 0, 3, b""), Error.PROTOCOL),
        (frames.frame(Kind.SETTINGS, Flag.ACK, 0, bytes(6)), Error.FRAME_SIZE),
        (frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), Error.FLOW_CONTROL),
        (frames.settings({Setting.MAX_FRAME_SIZE: 100}), Error.PROTOCOL),
        (frames.frame(Kind.HEADERS, END_HEADERS, 1, b"\xff\xff\xff"), Error.COMPRESSION),
        (frames.frame(Kind.HEADERS, END_HEADERS | Flag.PADDED, 1, b"\x09x"), Error.PROTOCOL),
        (request() + frames.frame(Kind.DATA, Flag.PADDED, 1, b"\x01"), Error.PROTOCOL),
        (request() + frames.frame(Kind.DATA, Flag.PADDED, 1, b""), Error.FRAME_SIZE),
    ],
)
def test_what_ends_the_connection(said: bytes, code: Error) -> None:
    begun().fails(said, code=code)


def test_settings_come_first() -> None:
    Peer().fails(frames.PREFACE, frames.frame(Kind.PING, 0, 0, bytes(8)))
    Peer().fails(
        frames.PREFACE, frames.frame(Kind.SETTINGS, Flag.ACK, 0, b""), code=Error.FRAME_SIZE
    )


def test_what_ends_a_stream_leaves_the_others() -> None:
    for said, code in (
        (request(1), Error.PROTOCOL),
        (frames.window_update(1, 0), Error.PROTOCOL),
        (frames.window_update(1, frames.MAX_WINDOW), Error.FLOW_CONTROL),
        (data(bytes(STREAM_WINDOW + 1)), Error.FLOW_CONTROL),
    ):
        peer = begun().hears(request(1), request(3), said, data(b"on", 3))
        assert (Kind.RST_STREAM, 0, 1, struct.pack(">I", code)) in peer.says()
        assert ("reset", 1, code) in peer.told
        assert peer.told[-1] == ("data", 3, b"on")


def test_data_after_the_last_word() -> None:
    peer = begun().hears(request(1, END_HEADERS | END_STREAM), data(b"more"))
    assert ("reset", 1, Error.STREAM_CLOSED) in peer.told


def test_trailers_end_the_messages() -> None:
    block = headers.encode([("x", "y")])
    last = frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, block)
    assert begun().hears(request(), data(b"x"), last).told[-1] == ("ended", 1)


# Windows


def test_who_is_not_read_stops_and_the_others_do_not() -> None:
    peer = begun(keeps=True).hears(request(1), request(3), data(bytes(STREAM_WINDOW)))
    assert [said[2] for said in peer.says() if said[0] == Kind.WINDOW_UPDATE] == []
    # The connection's window is not that of one stream.
    for stream in range(5, 5 + 2 * (CONNECTION_WINDOW // STREAM_WINDOW), 2):
        peer.hears(request(stream), data(bytes(STREAM_WINDOW), stream))
    updates = [said for said in peer.says() if said[0] == Kind.WINDOW_UPDATE]
    assert updates
    assert {said[2] for said in updates} == {0}
    first = peer.connection.streams[1]
    peer.connection.holds(first, 1000)
    (update,) = peer.says()
    assert frames.parse_number(update[3]) == STREAM_WINDOW - 1000
    peer.hears(data(bytes(STREAM_WINDOW - 1000)))
    peer.hears(data(b"x"))
    assert ("reset", 1, Error.FLOW_CONTROL) in peer.told


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 100)), max_size=40))
def test_a_stream_never_has_more_than_its_window(steps: list[tuple[int, int]]) -> None:
    peer = begun(keeps=True).hears(request())
    connection, stream = peer.connection, peer.connection.streams[1]
    there, may = 0, STREAM_WINDOW
    for size, read in steps:
        size = min(size, may)
        if size:
            peer.hears(data(bytes(size)))
            there += size
            may -= size
        there -= there * read // 100
        connection.holds(stream, there)
        may += sum(
            frames.parse_number(said[3])
            for said in peer.says()
            if said[0] == Kind.WINDOW_UPDATE and said[2] == 1
        )
        assert there + may <= STREAM_WINDOW
    connection.holds(stream, 0)
    assert stream.window > STREAM_WINDOW // 2


def test_a_window_grows() -> None:
    peer = begun().hears(request())
    peer.connection.widen(peer.connection.streams[1], 1 << 20)
    (update,) = peer.says()
    assert frames.parse_number(update[3]) == (1 << 20) - STREAM_WINDOW
    peer.hears(data(bytes(1 << 20)))
    assert ("data", 1, bytes(1 << 20)) in peer.told


def test_what_we_may_send() -> None:
    peer = Peer().hears(
        frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 100}), request()
    )
    connection, stream = peer.connection, peer.connection.streams[1]
    assert connection.room(stream) == 100
    connection.data_head(stream, 60)
    peer.hears(frames.settings({Setting.INITIAL_WINDOW_SIZE: 50}))
    assert connection.room(stream) == -10
    peer.hears(frames.window_update(1, 1 << 20))
    assert connection.room(stream) == 16384
    peer.hears(frames.settings({Setting.MAX_FRAME_SIZE: 1 << 20}))
    assert connection.room(stream) == frames.DEFAULT_WINDOW - 60


def test_both_have_said_all() -> None:
    peer = begun().hears(request(1, END_HEADERS | END_STREAM))
    connection = peer.connection
    connection.say(connection.streams[1], b"", last=True)
    assert not connection.streams
    assert peer.says()[-1][:3] == (Kind.HEADERS, END_HEADERS | END_STREAM, 1)


def test_who_leaves_takes_nothing_new() -> None:
    peer = begun().hears(request(1))
    peer.connection.leave()
    peer.hears(request(3), data(b"x", 3), data(b"goes on"))
    said = peer.says()
    assert (said[0][0], frames.parse_number(said[0][3])) == (Kind.GOAWAY, 1)
    assert frames.reset(Error.REFUSED_STREAM, 3)[-4:] == said[1][3]
    assert peer.told[-1] == ("data", 1, b"goes on")
