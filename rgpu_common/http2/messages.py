"""gRPC's messages, put together from the pieces that frames bring."""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from rgpu_common.errors import ProtocolError
from rgpu_common.tunnel.chunk import MAX_MESSAGE_BYTES

# Before a message: whether it is compressed, and its length.
PREFIX: Final = struct.Struct(">BI")


class TooLongError(ProtocolError):
    """A message is longer than agreed."""


def check_prefix(compressed: int, size: int) -> None:
    """Raises ProtocolError if a message cannot begin so."""
    if compressed:
        raise ProtocolError("the peer sent a message that is compressed, which was not agreed on")
    if size > MAX_MESSAGE_BYTES:
        raise TooLongError(f"the peer sent a message of {size} bytes, which was not agreed on")


class Messages:
    """ready: whole messages, the oldest first; one that came in one piece is a view of it."""

    def __init__(self) -> None:
        self.ready: deque[bytes | memoryview] = deque()
        self._prefix = b""
        self._parts: list[memoryview] = []
        self._size = 0
        self._left = -1  # of the message; -1: its prefix is not whole

    @property
    def begun(self) -> int:
        """The length of the message that is being put together; 0: there is none."""
        return self._size if self._left > 0 else 0

    def take(self, data: memoryview) -> None:
        """Takes the next bytes, cut anywhere.

        Raises:
            ProtocolError: a message is compressed, or longer than agreed.
        """
        while data:
            if self._left < 0:
                data = self._begin(data)
            else:
                size = min(self._left, len(data))
                self._parts.append(data[:size])
                self._left -= size
                data = data[size:]
            if self._left == 0:
                parts, self._parts, self._left = self._parts, [], -1
                self.ready.append(parts[0] if len(parts) == 1 else b"".join(parts))

    def _begin(self, data: memoryview) -> memoryview:
        missing = PREFIX.size - len(self._prefix)
        self._prefix += bytes(data[:missing])
        if len(self._prefix) == PREFIX.size:
            compressed, self._size = PREFIX.unpack(self._prefix)
            self._left = self._size
            self._prefix = b""
            check_prefix(compressed, self._left)
        return data[missing:]
