"""A bidirectional gRPC call, alone on an HTTP/2 connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import frames, headers, status
from rgpu_common.http2.frames import Flag, Kind, Setting
from rgpu_common.http2.messages import PREFIX, Messages
from rgpu_common.http2.sending import send_message
from rgpu_common.http2.status import CallFailedError, Status

if TYPE_CHECKING:
    from collections import deque

    from rgpu_client.session.http2.link import Link

# What the server may send that nobody has read yet.
WINDOW_BYTES: Final = 4 << 20
_CANCEL = 8
_SETTINGS: Final = {
    Setting.HEADER_TABLE_SIZE: 0,
    Setting.ENABLE_PUSH: 0,
    Setting.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
    Setting.MAX_FRAME_SIZE: frames.MAX_DATA_FRAME,
}


class Call:
    """`read`, `write` and `done_writing` as in grpc.aio; the end of the messages is None.

    `link` is connected, and the call's from now on.  request: its headers.
    """

    def __init__(self, link: Link, request: headers.Headers) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._frame: frames.Frame | None = None
        self._pending = b""
        self._block = b""
        self._fields: dict[str, str] = {}
        self._last = False
        self._messages = Messages()
        self._ready: deque[bytes | memoryview] = self._messages.ready
        self._owed = 0
        self._status: Status | None = None
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        # What we may send: on the connection, on the stream, in a frame.
        self._window = self._stream_window = self._initial_window = frames.DEFAULT_WINDOW
        self._max_frame = 16384
        link.start(self._received, self._lost)
        most = frames.MAX_WINDOW - frames.DEFAULT_WINDOW
        link.send(
            frames.PREFACE
            + frames.settings(_SETTINGS)
            + frames.window_update(0, most)
            + frames.frame(Kind.HEADERS, Flag.END_HEADERS, frames.STREAM, headers.encode(request))
        )

    @property
    def status(self) -> Status | None:
        """How the call has ended; None: it has not."""
        return self._status

    async def read(self) -> bytes | memoryview | None:
        """Returns the next message, None once the call has ended well.

        Raises:
            CallFailedError: it ended with another status.
        """
        while not self._ready:
            if self._status is not None:
                if self._status.code != status.OK:
                    raise CallFailedError(self._status)
                return None
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._ready.popleft()
        self._give_back(len(message) + PREFIX.size)
        return message

    async def write(self, message: bytes) -> None:
        """Sends a message as the server's windows allow; CallFailedError if the call is over."""
        await send_message(self._link, message, self._have_room, self._send)

    async def done_writing(self) -> None:
        """Tells the server that no message follows."""
        if self._status is None:
            self._link.send(frames.head(Kind.DATA, Flag.END_STREAM, frames.STREAM, 0))
            await self._link.drain()

    def cancel(self) -> None:
        """Ends the call, if it has not ended, and closes its connection."""
        if self._status is None:
            self._link.send(frames.reset(_CANCEL))
            self._end(Status(status.CANCELLED, "the call was cancelled here"))
        self._link.close()

    def _send(self, first: bytes, rest: memoryview) -> None:
        """Sends a DATA frame, with the windows charged for it."""
        size = len(first) + len(rest)
        self._window -= size
        self._stream_window -= size
        self._link.send(frames.head(Kind.DATA, 0, frames.STREAM, size) + first, rest)

    async def _have_room(self) -> int:
        """Returns how many bytes a frame may have now, more than stand before a message."""
        while self._status is None:
            room = min(self._window, self._stream_window, self._max_frame)
            if room > PREFIX.size:
                return room
            self._room = self._loop.create_future()
            try:
                await self._room
            finally:
                self._room = None
        raise CallFailedError(self._status)

    def _give_back(self, count: int) -> None:
        """Lets the server send as much as was read."""
        self._owed += count
        if self._owed >= WINDOW_BYTES // 4 and self._status is None:
            updates = (frames.window_update(stream, self._owed) for stream in (0, frames.STREAM))
            self._link.send(b"".join(updates))
            self._owed = 0

    # What comes

    def _lost(self, why: str) -> None:
        self._end(Status(status.UNAVAILABLE, why))

    def _end(self, how: Status) -> None:
        if self._status is None:
            self._status = how
        self._link.stop_reading()
        _wake(self._reader)
        _wake(self._room)

    def _received(self, data: bytes) -> None:
        """Takes what came, cut anywhere."""
        try:
            self._take(self._pending + data if self._pending else data)
        except ProtocolError as error:
            self._end(Status(status.INTERNAL, str(error)))
        if self._ready:
            _wake(self._reader)

    def _take(self, data: bytes) -> None:
        at = 0
        while self._status is None:
            frame = self._frame
            if frame is None:
                if len(data) - at < frames.HEAD_BYTES:
                    break
                frame = self._frame = frames.parse_head(data, at)
                at += frames.HEAD_BYTES
            there = min(frame.left, len(data) - at)
            if frame.kind == Kind.DATA:
                self._take_data(frame, memoryview(data)[at : at + there])
            elif there < frame.left:
                break
            else:
                self._control(frame, data[at : at + there])
            at += there
            frame.left -= there
            if frame.left:
                break
            self._frame = None
        self._pending = data[at:]

    def _take_data(self, frame: frames.Frame, data: memoryview) -> None:
        if frame.flags & Flag.PADDED or frame.stream != frames.STREAM or not self._fields:
            raise ProtocolError("the server sent data that does not belong to the call")
        self._messages.take(data)
        if frame.flags & Flag.END_STREAM and len(data) == frame.left:
            raise ProtocolError("the server ended the call without a status")

    def _control(self, frame: frames.Frame, payload: bytes) -> None:
        kind = frame.kind
        if kind == Kind.HEADERS:
            self._block = frames.header_block(frame.flags, payload)
            self._last = bool(frame.flags & Flag.END_STREAM)
            self._headers(frame)
        elif kind == Kind.CONTINUATION:
            self._block += payload
            self._headers(frame)
        elif kind == Kind.SETTINGS and not frame.flags & Flag.ACK:
            self._settings(frames.parse_settings(payload))
        elif kind == Kind.PING and not frame.flags & Flag.ACK:
            self._link.send(frames.frame(Kind.PING, Flag.ACK, 0, payload[:8]))
        elif kind == Kind.WINDOW_UPDATE:
            self._widen(frame.stream, frames.parse_number(payload))
        elif kind == Kind.RST_STREAM:
            self._end(status.of_reset(frames.parse_number(payload)))
        elif kind == Kind.GOAWAY and frames.parse_number(payload) < frames.STREAM:
            self._end(Status(status.UNAVAILABLE, "the server takes no calls on this connection"))
        elif kind == Kind.PUSH_PROMISE:
            raise ProtocolError("the server promised what was not asked for")

    def _headers(self, frame: frames.Frame) -> None:
        if len(self._block) > headers.MAX_BLOCK_BYTES:
            raise ProtocolError("the server sent too many headers")
        if not frame.flags & Flag.END_HEADERS:
            return
        fields, self._block = dict(headers.decode(self._block)), b""
        if fields.get(":status", "").startswith("1"):
            return
        first = not self._fields
        self._fields.update(fields)
        if self._last:
            self._end(status.of_trailers(self._fields))
        elif first and not self._is_grpc():
            self._end(status.of_http(self._fields))

    def _is_grpc(self) -> bool:
        kind = self._fields.get("content-type", "")
        return self._fields.get(":status") == "200" and kind.startswith("application/grpc")

    def _settings(self, values: dict[int, int]) -> None:
        window = values.get(Setting.INITIAL_WINDOW_SIZE, self._initial_window)
        self._stream_window += window - self._initial_window
        self._initial_window = window
        self._max_frame = values.get(Setting.MAX_FRAME_SIZE, self._max_frame)
        self._link.send(frames.head(Kind.SETTINGS, Flag.ACK, 0, 0))
        _wake(self._room)

    def _widen(self, stream: int, count: int) -> None:
        if stream == 0:
            self._window += count
        else:
            self._stream_window += count
        _wake(self._room)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
