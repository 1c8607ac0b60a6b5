"""A relay before a server's Unix socket that keeps what passes, to be read as frames."""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import Self

from rgpu_common.closing import Closing
from rgpu_common.wire.frame import Frame, decode_frames

DEADLINE_SECONDS = 30
PIECE_BYTES = 1 << 16


@dataclass
class Lane:
    """One connection: what the client sent, and what the server sent."""

    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)

    @functools.cached_property
    def commands(self) -> list[Frame]:
        """The frames of the client."""
        return list(decode_frames(bytes(self.sent)))

    @functools.cached_property
    def answers(self) -> list[Frame]:
        """The frames of the server."""
        return list(decode_frames(bytes(self.received)))


class Recorder(Closing):
    """`with Recorder(server.unix) as recorder:` relays from `recorder.unix`."""

    def __init__(self, server: str) -> None:
        self._server = server.removeprefix("unix:")
        self._folder = tempfile.mkdtemp(prefix="rgpu-test-")
        self.unix = f"unix:{self._folder}/recorder"
        self.lanes: list[Lane] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._listener.bind(self.unix.removeprefix("unix:"))
        self._listener.listen()
        self._start(self._accept)
        return self

    def close(self) -> None:
        """Ends the recorder; its threads end with their connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the recorder stops
                return
            lane = Lane()
            self.lanes.append(lane)
            self._start(self._serve, client, lane)

    def _serve(self, client: socket.socket, lane: Lane) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            back = threading.Thread(target=_carry, args=(server, client, lane.received))
            back.start()
            _carry(client, server, lane.sent)
            back.join(DEADLINE_SECONDS)


def _carry(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
    try:
        while data := source.recv(PIECE_BYTES):
            kept += data
            target.sendall(data)
    except OSError:
        pass  # one end has gone
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
