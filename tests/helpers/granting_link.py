"""A manager's shell with one GPU node that needs no server."""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.samples import GIB, node

from rgpu_cluster.core import actions as do
from rgpu_cluster.core import events as on
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.manager.shell import Shell


class Daemon:
    """A node's link that grants at once, or says nothing."""

    def __init__(self, shell: Shell, name: str) -> None:
        self.shell, self.name = shell, name
        self.silent = False
        self.ordered: list[str] = []

    def grant(self, action: do.Grant) -> None:
        self.ordered.append("grant")
        if not self.silent:
            event = on.Granted(action.request.id, self.name, action.attempt, 2)
            asyncio.get_running_loop().call_soon(self.shell.feed, event)

    def revoke(self, action: do.Revoke) -> None:
        self.ordered.append("revoke")
        event = on.Revoked(action.id, self.name, action.attempt)
        asyncio.get_running_loop().call_soon(self.shell.feed, event)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.ordered.append(name)


def shell_of() -> tuple[Shell, Daemon]:
    """Returns a manager's shell, and the link of its node gpu-1 with a card of 16 GiB."""
    shell = Shell(Manager(), clock=lambda: 1)
    daemon = Daemon(shell, "gpu-1")
    shell.links["gpu-1"] = daemon
    shell.feed(on.NodeReported(node("gpu-1", address="gpu-1:7700", memory=16 * GIB), {}))
    return shell, daemon
