"""The check that asks the manager of a cluster, where one is named."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from rgpu_client.cluster.placing import manager_of
from rgpu_client.doctor.here import named_servers
from rgpu_client.doctor.server import looked_at
from rgpu_common.credentials import check_secured
from rgpu_common.doctor.findings import failed, note, ok, warning
from rgpu_common.endpoints import parse_endpoint, speaks_tls
from rgpu_common.errors import RgpuError
from rgpu_common.units import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rgpu_common.doctor.findings import Finding
    from rgpu_common.v1 import cluster_pb2

# To look at a server takes a fraction of a second.
_MOST_NODES = 8


def manager(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields the state of the manager of RGPU_MANAGER, and of its nodes if no server is named;
    ServerError: it does not answer.
    """
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
    if not named_servers(arguments):
        yield from _nodes(nodes, secured=speaks_tls(endpoint))


def _looked_at(node: cluster_pb2.PoolNode, secured: bool) -> Iterator[Finding]:
    """Yields what is found out about a node, if it may be asked."""
    try:
        if secured:
            check_secured(parse_endpoint(node.address), os.environ, "it")
    except RgpuError as error:
        yield failed("manager", error, "see `rgpu help serve`")
        return
    yield from looked_at(node.address)


def _nodes(nodes: Sequence[cluster_pb2.PoolNode], *, secured: bool) -> Iterator[Finding]:
    """Yields what is found out about the nodes of a cluster: of some, if there are many. secured:
    their manager was asked over TLS.
    """
    for node in nodes:
        if not node.connected:
            yield warning(
                "manager", f"node {node.name} at {node.address} is not connected to its manager",
                "look at its server's log, and start it again",
            )  # fmt: skip
    connected = [node for node in nodes if node.connected]
    for node in connected[:_MOST_NODES]:
        for finding in _looked_at(node, secured):
            yield replace(finding, sentence=f"node {node.name}: {finding.sentence}")
    if len(connected) > _MOST_NODES:
        yield note(
            "manager", f"{_MOST_NODES} of {len(connected)} nodes were looked at",
            "--server ADDRESS looks at one; `rgpu pool` has the addresses with --json",
        )  # fmt: skip
