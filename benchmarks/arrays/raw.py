"""What a transfer is compared with: bytes through a Unix socket between this process and one on the
node's processors, from memory into memory.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.arrays.timing import once

_SEND, _TAKE = b"s", b"t"


@dataclass
class Peer:
    """The other process. Both have memory that they have used before."""

    line: socket.socket
    memory: bytearray

    def up(self) -> float:
        """Seconds to send all of the memory to the node."""
        return once(self._send)

    def down(self) -> float:
        """Seconds to receive as much from there."""
        return once(self._receive)

    def _send(self) -> None:
        self.line.sendall(_TAKE)
        self.line.sendall(self.memory)
        self.line.recv(1)

    def _receive(self) -> None:
        self.line.sendall(_SEND)
        _fill(self.line, self.memory)


@contextmanager
def peer(node: str, size: int) -> Iterator[Peer]:
    """Starts the other process. node: its processors, as `taskset -c` takes them."""
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-m", __name__, str(theirs.fileno()), str(size)]
    with theirs:
        process = subprocess.Popen(["taskset", "-c", node, *words], pass_fds=[theirs.fileno()])
    with process, ours:
        yield Peer(ours, bytearray(os.urandom(1) * size))
        ours.shutdown(socket.SHUT_RDWR)


def _fill(line: socket.socket, memory: bytearray) -> None:
    view = memoryview(memory)
    while view:
        got = line.recv_into(view)
        if not got:
            raise EOFError("the other process has ended")
        view = view[got:]


def _serve(line: socket.socket, memory: bytearray) -> None:
    while order := line.recv(1):
        if order == _SEND:
            line.sendall(memory)
        else:
            _fill(line, memory)
            line.sendall(_TAKE)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as end:
        _serve(end, bytearray(b"\1" * int(sys.argv[2])))
