"""The check that asks the manager of a cluster, where one is named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rgpu_client.cluster.placing import manager_of
from rgpu_common.doctor.findings import ok, warning
from rgpu_common.units import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rgpu_common.doctor.findings import Finding


def manager(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields the state of the manager of RGPU_MANAGER; ServerError: it does not answer."""
    del arguments
    endpoint = manager_of(None, os.environ)
    if endpoint is None:
        return
    from rgpu_client.cluster.asking import ManagerClient

    with ManagerClient(endpoint) as client:
        nodes = client.pool().nodes
    ready = [node for node in nodes if node.connected and not node.taints]
    cards = sum(len(node.cards) for node in ready)
    said = (
        f"the manager at {endpoint} has {counted(cards, 'card')} on {counted(len(ready), 'node')}"
    )
    if cards:
        yield ok("manager", said)
    else:
        yield warning("manager", f"{said}, of {len(nodes)} that it knows", "`rgpu pool` shows why")
