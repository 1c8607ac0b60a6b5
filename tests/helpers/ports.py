"""Ports that nobody listens on now."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

# The kernel gives these ports to whoever asks for any, or connects.
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 16384


def free_port() -> int:
    """Returns a free port of the loopback interface. Where the kernel hands out few enough, it is
    one that no process gets before the caller, unless it names it.
    """
    most = int(_HANDED_OUT.read_text().split()[0])
    while True:
        port = _LEAST + secrets.randbelow(most - _LEAST) if most > _LEAST else 0
        try:
            with socket.create_server(("127.0.0.1", port)) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue  # somebody has it
