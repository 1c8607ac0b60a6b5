"""The client's end of a session over a ring in shared memory, frame by frame."""

from __future__ import annotations

import mmap
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from worker.client import (
    OF_WORKERS,
    RIGHT_ENDS,
    SECONDS,
    Client,
    Connection,
    Gone,
    hello,
    worker_command,
)

from helpers.ends import ended
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import HEADER_BYTES, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import encode_hello
from rgpu_common.wire.refused import Refused, decode_refused
from rgpu_common.wire.shm import Shm, put_shm
from rgpu_common.wire.welcome import Welcome, decode_welcome

CONTROL_BYTES = 256
DATA_OFFSET = 4096
TAIL, HEAD, READER_SLEEPS, WRITER_SLEEPS = 0, 64, 128, 192
# The worker writes the first ring and reads the second.
FROM_WORKER, TO_WORKER = 0, 1
MOST_DESCRIPTORS = 4
RINGS = Wish(WishKey.SHM, 1)


class Ring:
    """The memory that came with WELCOME. A test can set every word of it to any value."""

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self.bytes = (size - DATA_OFFSET) // 2
        self.memory = mmap.mmap(fd, size)
        # Memory views read and write words whole. `struct` goes byte by byte, so the worker could
        # see positions that were never written.
        self._positions = memoryview(self.memory).cast("Q")
        self._flags = memoryview(self.memory).cast("I")

    def get(self, ring: int, word: int) -> int:
        return self._words(word)[(ring * CONTROL_BYTES + word) // self._words(word).itemsize]

    def set(self, ring: int, word: int, value: int) -> None:
        words = self._words(word)
        words[(ring * CONTROL_BYTES + word) // words.itemsize] = value

    def _words(self, word: int) -> memoryview[int]:
        return self._positions if word in (TAIL, HEAD) else self._flags

    def close(self) -> None:
        self._positions.release()
        self._flags.release()
        self.memory.close()

    def read(self, limit: int) -> bytes:
        """Reads the bytes that are available, at most `limit`."""
        head = self.get(FROM_WORKER, HEAD)
        count = min(limit, self.get(FROM_WORKER, TAIL) - head)
        data = bytearray()
        while count > len(data):
            at = (head + len(data)) % self.bytes
            piece = min(count - len(data), self.bytes - at)
            data += self.memory[DATA_OFFSET + at : DATA_OFFSET + at + piece]
        self.set(FROM_WORKER, HEAD, head + count)
        return bytes(data)

    def write(self, data: bytes) -> int:
        """Writes as many bytes as fit; returns their number."""
        tail = self.get(TO_WORKER, TAIL)
        count = min(len(data), self.bytes - (tail - self.get(TO_WORKER, HEAD)))
        start = DATA_OFFSET + self.bytes
        done = 0
        while done < count:
            at = (tail + done) % self.bytes
            piece = min(count - done, self.bytes - at)
            self.memory[start + at : start + at + piece] = data[done : done + piece]
            done += piece
        self.set(TO_WORKER, TAIL, tail + count)
        return count


class RingClient(Client):
    """A client that accepts or declines the ring."""

    def __init__(
        self,
        lane: socket.socket,
        control: Connection,
        process: subprocess.Popen[bytes],
        *,
        accept: bool = True,
    ) -> None:
        super().__init__(lane, control, process)
        self.accept = accept
        self.ring: Ring | None = None
        self.device: mmap.mmap | None = None
        self.descriptors: list[int] = []

    def welcome(self) -> Welcome | Refused:
        """Sends HELLO and returns WELCOME. The descriptors that came with it are in
        `descriptors`.
        """
        self.send(encode_hello(hello(minor=2, wishes=(RINGS,))))
        data = b""
        while len(data) < HEADER_BYTES:
            got, fds, _, _ = socket.recv_fds(
                self.socket, HEADER_BYTES - len(data), MOST_DESCRIPTORS
            )
            if not got:
                raise Gone
            data += got
            self.descriptors += fds
        header = parse_header(data)
        self._deadline = time.monotonic() + 20
        head = self._read(header.payload_bytes)
        if header.opcode == Handshake.REFUSED:
            return decode_refused(head)
        return decode_welcome(head)

    def answer(self, shm: Shm) -> None:
        self.send(encode_frame(Kind.HANDSHAKE, Handshake.SHM, put_shm(shm)))

    def open(self, message: object = None) -> Welcome | Refused:
        assert message is None
        welcome = self.welcome()
        if isinstance(welcome, Refused):
            return welcome
        if len(self.descriptors) > 1:
            # Only the beginning is mapped: Python maps no terabytes.
            self.device = mmap.mmap(self.descriptors[1], 1 << 30)
        self.band = welcome.band.base
        self.answer(Shm(int(self.accept), "" if self.accept else "not today"))
        if self.accept:
            self.ring = Ring(self.descriptors[0])
        assert self.control.frame().header.opcode == Handshake.ATTACHED
        return welcome

    def _read(self, count: int) -> bytes:
        if self.ring is None:
            return super()._read(count)
        data = b""
        while len(data) < count:
            assert time.monotonic() < self._deadline, "the worker did not answer in time"
            self.ring.set(FROM_WORKER, READER_SLEEPS, 1)
            got = self.ring.read(count - len(data))
            self.bell()
            data += got
            # Bytes that were written before the end are still in the ring.
            if not got and self._over() and not self._more():
                raise Gone
        return data

    def _over(self) -> bool:
        """Waits a little for a doorbell; returns True if the worker has closed the connection."""
        if not select.select([self.socket], [], [], 0.05)[0]:
            return False
        try:
            return not self.socket.recv(4096)
        except ConnectionResetError:
            return True

    def _more(self) -> bool:
        assert self.ring is not None
        return self.ring.get(FROM_WORKER, TAIL) != self.ring.get(FROM_WORKER, HEAD)

    def bell(self) -> None:
        # Rings also when the worker does not wait, which the worker must accept.
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self.socket.send(b"\1", socket.MSG_DONTWAIT)

    def send(self, data: bytes) -> None:
        if self.ring is None:
            super().send(data)
            return
        self._deadline = time.monotonic() + SECONDS
        while data:
            assert time.monotonic() < self._deadline, "the worker did not read in time"
            data = data[self.ring.write(data) :]
            self.bell()

    def memory_at(self, address: int) -> int:
        """Returns the place of a device address in `device`."""
        return address - self.band

    def close(self) -> None:
        """Closes the mappings and descriptors."""
        for one in (self.ring, self.device):
            if one is not None:
                one.close()
        for fd in self.descriptors:
            os.close(fd)


@contextmanager
def ring_worker(*, accept: bool = True, **environment: str) -> Iterator[RingClient]:
    """Starts a worker that waits for HELLO on a Unix socket; it ends with the block."""
    ours, theirs = socket.socketpair()
    control, their_control = socket.socketpair()
    fds = (theirs.fileno(), their_control.fileno())
    process = subprocess.Popen(
        [*worker_command(), "--serve-fd", str(fds[0]), "--control-lane-fd", str(fds[1])],
        pass_fds=fds,
        env={**OF_WORKERS, **os.environ, **environment},
    )
    theirs.close()
    their_control.close()
    client = RingClient(ours, Connection(control), process, accept=accept)
    try:
        yield client
    finally:
        ours.close()
        control.close()
        client.close()
        ended(process, RIGHT_ENDS)


@contextmanager
def ring_session(*, accept: bool = True, **environment: str) -> Iterator[RingClient]:
    """Starts a worker with an open session over a ring, and a context."""
    with ring_worker(accept=accept, **environment) as client:
        client.start()
        yield client
