"""The gateway process of `grpc:` alone, in front of a door that is the test's."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from rgpu_common.wire.frame import HEADER_BYTES, parse_header
from rgpu_common.wire.preface import Preface, decode_preface

DEADLINE_SECONDS = 30


class Gateway:
    """`with Gateway() as gateway:`; clients connect to `gateway.address`, the test calls
    `gateway.accept()` for the connection that a client's tunnel has become.
    """

    def __init__(self, *options: str, scheme: str = "grpc", port: str = "0") -> None:
        self._listen = f"{scheme}:127.0.0.1:{port}"
        self._options = options
        self.address = ""

    def __enter__(self) -> Self:
        self._door, entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.settimeout(DEADLINE_SECONDS)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(DEADLINE_SECONDS)
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "rgpu_server.tunnel", "--control-fd", str(theirs.fileno()),
                "--door-fd", str(entrance.fileno()), "--listen", self._listen, *self._options,
            ],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(), entrance.fileno()),
        )  # fmt: skip
        theirs.close()
        entrance.close()
        kind, _, missing = self.control.recv(1 << 16).decode().partition("\t")
        assert (kind, missing) == ("isolation", ""), missing
        kind, _, bound = self.control.recv(1 << 16).decode().partition("\t")
        assert kind == "ready", bound
        self.address = bound.split(" ")[0]
        return self

    def accept(self) -> tuple[socket.socket, Preface]:
        """The next connection, and what the gateway says of it."""
        _, (descriptor,), _, _ = socket.recv_fds(self._door, 16, 1)
        connection = socket.socket(fileno=descriptor)
        connection.settimeout(DEADLINE_SECONDS)
        header = parse_header(receive(connection, HEADER_BYTES))
        return connection, decode_preface(receive(connection, header.payload_bytes))

    def resident_bytes(self) -> int:
        """What the process holds in memory."""
        return resident_bytes(self.process.pid)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        _, errors = self.process.communicate()
        self.control.close()
        self._door.close()
        if error is not None:
            sys.stderr.write(f"--- gateway\n{errors.decode(errors='replace')}")


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes; AssertionError if the peer ends before."""
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, f"the peer ended after {len(data)} of {count} bytes"
        data += piece
    return bytes(data)


def resident_bytes(pid: int) -> int:
    """What a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
