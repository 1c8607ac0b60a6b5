"""The check that asks the manager of a cluster, where one is named."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from rgpu_client.cluster.placing import manager_of
from rgpu_client.doctor.here import named_servers
from rgpu_client.doctor.server import looked_at
from rgpu_client.settings import SILENT_SECONDS
from rgpu_common.credentials import check_secured
from rgpu_common.doctor.findings import Level, failed, ok, warning
from rgpu_common.endpoints import parse_endpoint, speaks_tls
from rgpu_common.errors import RgpuError
from rgpu_common.units import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rgpu_common.doctor.findings import Finding
    from rgpu_common.v1 import cluster_pb2

# So many nodes are looked at at the same time: each takes a fraction of a second.
_AT_ONCE = 32
# Of so many nodes all is shown that was found, and so many names.
_MOST_WHOLE, _MOST_NAMED = 8, 12
_WRONG = (Level.WARNING, Level.ERROR)


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


def _looked_at(node: cluster_pb2.PoolNode, secured: bool, seconds: float) -> Iterator[Finding]:
    """Yields what is found out about a node, if it may be asked."""
    try:
        if secured:
            check_secured(parse_endpoint(node.address), os.environ, "it")
    except RgpuError as error:
        yield failed("manager", error, "see `rgpu help serve`")
        return
    yield from looked_at(node.address, seconds)


def _nodes(
    nodes: Sequence[cluster_pb2.PoolNode], *, secured: bool, seconds: float = SILENT_SECONDS
) -> Iterator[Finding]:
    """Yields what is found out about the nodes of a cluster: what is wrong with them, and of a few
    nodes all. secured: their manager was asked over TLS. seconds: for all of them together.
    """
    for node in nodes:
        if not node.connected:
            yield warning(
                "manager", f"node {node.name} at {node.address} is not connected to its manager",
                "look at its server's log, and start it again",
            )  # fmt: skip
    connected = [node for node in nodes if node.connected]
    until = time.monotonic() + seconds

    def look(node: cluster_pb2.PoolNode) -> list[Finding] | None:
        left = until - time.monotonic()
        return list(_looked_at(node, secured, left)) if left > 0 else None

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(zip(connected, threads.map(look, connected), strict=True))
    few = len(connected) <= _MOST_WHOLE
    for node, findings in found:
        for finding in findings or ():
            if few or finding.level in _WRONG:
                yield replace(finding, sentence=f"node {node.name}: {finding.sentence}")
    if not few:
        well = [one for _, one in found if one and not any(each.level in _WRONG for each in one)]
        yield ok("manager", f"{len(well)} of {len(connected)} nodes have nothing wrong")
    missed = [node.name for node, findings in found if findings is None]
    if missed:
        more = f" and {len(missed) - _MOST_NAMED} more" if len(missed) > _MOST_NAMED else ""
        yield warning(
            "manager", f"the {seconds:g} s for all nodes together were over before "
            f"{counted(len(missed), 'node')} could be looked at: "
            f"{', '.join(missed[:_MOST_NAMED])}{more}",
            "--server ADDRESS looks at one; `rgpu pool` has the addresses with --json",
        )  # fmt: skip
