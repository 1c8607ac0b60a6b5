"""A TCP proxy on loopback that can cut its connections, like a network that fails between
the ends.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import threading
import time
from collections.abc import Container

from typing_extensions import Self

from rgpu_common.closing import Closing

SLOW_BUFFER_BYTES = 64 << 10
DEADLINE_SECONDS = 60


class CuttingProxy(Closing):
    """`with CuttingProxy("127.0.0.1:7700") as proxy:` forwards until `cut()`.

    cuts: how often it has closed all connections. rate: bytes per second in both directions
    together; with a rate its buffers are as small as a slow link's. holds: the connections, by
    their numbers from 0, that it accepts and forwards to nobody until `drop`.
    """

    def __init__(
        self, target: str, rate: float = math.inf, *, holds: Container[int] = frozenset()
    ) -> None:
        host, port = target.removeprefix("tcp:").rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._stopping = False
        self._cutting = threading.Event()
        self._was_cut = threading.Event()
        self._away_until = 0.0
        self._half_open: list[socket.socket] = []
        self._holds = holds
        self._accepted = 0
        self._held: list[socket.socket] | None = []  # None: they were dropped
        self._holding = threading.Lock()
        self._plan: list[int] = []
        self._away_seconds = 0.0
        self._keep_server_ends = False
        self._rate = rate
        self._free_at = 0.0
        self.cuts = 0
        if rate < math.inf:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Ends the proxy with all its connections."""
        self._stopping = True
        self._wake_write.send(b"x")
        self._thread.join(DEADLINE_SECONDS)
        self._close_peers()
        self._selector.close()
        self.drop()
        for one in (self._listener, self._wake_read, self._wake_write, *self._half_open):
            one.close()

    def cut(self, away_seconds: float = 0.0, *, half_open: bool = False) -> None:
        """Closes every connection; returns when that is done.

        away_seconds: how long new connections are refused. half_open: the connections to the server
        stay open, as when the client's machine has changed its address.
        """
        self._away_seconds = away_seconds
        self._keep_server_ends = half_open
        self._cutting.set()
        self._wake_write.send(b"x")
        assert self._was_cut.wait(DEADLINE_SECONDS)
        self._was_cut.clear()

    def drop(self, away_seconds: float = 0.0) -> None:
        """Closes the connections that it holds, and those to hold that are still to come.

        away_seconds: how long others are refused.
        """
        with self._holding:
            held, self._held = self._held or [], None
            self._away_until = time.monotonic() + away_seconds
        for one in held:
            one.close()

    def target(self, address: str) -> None:
        """Sends new connections to `address` from now on."""
        host, port = address.removeprefix("tcp:").rsplit(":", 1)
        self._target = (host, int(port))

    def cut_after(self, *counts: int, away_seconds: float = 0.0) -> None:
        """Cuts after the first count of forwarded bytes, then again after the next count, and so
        on.

        away_seconds: how long new connections are refused.
        """
        self._away_seconds = away_seconds
        self._plan = list(counts)

    def _serve(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(10):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one is self._listener:
                    self._accept()
                elif one is self._wake_read:
                    one.recv(16)
                elif one in self._peers:
                    self._forward(one)
            if self._cutting.is_set():
                self._cutting.clear()
                self._cut_now()
                self._was_cut.set()

    def _cut_now(self) -> None:
        self.cuts += 1
        self._away_until = time.monotonic() + self._away_seconds
        if self._keep_server_ends:
            self._keep_server_ends = False
            for server in [s for s in self._peers if s.getpeername() == self._target]:
                client = self._peers.pop(server)
                del self._peers[client]
                for one in (server, client):
                    self._selector.unregister(one)
                client.close()
                self._half_open.append(server)
        self._close_peers()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if time.monotonic() < self._away_until:
            client.close()
            return
        number, self._accepted = self._accepted, self._accepted + 1
        if number in self._holds:
            self._hold(client)
            return
        try:
            server = socket.create_connection(self._target)
            if self._rate < math.inf:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
        except OSError:  # the server does not listen now
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            # A router does not hold bytes back either.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _hold(self, client: socket.socket) -> None:
        with self._holding:
            if self._held is not None:
                self._held.append(client)
                return
        client.close()

    def _forward(self, one: socket.socket) -> None:
        try:
            data = one.recv(min(1 << 16, self._plan[0] if self._plan else 1 << 16))
            if data:
                self._pace(len(data))
                self._peers[one].sendall(data)
                self._count(len(data))
                return
        except OSError:
            pass
        self._close(one)

    def _pace(self, size: int) -> None:
        """Waits as long as a link of this rate would take."""
        self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
        if (wait := self._free_at - time.monotonic()) > 0:
            time.sleep(wait)

    def _count(self, forwarded: int) -> None:
        if not self._plan:
            return
        self._plan[0] -= forwarded
        if self._plan[0] <= 0:
            del self._plan[0]
            self._cut_now()

    def _close(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        for each in (one, other):
            if each is None:
                continue
            self._peers.pop(each, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()

    def _close_peers(self) -> None:
        for one in list(self._peers):
            self._close(one)
