"""The socket between a session and its compiler: messages in, replies out, both bounded."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Final

from rgpu_common.wire.compiler import HEAD_BYTES, Head, MessageType, decode_head, put_head
from rgpu_common.wire.frame import WireError

if TYPE_CHECKING:
    import socket

# How many unprocessed bytes every connection may send. Longer messages are read from one connection
# at a time, the one that has the floor.
FREE_BYTES: Final = 256 << 10
_CHUNK: Final = 1 << 20


class Connection:
    """One connection. Requests are answered in order: the next is read when the client has taken
    the reply.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.request = 0  # number of the request in progress, 0: none
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def wants_floor(self) -> bool:
        """True if its request is longer than the free bytes and has not arrived whole."""
        return len(self._incoming) >= FREE_BYTES and not self._whole()

    def events(self, *, floor: bool) -> int:
        """Returns the events to wait for on its socket."""
        reading = floor or len(self._incoming) < FREE_BYTES
        writing = selectors.EVENT_WRITE if self._outgoing else 0
        return (selectors.EVENT_READ if reading else 0) | writing

    def receive(self, *, floor: bool) -> None:
        """Reads bytes that have arrived.

        Raises:
            ConnectionResetError: the other end has closed the connection.
            WireError: the other end sends too much before it gets an answer.
            OSError: the connection is broken.
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
            # Without reading on, the end of the connection would not be noticed.
            raise WireError("it sends too much before it gets an answer")

    def take(self) -> tuple[MessageType, bytes] | None:
        """Returns the next request when it is complete and the earlier reply has been sent; else
        None.

        Raises:
            WireError: the bytes are not a message.
        """
        if self.request or self._outgoing or not self._whole():
            return None
        head = self._head()
        end = HEAD_BYTES + head.body_bytes
        body = bytes(memoryview(self._incoming)[HEAD_BYTES:end])
        del self._incoming[:end]
        return head.message, body

    def send(self, kind: MessageType, body: bytes) -> None:
        """Sends a reply, as much as the socket takes now; OSError if the connection is broken."""
        self._outgoing += put_head(Head(kind, len(body)))
        self._outgoing += body
        self.flush()

    def flush(self) -> None:
        """Sends as much as the socket takes; OSError if the connection is broken."""
        try:
            while self._outgoing:
                sent = self.sock.send(memoryview(self._outgoing)[:_CHUNK])
                del self._outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            pass

    def _head(self) -> Head:
        return decode_head(bytes(self._incoming[:HEAD_BYTES]))

    def _whole(self) -> bool:
        if len(self._incoming) < HEAD_BYTES:
            return False
        try:
            return len(self._incoming) >= HEAD_BYTES + self._head().body_bytes
        except WireError:
            # `take` refuses a wrong head when its turn comes. No more bytes are read after it.
            return True
