"""A server that answers probes as it likes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import Self

from netprobe.native import Offer, put_offer
from rgpu_common.closing import Closing
from rgpu_common.wire.frame import HEADER_BYTES, Flags, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake

ECHO, UP, DOWN, COUNT = 1, 2, 3, 4
SECONDS = 20.0


def answer(head: bytes) -> bytes:
    """A frame of the probe's protocol."""
    return encode_frame(Kind.HANDSHAKE, Handshake.PROBE, head)


def arrivals(*rows: tuple[int, int]) -> bytes:
    """Returns a server's answer to a train: bytes and nanoseconds."""
    data = b"".join(struct.pack("<QQ", *row) for row in rows)
    return answer(struct.pack("<I", len(data)) + data)


@dataclass(frozen=True)
class Order:
    verb: int
    piece: int
    bytes: int
    head: bytes


class Guest:
    """A client, as the liar has it."""

    def __init__(self, connection: socket.socket, over: threading.Event) -> None:
        self.connection = connection
        self.over = over
        connection.settimeout(SECONDS)

    def frame(self) -> bytes:
        """Returns the head of the next frame and drops its bulk. OSError when the client
        has left.
        """
        header = parse_header(self.exactly(HEADER_BYTES))
        head = self.exactly(header.head_bytes)
        self.exactly(header.bulk_bytes)
        return head

    def order(self) -> Order:
        head = self.frame()
        verb, piece, count = struct.unpack_from("<IIQ", head)
        return Order(verb, piece, count, head)

    def train(self) -> int:
        """Reads one; how many bytes it had."""
        count = 0
        while True:
            header = parse_header(self.exactly(HEADER_BYTES))
            self.exactly(header.payload_bytes)
            count += header.bulk_bytes
            if not header.flags & Flags.MORE:
                return count

    def exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.connection.recv(count - len(data))
            if not piece:
                raise OSError("it has left")
            data += piece
        return bytes(data)

    def trickle(self, data: bytes, pause: float = 0.02) -> None:
        """A byte now and then: each is in time."""
        for byte in data:
            if self.over.wait(pause):
                return
            self.connection.sendall(bytes((byte,)))


Answers = Callable[[Guest, Order], None]


def echoes(guest: Guest, order: Order) -> None:
    """Answers round trips and nothing else."""
    if order.verb == ECHO:
        guest.connection.sendall(answer(order.head))


@dataclass
class Liar(Closing):
    """`with Liar() as liar:` listens at `liar.uri`.

    first: its answer to PROBE; by default `offer`. answers: its answers to orders.
    """

    offer: Offer = field(default_factory=lambda: Offer(bytes=1 << 30, seconds=15.0))
    answers: Answers = echoes
    first: bytes = b""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self.over = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def close(self) -> None:
        """Ends the responder with all its connections."""
        self.over.set()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SECONDS)
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        guest = Guest(connection, self.over)
        with contextlib.suppress(OSError):
            guest.frame()
            connection.sendall(self.first or answer(put_offer(self.offer)))
            while True:
                self.answers(guest, guest.order())
