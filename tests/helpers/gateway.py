"""The gateway process of `grpc:` alone. The test takes the daemon's place."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from pathlib import Path

from typing_extensions import Self

from helpers import pki
from helpers.ends import killed
from helpers.telling import Telling
from rgpu_common.wire.frame import HEADER_BYTES, parse_header
from rgpu_common.wire.preface import Preface, decode_preface
from rgpu_server.gateway.figures import Figures
from rgpu_server.workers.binary import gateway_path

DEADLINE_SECONDS = 30


class Gateway(Telling):
    """`with Gateway() as gateway:` runs a gateway.

    Clients connect to `gateway.address`. The test calls `gateway.accept()` for the connection that
    the gateway makes of a client's tunnel.
    """

    def __init__(self, *options: str, scheme: str = "grpc", port: int = 0) -> None:
        self._scheme, self._port = scheme, port
        self._options = [*options]
        if scheme == "grpcs":
            folder = pki.folder()
            files = {"certificate": "server.pem", "key": "server.key", "client-ca": "ca.pem"}
            for name, file in files.items():
                self._options += [f"--{name}", str(folder / file)]
        self.figures = Figures()
        self.target = ""

    @property
    def address(self) -> str:
        """The address to which agents connect."""
        return f"{self._scheme}:{self.target}"

    def __enter__(self) -> Self:
        self._door, entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.settimeout(DEADLINE_SECONDS)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(DEADLINE_SECONDS)
        with socket.create_server(("127.0.0.1", self._port)) as listener, theirs, entrance:
            listener.setblocking(False)
            self.target = f"127.0.0.1:{listener.getsockname()[1]}"
            passed = (theirs.fileno(), entrance.fileno(), listener.fileno())
            options = ("--control-fd", "--door-fd", f"--{self._scheme}-fd")
            words = [word for pair in zip(options, map(str, passed), strict=True) for word in pair]
            self.process = subprocess.Popen(
                [gateway_path(), *words, *self._options],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=passed,
            )
        kind, _, missing = self.control.recv(1 << 16).decode().partition("\t")
        assert (kind, missing) == ("isolation", ""), missing
        assert self.control.recv(1 << 16) == b"ready"
        return self

    def end_daemon(self) -> None:
        """Closes what a daemon that ends closes: the gateway finishes its calls and ends."""
        self.control.close()
        self._door.close()

    def refused(self, reason: str) -> int:
        """Returns how often the gateway has reported a refusal for this reason."""
        self.control.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while line := self.control.recv(1 << 16).decode():
                kind, _, figures = line.partition("\t")
                if kind == "figures":
                    self.figures.heard(figures)
        return self.figures.refused(reason)

    def descriptors(self) -> int:
        """Returns how many descriptors the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def accept(self) -> tuple[socket.socket, Preface]:
        """Returns the next connection, and its PREFACE."""
        _, (descriptor,), _, _ = socket.recv_fds(self._door, 16, 1)
        connection = socket.socket(fileno=descriptor)
        connection.settimeout(DEADLINE_SECONDS)
        header = parse_header(receive(connection, HEADER_BYTES))
        return connection, decode_preface(receive(connection, header.payload_bytes))

    def is_called_before(self, other: socket.socket) -> bool:
        """Waits for a connection to accept, or until `other` has bytes or its end to read; returns
        True for the connection.
        """
        heard, _, _ = select.select([self._door, other], [], [], DEADLINE_SECONDS)
        return self._door in heard

    def close_door(self) -> None:
        """Closes the door, so that connections of later clients are not accepted."""
        self._door.close()

    def resident_bytes(self) -> int:
        """Returns the resident memory of the process in bytes."""
        return resident_bytes(self.process.pid)

    def close(self) -> None:
        """Kills the gateway."""
        killed(self.process)
        _, self._errors = self.process.communicate()
        self.control.close()
        self._door.close()

    def told(self) -> str:
        return self._errors.decode(errors="replace")


def receive(connection: socket.socket, count: int) -> bytes:
    """Returns exactly `count` bytes; AssertionError if the peer ends before."""
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, f"the peer ended after {len(data)} of {count} bytes"
        data += piece
    return bytes(data)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
