"""The state of a connection, apart from sockets: bytes in, events out, bytes out.

Every limit against peers that mean harm is here and in `reader`, but for those of time and memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_common.http2 import frames
from rgpu_common.http2.frames import Error, Flag, Kind, Setting
from rgpu_server.http2.allowance import ConnectionFailedError
from rgpu_server.http2.reader import MAX_HEADER_LIST, Reader
from rgpu_server.http2.stream import STREAM_WINDOW, Stream

if TYPE_CHECKING:
    from rgpu_common.http2.headers import Headers
    from rgpu_server.http2.stream import Events

MAX_STREAMS: Final = 1024
# Of all streams together; given back at once, since each stream has its own.
CONNECTION_WINDOW: Final = 16 << 20
# We send frames of at most so many bytes, whatever the peer would take: other streams wait.
_MAX_SENT_FRAME = 1 << 20
_SETTINGS: Final = {
    Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    Setting.MAX_FRAME_SIZE: frames.MAX_DATA_FRAME,
    Setting.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST,
}
_HELLO: Final = frames.settings(_SETTINGS) + frames.window_update(
    0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW
)


class Connection(Reader):
    """The server's end.  out: what is to be sent, in this order; the owner takes it."""

    def __init__(self, events: Events, now: float) -> None:
        super().__init__(now)
        self._events = events
        self.out = bytearray()
        self.streams: dict[int, Stream] = {}
        self.leaving = False
        self._last = 0
        self._window = CONNECTION_WINDOW
        # What we may send.
        self._room = self._initial = frames.DEFAULT_WINDOW
        self._max_frame = 16384

    # What comes

    def _hello(self) -> None:
        self.out += _HELLO

    def _failed(self, error: ConnectionFailedError) -> None:
        if not self.begun:
            # Who speaks something else, such as TLS, learns what is spoken here.
            self._hello()
        self.out += frames.go_away(self._last, error.code, str(error))

    def _begin_data(self, frame: frames.Frame) -> None:
        if frame.stream > self._last:
            raise ConnectionFailedError(Error.PROTOCOL, "data came before its stream")
        if frame.left > self._window:
            raise ConnectionFailedError(Error.FLOW_CONTROL, "the connection's window is full")
        stream = self.streams.get(frame.stream)
        if stream is None or not (frame.left or frame.flags & Flag.END_STREAM):
            # It may have been on its way when we gave the stream up.
            self.allowance.spend(1)
        elif stream.heard_all:
            self._break(stream, Error.STREAM_CLOSED)
        elif frame.left > stream.window:
            self._break(stream, Error.FLOW_CONTROL)
        else:
            self.allowance.earn(frame.left)

    def _data(self, frame: frames.Frame, piece: memoryview, count: int) -> None:
        self._charge(count)
        stream = self.streams.get(frame.stream)
        if stream is None:
            return
        if count:
            stream.window -= count
            stream.held += count
            self._events.data(stream, piece)
        # Who was told may have given the stream up.
        if not frame.left and frame.flags & Flag.END_STREAM and frame.stream in self.streams:
            self._heard_all(stream)

    def _charge(self, count: int) -> None:
        self._window -= count
        if self._window <= CONNECTION_WINDOW // 2:
            self.out += frames.window_update(0, CONNECTION_WINDOW - self._window)
            self._window = CONNECTION_WINDOW

    def _heard_all(self, stream: Stream) -> None:
        stream.heard_all = True
        self._events.ended(stream)
        self._forget(stream)

    def _request(self, number: int, fields: Headers, last: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            # Headers behind the messages say that these are all.
            if not last or stream.heard_all:
                self._break(stream, Error.PROTOCOL)
            else:
                self._heard_all(stream)
            return
        if number <= self._last:
            return  # of a stream that we gave up
        if not number & 1:
            raise ConnectionFailedError(Error.PROTOCOL, "a client's streams are odd")
        self._last = number
        if self.leaving or len(self.streams) >= MAX_STREAMS:
            self.out += frames.reset(Error.REFUSED_STREAM, number)
            return
        stream = self.streams[number] = Stream(number, self._initial, heard_all=last)
        self._events.opened(stream, fields)

    def _settings(self, values: dict[int, int]) -> None:
        initial = values.get(Setting.INITIAL_WINDOW_SIZE, self._initial)
        most = values.get(Setting.MAX_FRAME_SIZE, self._max_frame)
        if initial > frames.MAX_WINDOW:
            raise ConnectionFailedError(Error.FLOW_CONTROL, "a window is too large")
        if not 16384 <= most < 1 << 24:
            raise ConnectionFailedError(Error.PROTOCOL, "the frames asked for are of no size")
        for stream in self.streams.values():
            stream.room += initial - self._initial
            if stream.room > frames.MAX_WINDOW:
                raise ConnectionFailedError(Error.FLOW_CONTROL, "a stream's window overflows")
        self._initial = initial
        self._max_frame = min(most, _MAX_SENT_FRAME)
        self.out += frames.head(Kind.SETTINGS, Flag.ACK, 0, 0)
        self._events.room(None)

    def _pinged(self, payload: bytes) -> None:
        self.out += frames.frame(Kind.PING, Flag.ACK, 0, payload)

    def _widened(self, number: int, count: int) -> None:
        if number > self._last or not (count or number):
            raise ConnectionFailedError(Error.PROTOCOL, "a window of nothing is widened")
        stream = self.streams.get(number)
        if number == 0:
            self._room += count
            if self._room > frames.MAX_WINDOW:
                raise ConnectionFailedError(Error.FLOW_CONTROL, "the window overflows")
            self._events.room(None)
        elif stream is None:
            return
        elif not count or stream.room + count > frames.MAX_WINDOW:
            self._break(stream, Error.FLOW_CONTROL if count else Error.PROTOCOL)
        else:
            stream.room += count
            self._events.room(stream)

    def _was_reset(self, number: int, code: int) -> None:
        if number > self._last:
            raise ConnectionFailedError(Error.PROTOCOL, "a stream of nothing is reset")
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._events.reset(stream, code)

    def _break(self, stream: Stream, code: Error) -> None:
        """The peer breaks the stream's rules."""
        self.give_up(stream, code)
        self._events.reset(stream, code)

    # What goes

    def holds(self, stream: Stream, count: int) -> None:
        """So much of what came waits to be read; the peer may send the rest of the window."""
        stream.held = count
        owed = stream.target - count - stream.window
        if owed >= stream.target // 4 and not stream.heard_all:
            stream.window += owed
            self.out += frames.window_update(stream.number, owed)

    def widen(self, stream: Stream, target: int) -> None:
        """Gives the stream another window; it only ever grows."""
        stream.target = max(target, stream.target)
        self.holds(stream, stream.held)

    def room(self, stream: Stream) -> int:
        """How many bytes the next frame of data may have."""
        return min(self._room, stream.room, self._max_frame)

    def data_head(self, stream: Stream, size: int) -> bytes:
        """The head of a frame with `size` bytes, which the owner sends behind it."""
        self._room -= size
        stream.room -= size
        self.allowance.earn(size)
        return frames.head(Kind.DATA, 0, stream.number, size)

    def say(self, stream: Stream, block: bytes, last: bool) -> None:
        """Sends a block of headers, which fits into a frame."""
        flags = Flag.END_HEADERS | (Flag.END_STREAM if last else 0)
        self.out += frames.frame(Kind.HEADERS, flags, stream.number, block)
        if last:
            stream.said_all = True
            self._forget(stream)

    def give_up(self, stream: Stream, code: Error) -> None:
        """Ends a stream, if it has not ended."""
        if self.streams.pop(stream.number, None) is not None:
            self.out += frames.reset(code, stream.number)

    def ping(self) -> None:
        """Asks for a sign of life."""
        self.out += frames.frame(Kind.PING, 0, 0, bytes(8))

    def leave(self) -> None:
        """Takes no more streams; those that are there go on."""
        if not self.leaving:
            self.leaving = True
            self.out += frames.go_away(self._last, Error.NO_ERROR)

    def _forget(self, stream: Stream) -> None:
        if stream.said_all and stream.heard_all:
            self.streams.pop(stream.number, None)
