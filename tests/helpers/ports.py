"""Ports that nobody listens on now, and that nobody else takes later."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

# Below are ports that many programs have for their own.
_FIRST = 20_000
_TRIES = 1000


def free_port() -> int:
    """Returns a free port of the loopback interface, for a process that listens there later.

    The kernel gives it to nobody who asks for any port, and no other process of tests gets it as
    long as this one lives.
    """
    ends = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    # A kernel that begins lower leaves no port that it gives to nobody.
    ports = range(_FIRST, int(ends[0])) or range(_FIRST, 65_536)
    for port in random.SystemRandom().sample(ports, min(_TRIES, len(ports))):
        if _claimed(port):
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                return port
    raise RuntimeError(f"no port from {ports[0]} to {ports[-1]} is free")


def _claimed(port: int) -> bool:
    """Takes a name for the port that one process of this network namespace can have at a time."""
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(f"\0rgpu-test-port-{port}")
        except OSError:
            return False
        name.detach()  # open until this process ends
    return True
