"""What a client sends, cut into frames and checked; what they mean is `connection`'s."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import frames, headers
from rgpu_common.http2.frames import Error, Flag, Kind
from rgpu_server.http2.allowance import Allowance, ConnectionFailedError

# So many frames at a time: then it is another connection's turn.
FRAMES_A_TURN: Final = 256
MAX_HEADER_LIST: Final = 16 << 10
_MAX_HEADER_BLOCK = 32 << 10
_MAX_CONTINUATIONS = 16
# What a burst of them would cost us, in frames.
_SETTINGS_COST = 50
_RESET_COST = 2
_HEADER_BYTES_A_FRAME = 1024
_SIZES: Final = {Kind.PRIORITY: 5, Kind.RST_STREAM: 4, Kind.PING: 8, Kind.WINDOW_UPDATE: 4}
_COSTS: Final = {Kind.SETTINGS: _SETTINGS_COST, Kind.RST_STREAM: _RESET_COST}
_OF_CONNECTION: Final = (Kind.SETTINGS, Kind.PING, Kind.GOAWAY)
_OF_STREAM: Final = (
    Kind.DATA, Kind.HEADERS, Kind.PRIORITY, Kind.RST_STREAM, Kind.CONTINUATION,
)  # fmt: skip
_HEAD = frames.HEAD_BYTES


class Reader(ABC):
    """`receive`; who derives from this is told of every frame."""

    def __init__(self, now: float) -> None:
        self.allowance = Allowance(now)
        self.begun = False  # the peer speaks HTTP/2
        self._preface = 0
        self._settled = False
        self._head = b""
        self._frame: frames.Frame | None = None
        self._payload = bytearray()
        self._padding = -1
        self._block = bytearray()
        self._block_of: frames.Frame | None = None
        self._continuations = 0
        self._decoder = headers.Decoder()

    def receive(self, data: memoryview, now: float) -> int:
        """Takes what came, cut anywhere; returns how much of it, for the rest has to wait its turn.

        Raises:
            ConnectionFailedError: with what is to be said of it in `out`.
        """
        self.allowance.now = now
        try:
            return self._take(data, 0 if self.begun else self._greet(data))
        except ConnectionFailedError as error:
            self._failed(error)
            raise
        except ProtocolError as error:
            failure = ConnectionFailedError(Error.PROTOCOL, str(error))
            self._failed(failure)
            raise failure from None

    def _greet(self, data: memoryview) -> int:
        wanted = frames.PREFACE[self._preface : self._preface + len(data)]
        if data[: len(wanted)] != wanted:
            raise ConnectionFailedError(Error.PROTOCOL, "the peer speaks no HTTP/2")
        self._preface += len(wanted)
        if self._preface == len(frames.PREFACE):
            self.begun = True
            self._hello()
        return len(wanted)

    def _take(self, data: memoryview, at: int) -> int:
        size = len(data)
        for _ in range(FRAMES_A_TURN):
            frame = self._frame
            if frame is None:
                missing = _HEAD - len(self._head)
                if size - at < missing:
                    self._head += bytes(data[at:])
                    return size
                frame = self._begin(self._head + bytes(data[at : at + missing]))
                at += missing
            there = min(frame.left, size - at)
            piece = data[at : at + there]
            at += there
            frame.left -= there
            if frame.kind == Kind.DATA:
                self._take_data(frame, piece)
            elif frame.kind <= Kind.CONTINUATION:
                self._payload += piece
                if not frame.left:
                    payload = bytes(self._payload)
                    self._payload.clear()
                    self._control(frame, payload)
            if frame.left:
                return at
            self._frame = None
        return at

    def _begin(self, head: bytes) -> frames.Frame:
        frame = frames.parse_head(head, 0)
        kind, stream = frame.kind, frame.stream
        if self._block_of is not None and (
            kind != Kind.CONTINUATION or stream != self._block_of.stream
        ):
            raise ConnectionFailedError(Error.PROTOCOL, "headers were not finished")
        if not self._settled and kind != Kind.SETTINGS:
            raise ConnectionFailedError(Error.PROTOCOL, "the first frame has no settings")
        if kind in _SIZES and frame.left != _SIZES[Kind(kind)]:
            raise ConnectionFailedError(Error.FRAME_SIZE, "a frame has a wrong length")
        if (kind in _OF_STREAM and not stream) or (kind in _OF_CONNECTION and stream):
            raise ConnectionFailedError(Error.PROTOCOL, "a frame belongs to the wrong stream")
        if kind == Kind.DATA:
            self._padding = -1 if frame.flags & Flag.PADDED else 0
            if frame.flags & Flag.PADDED and not frame.left:
                raise ConnectionFailedError(Error.FRAME_SIZE, "data with wrong padding")
            self._begin_data(frame)
        else:
            self.allowance.spend(_COSTS.get(Kind(kind), 1) if kind <= Kind.CONTINUATION else 1)
        self._head = b""
        self._frame = frame
        return frame

    def _take_data(self, frame: frames.Frame, piece: memoryview) -> None:
        if not piece and frame.left:
            return  # its head alone came
        count = len(piece)
        if self._padding:
            piece = self._unpad(frame, piece)
        self._data(frame, piece, count)

    def _unpad(self, frame: frames.Frame, piece: memoryview) -> memoryview:
        if self._padding < 0:
            if piece[0] >= frame.left + len(piece):
                raise ConnectionFailedError(Error.PROTOCOL, "data with wrong padding")
            self._padding = piece[0]
            piece = piece[1:]
        behind = max(0, self._padding - frame.left)
        return piece[: max(0, len(piece) - behind)]

    def _control(self, frame: frames.Frame, payload: bytes) -> None:
        kind = frame.kind
        if kind == Kind.HEADERS:
            self._block_of, self._continuations = frame, 0
            self._headers(frame, frames.header_block(frame.flags, payload))
        elif kind == Kind.CONTINUATION:
            if self._block_of is None:
                raise ConnectionFailedError(Error.PROTOCOL, "a continuation of nothing")
            self._continuations += 1
            self._headers(frame, payload)
        elif kind == Kind.SETTINGS:
            if frame.flags & Flag.ACK and (payload or not self._settled):
                raise ConnectionFailedError(Error.FRAME_SIZE, "an answer that is none")
            self._settled = True
            if not frame.flags & Flag.ACK:
                self._settings(frames.parse_settings(payload))
        elif kind == Kind.PING and not frame.flags & Flag.ACK:
            self._pinged(payload)
        elif kind == Kind.WINDOW_UPDATE:
            self._widened(frame.stream, frames.parse_number(payload))
        elif kind == Kind.RST_STREAM:
            self._was_reset(frame.stream, int.from_bytes(payload, "big"))
        elif kind == Kind.PUSH_PROMISE:
            raise ConnectionFailedError(Error.PROTOCOL, "a client promises nothing")

    def _headers(self, frame: frames.Frame, fragment: bytes) -> None:
        self._block += fragment
        if self._continuations > _MAX_CONTINUATIONS or len(self._block) > _MAX_HEADER_BLOCK:
            raise ConnectionFailedError(Error.ENHANCE_YOUR_CALM, "too many headers")
        if not frame.flags & Flag.END_HEADERS:
            return
        block, first = bytes(self._block), self._block_of
        self._block_of = None
        self._block.clear()
        assert first is not None
        self.allowance.spend(len(block) / _HEADER_BYTES_A_FRAME)
        try:
            # Also of streams that are refused: the table is the connection's.
            fields = self._decoder.decode(block)
        except ProtocolError as error:
            raise ConnectionFailedError(Error.COMPRESSION, str(error)) from None
        self._request(first.stream, fields, bool(first.flags & Flag.END_STREAM))

    # What it means

    @abstractmethod
    def _hello(self) -> None: ...

    @abstractmethod
    def _failed(self, error: ConnectionFailedError) -> None: ...

    @abstractmethod
    def _begin_data(self, frame: frames.Frame) -> None: ...

    @abstractmethod
    def _data(self, frame: frames.Frame, piece: memoryview, count: int) -> None:
        """piece: without padding; count: with it."""

    @abstractmethod
    def _request(self, number: int, fields: headers.Headers, last: bool) -> None: ...

    @abstractmethod
    def _settings(self, values: dict[int, int]) -> None: ...

    @abstractmethod
    def _pinged(self, payload: bytes) -> None: ...

    @abstractmethod
    def _widened(self, number: int, count: int) -> None: ...

    @abstractmethod
    def _was_reset(self, number: int, code: int) -> None: ...
