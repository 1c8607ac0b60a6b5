"""Servers that answer each HELLO with one frame, for tests of clients that open no session."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.serving import serving
from rgpu_common.wire.claim import Claimed, encode_claimed


@contextmanager
def answering(frame: bytes) -> Iterator[str]:
    """Yields the address of a server that answers with `frame` and then waits until the client
    closes.
    """

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(frame)
        connection.recv(1)

    with serving(serve) as address:
        yield f"tcp:{address}"


@contextmanager
def granting() -> Iterator[str]:
    """Yields the address of a server that grants each claim."""
    with answering(encode_claimed(Claimed(device_name="granted", key="granted"))) as address:
        yield address
