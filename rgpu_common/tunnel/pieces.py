"""Reads a tunnel's messages from bytes cut anywhere. Passes data on before a message is whole."""

from __future__ import annotations

from typing import Final, Protocol

from rgpu_common.http2.messages import PREFIX, check_prefix
from rgpu_common.tunnel.chunk import DATA, LENGTH_BYTES, decode

_MOST_HEAD: Final = PREFIX.size + 1 + LENGTH_BYTES
_UNKNOWN = -1


class Target(Protocol):
    """Receives what a tunnel brings."""

    def data(self, piece: memoryview) -> None:
        """Receives bytes of the connection. `piece` is valid only during the call."""

    def said_all(self) -> None:
        """Called when a message says that no data follows."""


class Pieces:
    """Takes the bytes of a gRPC stream of `Chunk`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._head = b""
        # Bytes that are still to come of the present data, or of a message that is collected.
        self._left = 0
        self._gathered: bytearray | None = None

    @property
    def gathered(self) -> int:
        """Number of collected bytes of a message that cannot be passed on in parts."""
        return 0 if self._gathered is None else len(self._gathered)

    def take(self, data: memoryview) -> None:
        """Takes the next bytes.

        Raises:
            ProtocolError: the bytes are not those of a tunnel; messages.TooLongError if a message
                is too long.
        """
        while data:
            if not self._left:
                data = self._begin(data)
                continue
            piece = data[: self._left]
            data = data[len(piece) :]
            self._left -= len(piece)
            if self._gathered is None:
                self._target.data(piece)
            else:
                self._gather(piece)

    def _begin(self, data: memoryview) -> memoryview:
        """Takes the head of a message, or a part of the head."""
        kept = len(self._head)
        head = self._head + bytes(data[: _MOST_HEAD - kept])
        self._head = head
        if len(head) < PREFIX.size:
            return data[len(head) - kept :]
        compressed, size = PREFIX.unpack_from(head)
        check_prefix(compressed, size)
        start = _start(head, size)
        if start == _UNKNOWN:
            return data[len(head) - kept :]
        self._head = b""
        if start or not size:
            self._left = size - start
            return data[PREFIX.size + start - kept :]
        # The message has other fields than data, so it is collected. Its first bytes may be in
        # `head`.
        self._left, self._gathered = size, bytearray()
        early = memoryview(head)[PREFIX.size : kept]
        if early:
            self._left -= len(early)
            self._gather(early)
        return data[max(0, PREFIX.size - kept) :]

    def _gather(self, piece: memoryview) -> None:
        assert self._gathered is not None
        self._gathered += piece
        if self._left:
            return
        data, end = decode(bytes(self._gathered))
        self._gathered = None
        if data:
            self._target.data(memoryview(data))
        if end:
            self._target.said_all()


def _start(head: bytes, size: int) -> int:
    """Returns where the data begins in a message of this size that has only data. 0: the message
    has other fields. _UNKNOWN: more bytes of the head are needed to tell.
    """
    there = memoryview(head)[PREFIX.size : PREFIX.size + size]
    if not there:
        return _UNKNOWN if size else 0
    if there[0] != DATA:
        return 0
    length = shift = 0
    for at in range(1, len(there)):
        length |= (there[at] & 0x7F) << shift
        if there[at] < 0x80:
            return at + 1 if at + 1 + length == size else 0
        shift += 7
    return _UNKNOWN if len(there) < min(size, 1 + LENGTH_BYTES) else 0
