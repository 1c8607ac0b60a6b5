"""Ports that nobody listens on now."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Returns a free port of the loopback interface.  Another process may take it first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
