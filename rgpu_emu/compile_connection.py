"""One session's socket at its compiler: messages in, replies out, bounded both ways."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Final

from rgpu_emu.compile_protocol import HEADER, MAX_BODY_BYTES, ProtocolError, message

if TYPE_CHECKING:
    import socket

# What every connection may have sent that is not worked on yet.  Longer messages are read from one
# connection at a time, the one that has the floor.
FREE_BYTES: Final = 256 << 10
_CHUNK: Final = 1 << 20


class Connection:
    """Requests are answered in order: the next is looked at when the reply has been taken."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.request = 0  # number of the request that is worked on, 0: none
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def wants_floor(self) -> bool:
        """True if it has to send more than its free bytes before it can be worked on."""
        return len(self._incoming) >= FREE_BYTES and not self._whole()

    def events(self, *, floor: bool) -> int:
        """What to wait for on its socket."""
        reading = floor or len(self._incoming) < FREE_BYTES
        writing = selectors.EVENT_WRITE if self._outgoing else 0
        return (selectors.EVENT_READ if reading else 0) | writing

    def receive(self, *, floor: bool) -> None:
        """Reads what has come.

        Raises:
            ConnectionResetError: it has closed.
            ProtocolError: it sends what no client sends.
            OSError: it is broken.
        """
        most = _CHUNK if floor else min(_CHUNK, FREE_BYTES - len(self._incoming))
        if most <= 0:
            return
        try:
            data = self.sock.recv(most)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            raise ConnectionResetError
        self._incoming += data
        if self.request and len(self._incoming) >= FREE_BYTES:
            # Reading no further would hide that the other end has gone.
            raise ProtocolError("it sends without end before it is answered")

    def take(self) -> tuple[int, bytes] | None:
        """The next request, once it is whole and the one before is answered.

        Raises:
            ProtocolError: what came is no message.
        """
        if self.request or self._outgoing or not self._whole():
            return None
        kind, zero, size = HEADER.unpack_from(self._incoming)
        if zero or size > MAX_BODY_BYTES:
            raise ProtocolError("a message header is wrong")
        body = bytes(memoryview(self._incoming)[HEADER.size : HEADER.size + size])
        del self._incoming[: HEADER.size + size]
        return kind, body

    def send(self, kind: int, body: bytes) -> None:
        """Sends a reply, what fits of it now; OSError if the connection is broken."""
        self._outgoing += message(kind, body)
        self.flush()

    def flush(self) -> None:
        """Sends what fits; OSError if the connection is broken."""
        try:
            while self._outgoing:
                sent = self.sock.send(memoryview(self._outgoing)[:_CHUNK])
                del self._outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            pass

    def _whole(self) -> bool:
        if len(self._incoming) < HEADER.size:
            return False
        _, zero, size = HEADER.unpack_from(self._incoming)
        # What is no header is refused when its turn comes; nothing more of it is read.
        wrong = zero or size > MAX_BODY_BYTES
        return wrong or len(self._incoming) >= HEADER.size + int(size)
