"""Nodes that were lost not long ago, as they were, so that people can see what ran there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rgpu_cluster.core.limits import SECOND

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from rgpu_cluster.core.card import CardId, Holding
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.pool import Pool

# How long a node is remembered, and how many are.
_KEEP_NS = 3600 * SECOND
_MOST = 64


class GoneNode(NamedTuple):
    """A node that has gone. held: its leases. seen_ns: when it was heard of last."""

    node: Node
    held: Mapping[CardId, tuple[Holding, ...]]
    seen_ns: int


class Gone:
    """The nodes that have gone, the one that went last at the end."""

    def __init__(self) -> None:
        self._nodes: dict[str, GoneNode] = {}

    def __iter__(self) -> Iterator[GoneNode]:
        return iter(self._nodes.values())

    def keep(self, pool: Pool, name: str, seen_ns: int, asked: Container[str]) -> None:
        """Remembers a node that is about to leave the pool. asked: requests that it was asked to
        grant, and that are placed elsewhere now.
        """
        node = pool.node(name)
        if node is None:
            return
        held = {
            card.id: tuple(h for h in pool.holdings(card.id) if h.lease not in asked)
            for card in node.cards
        }
        self.forget(name)
        self._nodes[name] = GoneNode(node, held, seen_ns)
        if len(self._nodes) > _MOST:
            self.forget(next(iter(self._nodes)))

    def forget(self, name: str) -> None:
        """Forgets a node: it is back."""
        self._nodes.pop(name, None)

    def look(self, now_ns: int) -> None:
        """Forgets those that have been away for too long."""
        for name, one in list(self._nodes.items()):
            if now_ns - one.seen_ns > _KEEP_NS:
                self.forget(name)
