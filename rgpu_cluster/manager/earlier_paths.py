"""The paths that were measured before this manager was there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.core.events import PathMeasured
from rgpu_cluster.core.paths import MOST_MEASURED, End

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Figures, Paths

    Measured = tuple[End, Figures, float]

# Nodes that have not joined after so many looks, which are a second apart, are not waited for.
MOST_LOOKS = 120


class EarlierPaths:
    """Rows are learned once the node that measured them has joined, at the end that they name, and
    a node at the other end as well. So a row says nothing of nodes that are somewhere else now, and
    a node can say nothing for others.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, tuple[End, list[Measured]]] = {}
        self._count = 0
        self._looks = 0

    def remember(self, node: str, client: End, rows: Sequence[Measured]) -> None:
        """Takes what a node has measured: the other end, the figures, and when (since 1970)."""
        if rows and self._count + len(rows) <= MOST_MEASURED:
            self._by_node[node] = client, [*rows]
            self._count += len(rows)

    def due(self, nodes: Sequence[Node], paths: Paths, now: float) -> list[PathMeasured]:
        """Returns what can be learned, once. paths: what is known already. now: since 1970."""
        if not self._by_node:
            return []
        ends = {End(node.rack, node.nic) for node in nodes}
        newest: dict[tuple[End, End], Figures] = {}
        for node in nodes:
            for server, figures in self._rows(node, ends, now):
                key = End(node.rack, node.nic), server
                known = newest.get(key) or paths.measured().get(key)
                if known is None or figures.age_seconds < known.age_seconds:
                    newest[key] = figures
        self._looks += 1
        if self._looks >= MOST_LOOKS:
            self._by_node.clear()
        return [PathMeasured(*key, figures) for key, figures in newest.items()]

    def _rows(self, node: Node, ends: set[End], now: float) -> Iterable[tuple[End, Figures]]:
        """Yields a node's rows whose other end is there, and keeps the others."""
        client, rows = self._by_node.get(node.name, (None, []))
        if client is None:
            return
        if client != End(node.rack, node.nic):
            del self._by_node[node.name]
            return
        left = [row for row in rows if row[0] not in ends]
        if left:
            self._by_node[node.name] = client, left
        else:
            del self._by_node[node.name]
        for server, figures, at in rows:
            if server in ends:
                yield server, replace(figures, age_seconds=max(int(now - at), 0))
