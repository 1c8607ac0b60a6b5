"""Watches the processes of clients on this machine, so that a session ends with its process.

A session that survives cuts outlives its connections for `resume_grace`, because the server cannot
tell a killed client from a cut connection.  On the same machine it can.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CREDENTIALS = struct.Struct("3i")
# A client that ends in good order says BYE, and its worker ends by itself.
_BYE_SECONDS = 0.2


class ClientProcesses:
    """`died` hears of each watched session whose process has ended."""

    def __init__(self, died: Callable[[int], None]) -> None:
        self._died = died
        self._pidfds: dict[int, int] = {}

    def watch(self, session: int, connection: socket.socket, pid: int) -> None:
        """Watches the process at the other end of a Unix socket, if it is the client itself.

        pid: what the client calls itself. A proxy between client and server has another number, in
        whichever namespace of processes the client lives.
        """
        peer = _peer_pid(connection)
        if peer <= 0:
            return
        try:
            pidfd = os.pidfd_open(peer)
        except OSError:
            return  # it has ended already, and its connection shows that
        if _own_number(peer) != pid:
            os.close(pidfd)
            return
        self._pidfds[session] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, session)

    def forget(self, session: int) -> None:
        """Ends the watch, if there is one."""
        pidfd = self._pidfds.pop(session, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        """Ends all watches."""
        for session in list(self._pidfds):
            self.forget(session)

    def _ended(self, session: int) -> None:
        self.forget(session)
        asyncio.get_running_loop().call_later(_BYE_SECONDS, self._died, session)


def _peer_pid(connection: socket.socket) -> int:
    """Returns the process that connected the Unix socket; 0: it is not visible from here."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    return int(_CREDENTIALS.unpack(data)[0])


def _own_number(pid: int) -> int:
    """Returns the number of a process in its own namespace; 0: unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^NSpid:.*?(\d+)$", status, re.MULTILINE)
    return int(found[1]) if found else 0
