"""Drains a node of the cluster, for an operator at the manager's page."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.node import DRAINING
from rgpu_server.web.calls import CallRefusedError
from rgpu_server.web.words import needed, seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.manager.shell import Shell
    from rgpu_server.core.identity import Identity

_MOST_SECONDS = 366 * 86400.0
# A node reports within moments what it was told; one of an earlier release does not hear of it.
_REPORT_SECONDS = 5.0
_LOOK_SECONDS = 0.05


async def drain_order(shell: Shell, order: str, body: Mapping[str, Any], identity: Identity) -> str:
    """Has a node take nothing new (`drain`), or take new leases again; returns what it does.

    Raises:
        CallRefusedError: the caller may not, the node is not connected, or it does not do it.
    """
    name, drains = needed(body, "node"), order == "drain"
    seconds = seconds_of(body, "end_after_seconds", _MOST_SECONDS) if drains else None
    if not identity.operator:
        raise CallRefusedError(403, f"only an operator of the manager may {order} a node")
    link = shell.links.get(name)
    if link is None:
        raise CallRefusedError(409, f"node {name[:64]} is not connected to the manager")
    was = ""
    if _is_draining(shell, name) is drains:
        was = " was drained already: it" if drains else " was not drained: it"
    link.drain(drain=drains, end_after_seconds=seconds)
    if not await _reported(shell, name, drains=drains):
        sentence = (
            f"node {name} was told, and has not done so: its server may be of an earlier release. "
            f"`rgpu {order} {name}` asks the server itself"
        )
        raise CallRefusedError(503, sentence)
    if not drains:
        return f"{name}{was} takes new leases and sessions"
    if seconds is None:
        return f"{name}{was} takes nothing new; what runs goes on until it ends by itself"
    return f"{name}{was} takes nothing new; what runs ends in {seconds:g} s at the latest"


async def _reported(shell: Shell, name: str, *, drains: bool) -> bool:
    """Waits until the node's report says whether it drains."""
    end = time.monotonic() + _REPORT_SECONDS
    while True:
        if _is_draining(shell, name) is drains:
            return True
        if time.monotonic() > end:
            return False
        await asyncio.sleep(_LOOK_SECONDS)


def _is_draining(shell: Shell, name: str) -> bool | None:
    """Returns whether a node drains, by its last report; None: it has sent none."""
    node = shell.core.pool.node(name)
    return None if node is None else DRAINING in node.taints
