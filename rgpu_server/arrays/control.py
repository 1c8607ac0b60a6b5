"""The worker's end of its control socket, on which the daemon speaks to it."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from rgpu_common.wire.frame import WireError
from rgpu_common.wire.worker import (
    MAX_MESSAGE_BYTES,
    Assign,
    Ended,
    FromDaemon,
    Opened,
    Ready,
    Refused,
    decode_from_daemon,
    encode_ended,
    encode_opened,
    encode_ready,
    encode_refused,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_FDS = 6
# Without a compiler, which only emulated devices need.
_LEAST_ASSIGN_FDS = 5


class ControlSocket:
    """Says READY, hears one ASSIGN, and tells how the session goes."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def ready(self, report: str) -> None:
        """Says which measures of isolation this process lacks, and that it waits."""
        self._socket.sendall(encode_ready(Ready(report)))

    def opened(self) -> None:
        """Says that the client has its WELCOME."""
        self._socket.sendall(encode_opened(Opened()))

    def refused(self, status: int, sentence: str) -> None:
        """Says that the client has its REFUSED."""
        self._socket.sendall(encode_refused(Refused(status, sentence)))

    def ended(self, reason: str) -> None:
        """The last message."""
        try:
            self._socket.sendall(encode_ended(Ended(reason)))
        except OSError:
            return

    def assignment(self) -> tuple[Assign, list[int]] | None:
        """Waits for the session; None if the daemon needs this worker no longer.

        Raises:
            WireError: it is no assignment of this release.
        """
        heard = self.next()
        if heard is None:
            return None
        message, fds = heard
        if not isinstance(message, Assign) or not _LEAST_ASSIGN_FDS <= len(fds) <= _MOST_FDS:
            raise WireError("the daemon's first message is no ASSIGN of this release")
        return message, fds

    def next(self) -> tuple[FromDaemon, list[int]] | None:
        """Waits for a message; None if no more will come."""
        try:
            data, fds, _, _ = socket.recv_fds(
                self._socket, MAX_MESSAGE_BYTES, _MOST_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return None
        if not data:
            close_all(fds)
            return None
        return decode_from_daemon(data), fds


def close_all(fds: Sequence[int]) -> None:
    """Closes descriptors that came with a message."""
    for fd in fds:
        os.close(fd)
