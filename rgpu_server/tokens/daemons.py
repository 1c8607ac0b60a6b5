"""The connection to the daemon that is there, at most one at a time."""

from __future__ import annotations

import contextlib
import errno
import logging
from typing import TYPE_CHECKING

from rgpu_common.errors import ProtocolError
from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.poller import READ, WRITE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from rgpu_server.tokens.poller import Poller

log = logging.getLogger("rgpu.tokens")


class Daemons:
    """heard: takes a message and its descriptors; ProtocolError: the daemon is left.
    gone: called after a daemon has left.
    """

    def __init__(
        self,
        poller: Poller,
        heard: Callable[[say.Message, list[int]], None],
        gone: Callable[[], None],
    ) -> None:
        self._poller = poller
        self._heard = heard
        self._gone = gone
        self._channel: say.Channel | None = None

    @property
    def here(self) -> bool:
        """Whether a daemon is connected."""
        return self._channel is not None

    @property
    def behind(self) -> bool:
        """Whether it has not yet read what it was told before."""
        return self._channel is not None and self._channel.waiting

    def meet(self, connection: socket.socket) -> None:
        """A daemon has connected; the one before must have left."""
        self._channel = say.Channel(connection)
        self._poller.watch(self._channel.fileno(), READ, self._said)

    def leave(self) -> None:
        """Closes the connection, if there is one."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        self._poller.unwatch(channel.fileno())
        channel.close()
        self._gone()

    def tell(self, message: say.Message, fds: Sequence[int] = ()) -> None:
        """Sends a message, or keeps it until there is room; nothing if nobody is there."""
        if self._channel is not None:
            # That it is gone is heard where it is read from.
            with contextlib.suppress(OSError):
                self._channel.send(message, fds)

    def flush(self) -> None:
        """Sends what was kept, and waits for room for the rest."""
        channel = self._channel
        if channel is None:
            return
        try:
            channel.flush()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                log.warning("the daemon's socket: %s", error)
        self._poller.change(channel.fileno(), READ | (WRITE if channel.waiting else 0))

    def close(self) -> None:
        """Closes the connection; `gone` is not called."""
        if self._channel is not None:
            self._channel.close()

    def _said(self) -> None:
        try:
            while self._channel is not None:
                got = self._channel.receive()
                if got is None:
                    break
                self._heard(*got)
            self.flush()
        except EOFError:
            self.leave()
        except ProtocolError as error:
            log.error("the daemon is left: %s", error)
            self.leave()
