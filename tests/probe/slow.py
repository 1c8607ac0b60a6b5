"""A proxy that answers late."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class SlowProxy:
    """Forwards to a port and holds everything up for a while on the way there."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._seconds = port, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for one in [*self._sockets, self._listener]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for one in [*self._sockets, self._listener]:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            self._sockets += [client, server]
            for pair in ((client, server, self._seconds), (server, client, 0.0)):
                thread = threading.Thread(target=self._carry, args=pair)
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, seconds: float) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if seconds:
                    time.sleep(seconds)  # the link, not a wait for something
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
