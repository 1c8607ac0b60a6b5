"""How many cards of a request, or of a gang, may be in one node, one rack or one zone.

A node lies in one rack, and a rack in one zone: racks of two zones are two racks, whatever their
names are. So the bounds form a tree, and the order in which cards are taken does not matter: who
takes every card that no bound forbids ends with as many cards as possible. Nodes without a rack are
one rack of their zone together, because nobody says that they are in different ones. So are nodes
without a zone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rgpu_cluster.core.filters import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rgpu_cluster.core.node import Node, Site
    from rgpu_cluster.core.request import Request

_REASONS = (Reason.PER_ZONE, Reason.PER_RACK, Reason.PER_NODE)


class Bounds(NamedTuple):
    """The most cards in one zone, one rack and one node; 0: any number."""

    per_zone: int = 0
    per_rack: int = 0
    per_node: int = 0


def bounds_of(requests: Iterable[Request]) -> Bounds:
    """Returns the bounds of requests that are placed together: of each kind the strictest."""
    each = [(r.max_per_zone, r.max_per_rack, r.max_per_node) for r in requests]
    return Bounds(*(min(filter(None, bounds), default=0) for bounds in zip(*each, strict=True)))


class Taken:
    """The cards that requests have which are placed together. Bounds hold for all of them."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._bounded = any(bounds)
        # By zone, by zone and rack, and by zone, rack and node.
        self._counts: Counter[tuple[str, ...]] = Counter()

    def copy(self) -> Taken:
        """Returns the same cards, to which others can be added as a trial."""
        made = Taken(self._bounds)
        made._counts = self._counts.copy()
        return made

    def take(self, node: Node, cards: int = 1) -> None:
        """Adds cards of a node."""
        place = _place(node)
        for depth in range(1, len(place) + 1):
            self._counts[place[:depth]] += cards

    def most(self, node: Node, cards: int) -> int:
        """Returns how many of so many more cards a node may give."""
        return max(min([cards, *(left for left, _ in self._left(_place(node)))]), 0)

    def left(self, node: Node) -> tuple[int | None, int | None, int | None]:
        """Returns how many more cards a node's zone, its rack and itself may give; None: any."""
        place = _place(node)
        zone, rack, on_node = (
            bound - self._counts[place[:depth]] if bound else None
            for depth, bound in enumerate(self._bounds, start=1)
        )
        return zone, rack, on_node

    def why_not(self, node: Node) -> Reason | None:
        """Returns why a node gives no further card."""
        return _first(self._left(_place(node)))

    def of_site(self, site: Site) -> Reason | None:
        """Returns why a rack or a zone gives no further card."""
        if not self._bounded:
            return None
        return _first(self._left((site.zone, site.rack)))

    def full_nodes(self) -> list[str]:
        """Returns the nodes that have as many of the cards as one node may."""
        bound = self._bounds.per_node
        return [
            p[-1] for p, n in self._counts.items() if len(p) == len(_REASONS) and 0 < bound <= n
        ]

    def _left(self, place: tuple[str, ...]) -> Iterator[tuple[int, Reason]]:
        """Yields each bound that a place is under: how many cards it leaves, and its reason."""
        for depth, (bound, reason) in enumerate(zip(self._bounds, _REASONS, strict=True), start=1):
            if bound and depth <= len(place):
                yield bound - self._counts[place[:depth]], reason


def _place(node: Node) -> tuple[str, ...]:
    return node.zone, node.rack, node.name


def _first(left: Iterable[tuple[int, Reason]]) -> Reason | None:
    return next((reason for cards, reason in left if cards <= 0), None)
