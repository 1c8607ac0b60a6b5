"""A client's connection: TCP, or TLS over it, on the event loop."""

from __future__ import annotations

import mmap
import ssl
from typing import TYPE_CHECKING, Any, Protocol

from rgpu_common.http2.sending import AGAIN, Sender

if TYPE_CHECKING:
    import socket

_READ_BYTES = 256 << 10
# What is read is taken before anything else is: one buffer, warm in the cache, is enough for all.
_BUFFER = memoryview(mmap.mmap(-1, _READ_BYTES))


class Owner(Protocol):
    """Who is told what comes."""

    def agreed(self, certificate: dict[str, Any] | None) -> None:
        """The connection is ready; certificate: the client's, as `ssl` describes it."""

    def received(self, data: memoryview) -> None:
        """Bytes that are only good during the call."""

    def lost(self, why: str, refusal: str) -> None:
        """The connection has ended; refusal: of whom did not get in (gateway/figures.py), or ""."""


class Link(Sender):
    """Both halves; over TLS they begin with a handshake."""

    def __init__(self, connection: socket.socket, owner: Owner) -> None:
        super().__init__(connection)
        self._owner = owner
        self._agreed = False

    def start(self) -> None:
        """Begins to listen."""
        if not self._tls:
            self._agreed = True
            self._owner.agreed(None)
        self.resume()

    def resume(self) -> None:
        """Listens again after `stop_reading`."""
        if self._fd >= 0:
            self._input.start()

    def more(self) -> None:
        """Reads what TLS may still hold."""
        if self._input.active:
            self._readable()

    def _was_lost(self, why: str) -> None:
        self._owner.lost(why, "")

    def _readable(self) -> None:
        if not self._agreed and not self._agree():
            return
        try:
            count = self._records() if self._tls else self._connection.recv_into(_BUFFER)
        except AGAIN:
            return
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        if count:
            self._owner.received(_BUFFER[:count])
        else:
            self._fail("the connection was closed")

    def _records(self) -> int:
        """What TLS has: one record a call, and the event loop cannot see those that it holds."""
        count = last = self._connection.recv_into(_BUFFER)
        while last and count < _READ_BYTES:
            try:
                last = self._connection.recv_into(_BUFFER[count:])
            except AGAIN:
                return count
            except OSError:
                break  # the next call says it again
            count += last
        if count:
            self._loop.call_soon(self.more)
        return count

    def _agree(self) -> bool:
        """Goes on with the handshake; True once it is done."""
        connection = self._connection
        assert isinstance(connection, ssl.SSLSocket)
        try:
            connection.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.remove_writer(self._fd)
            return False
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._readable)
            return False
        except OSError as error:
            self._refuse(error)
            return False
        self._loop.remove_writer(self._fd)
        if connection.selected_alpn_protocol() != "h2":
            self._owner.lost("the client does not ask for HTTP/2", "handshake")
            return False
        self._agreed = True
        self._owner.agreed(connection.getpeercert())
        return True

    def _refuse(self, error: OSError) -> None:
        reason = getattr(error, "reason", None) or ""
        if isinstance(error, ssl.SSLEOFError):
            refusal = ""  # it went, as a health check does
        elif "CERTIFICATE" in reason and "ALERT" not in reason:
            refusal = "certificate"
        elif reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER"):
            refusal = "not_tls"
        else:
            refusal = "handshake" if reason else ""
        self._owner.lost(error.strerror or str(error), refusal)
