"""Checks the output of the demo of docker-compose.yml, for any container engine."""

from __future__ import annotations

import re

# Client -> its node, transport, share and memory.
CLIENTS = {
    "client-local": ("gpu-a", "shm", "60 %", "256 MiB"),
    "client-lan": ("gpu-b", "tcp", "50 %", "384 MiB"),
    "client-outside": ("gpu-b", "grpcs", "25 %", "256 MiB"),
}


def check_table(said: str) -> None:
    """Asserts that each client has its path, its share, its memory, a right result, and a sentence
    about its path.
    """
    for name, (node, scheme, share, memory) in CLIENTS.items():
        row = next(line for line in said.splitlines() if line.startswith(name + "  "))
        reason = next(line for line in said.splitlines() if line.startswith(name + ": "))
        assert re.search(rf"^{name} +{node} +{scheme}:\S+ +\d+ us ", row), said
        assert share in row, said
        assert re.search(rf"of {memory} +right$", row), said
        assert len(reason) > len(name) + 20, said
