"""A TCP proxy on loopback that can cut its connections: the network failing between both ends."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType

from typing_extensions import Self


class CuttingProxy:
    """`with CuttingProxy("127.0.0.1:7700") as proxy:` forwards until `cut()`."""

    def __init__(self, target: str) -> None:
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

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping = True
        self._wake_write.send(b"x")
        self._thread.join(10)
        self._close_peers()
        self._selector.close()
        for one in (self._listener, self._wake_read, self._wake_write):
            one.close()

    def cut(self) -> None:
        """Closes every connection; returns when that is done."""
        self._cutting.set()
        self._wake_write.send(b"x")
        assert self._was_cut.wait(10)
        self._was_cut.clear()

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
                self._close_peers()
                self._was_cut.set()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._target)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
            if data:
                self._peers[one].sendall(data)
                return
        except OSError:
            pass
        self._close(one)

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
