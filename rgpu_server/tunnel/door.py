"""The way to the daemon: it is passed one end of a pair of sockets for each client."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

log = logging.getLogger("rgpu.tunnel")

_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.01


class Door:
    """descriptor: a socket that keeps messages whole; each message carries one connection.

    A gateway that connected to a socket of the daemon would need the daemon's user.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Brings nobody any more."""
        self._socket.close()

    async def connect(self) -> socket.socket | None:
        """Returns a connection to the daemon; None if it takes none, which is in the log."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            log.warning("a socket to the server: %s", error)
            return None
        ours.setblocking(False)
        try:
            with theirs:
                while not self._pass(theirs):
                    # Hundreds wait that the daemon has not taken yet.
                    if loop.time() > deadline:
                        raise TimeoutError("it takes nobody")
                    await asyncio.sleep(_PAUSE_SECONDS)
        except OSError as error:
            log.warning("the server does not take a client: %s", error)
            ours.close()
            return None
        except BaseException:
            ours.close()
            raise
        return ours

    def _pass(self, connection: socket.socket) -> bool:
        """False: there is no room; OSError: the daemon has gone."""
        try:
            socket.send_fds(self._socket, [b"c"], [connection.fileno()])
        except BlockingIOError:
            return False
        return True
