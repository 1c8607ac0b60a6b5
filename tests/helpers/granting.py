"""Servers that answer each HELLO with one frame, for tests of clients that open no session."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rgpu_common.wire.claim import Claimed, encode_claimed


@contextmanager
def answering(frame: bytes) -> Iterator[str]:
    """Yields the address of a server that answers with `frame` and then waits until the client
    closes.
    """

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(frame)
                connection.recv(1)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            clients.append(threading.Thread(target=serve, args=(connection,)))
            clients[-1].start()

    clients: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"tcp:127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    for thread in (accepting, *clients):
        thread.join()


@contextmanager
def granting() -> Iterator[str]:
    """Yields the address of a server that grants each claim."""
    with answering(encode_claimed(Claimed(device_name="granted", key="granted"))) as address:
        yield address
