"""Servers of a test's own, in threads."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_JOIN_SECONDS = 60


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Calls `serve` in a thread for each connection, and closes the connection after it. Yields the
    address. A client that goes away (OSError) is no failure.

    At the end no thread may be left, so a client of the block must have gone, or `serve` must end
    by itself.
    """

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(connection,)))
            threads[-1].start()

    threads = [threading.Thread(target=accept)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads[0].start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            # The first one adds no others once it is over.
            threads[0].join(_JOIN_SECONDS)
            for thread in threads:
                thread.join(_JOIN_SECONDS)
                assert not thread.is_alive()
