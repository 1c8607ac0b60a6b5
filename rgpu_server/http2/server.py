"""Listening sockets, and who gets a place."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final

from rgpu_common.http2 import status
from rgpu_common.http2.status import Status
from rgpu_server.core.failures import network_of
from rgpu_server.http2.session import Session
from rgpu_server.http2.windows import ALL_WINDOWS_BYTES, Windows
from rgpu_server.service.crowd import Crowds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.http2.call import Call, Handler
    from rgpu_server.http2.certificates import Certificates

log = logging.getLogger("rgpu.tunnel")

MAX_CONNECTIONS: Final = 2048
MAX_CALLS: Final = 4096
_ROUND_SECONDS = 0.5
_ACCEPTS_A_TURN = 64
_PAUSE_SECONDS = 0.05


class Server:
    """find: the handler of a method, or None.  refused: how often, by reason
    (gateway/figures.py).
    """

    def __init__(
        self,
        find: Callable[[str], Handler | None],
        connections: int = MAX_CONNECTIONS,
        calls: int = MAX_CALLS,
        windows: int = ALL_WINDOWS_BYTES,
    ) -> None:
        self._find = find
        self._connections, self._calls = connections, calls
        self._loop = asyncio.get_running_loop()
        self.refused: Counter[str] = Counter()
        self.windows = Windows(windows)
        self._listeners: dict[socket.socket, Certificates | None] = {}
        self._sessions: dict[Session, None] = {}
        self._running: dict[Call, None] = {}
        # Who makes room: connections without business, calls that have said nothing.
        self._idle: Crowds[Session] = Crowds()
        self._strangers: Crowds[Call] = Crowds()
        self._timer = self._loop.call_later(_ROUND_SECONDS, self._round)

    def listen(self, listener: socket.socket, certificates: Certificates | None) -> None:
        """Takes connections there; certificates: None for none."""
        listener.setblocking(False)
        self._listeners[listener] = certificates
        self._loop.add_reader(listener.fileno(), self._accept, listener)

    def leave(self) -> None:
        """Takes no connections and no calls any more; calls that run go on."""
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()
        for session in list(self._sessions):
            session.leave()

    async def close(self) -> None:
        """Ends everything."""
        self.leave()
        self._timer.cancel()
        # Calls whose handlers have just ended say so.
        await asyncio.sleep(0)
        tasks = [call.task for call in self._running if call.task is not None]
        for session in list(self._sessions):
            session.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What sessions say (Places)

    def handler(self, call: Call) -> Handler | Status:
        """Who answers a call, or how it ends at once."""
        found = self._find(call.path)
        if found is None:
            return Status(status.UNIMPLEMENTED, "Method not found!")
        if len(self._running) >= self._calls and not self._make_room(call.session.origin):
            self.refused["too_many"] += 1
            return Status(status.RESOURCE_EXHAUSTED, "the gateway carries as many calls as it may")
        self._running[call] = None
        self._strangers.come(call, call.session.origin)
        return found

    def admitted(self, call: Call, session: Session) -> None:
        """A call has said what it wants."""
        self._strangers.go(call)
        self._idle.go(session)

    def done(self, call: Call) -> None:
        """A call's handler has ended."""
        self._running.pop(call, None)
        self._strangers.go(call)

    def idle(self, session: Session) -> None:
        """A connection has no business any more."""
        self._idle.come(session, session.origin)

    def left(self, session: Session) -> None:
        """A connection has ended."""
        self._sessions.pop(session, None)
        self._idle.go(session)

    def _make_room(self, newcomer: str) -> bool:
        """Ends a call that has said nothing: the longest there of the origin with most of those."""
        stranger = self._strangers.of_largest(newcomer)
        if stranger is None:
            return False
        self.done(stranger)
        self.refused["too_many"] += 1
        task = stranger.task
        stranger.finish(Status(status.RESOURCE_EXHAUSTED, "others came who say what they want"))
        if task is not None:
            task.cancel()
        return True

    # Connections

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                connection, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("accept: %s", error)
                self._pause(listener)
                return
            self._welcome(connection, address, self._listeners[listener])

    def _pause(self, listener: socket.socket) -> None:
        """Out of descriptors: somebody makes room, and the system gets time."""
        self._free_place("")
        self._loop.remove_reader(listener.fileno())

        def again() -> None:
            if listener in self._listeners:
                self._loop.add_reader(listener.fileno(), self._accept, listener)

        self._loop.call_later(_PAUSE_SECONDS, again)

    def _welcome(
        self,
        connection: socket.socket,
        address: tuple[str, int],
        certificates: Certificates | None,
    ) -> None:
        here, origin = where(address), network_of(_host(address))
        if len(self._sessions) >= self._connections and not self._free_place(origin):
            self.refused["too_many"] += 1
            connection.close()
            return
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if certificates is not None:
                connection = certificates.context().wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
        except OSError as error:
            log.info("%s: %s", here, error)
            connection.close()
            return
        session = Session(self, connection, here, origin)
        self._sessions[session] = None
        self.idle(session)
        session.link.start()

    def _free_place(self, newcomer: str) -> bool:
        """Of those without business one goes: the longest so of the origin with most of them."""
        session = self._idle.of_largest(newcomer)
        if session is None:
            return False
        self.refused["too_many"] += 1
        session.close()
        return True

    def _round(self) -> None:
        now = self._loop.time()
        for session in list(self._sessions):
            session.check(now)
        self._timer = self._loop.call_later(_ROUND_SECONDS, self._round)


def where(address: tuple[str, int]) -> str:
    """An address as gRPC writes it; one of IPv4 as such, whatever listens."""
    host, port = _host(address), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(address: tuple[str, int]) -> str:
    host = address[0]
    return host.rpartition(":")[2] if "." in host else host
