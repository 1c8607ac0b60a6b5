"""How far cards of one node are from each other, and which of them are closest together.

The location of a card names its place from the outermost part of the node inwards. The distance of
two cards is the number of parts that they do not share; 0 for cards behind one switch or in one
link group. GPUManager's tree of PIX, PXB, PHB, NODE and SYS levels is such a location.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.core.card import Card


def distance(one: Card, other: Card) -> int:
    """Returns how many levels up the parts of the node meet that hold both cards."""
    depth = max(len(one.location), len(other.location))
    if one.id.node != other.id.node:
        return depth + 1
    shared = 0
    for left, right in zip(one.location, other.location, strict=False):
        if left != right:
            break
        shared += 1
    return depth - shared


def spread_of(cards: Sequence[Card]) -> int:
    """Returns the largest distance between two of the cards; 0 for one card."""
    # The levels are a tree, so the card that is farthest from any other is farthest from the first.
    return max((distance(cards[0], card) for card in cards[1:]), default=0)


def closest(free: Sequence[Card], count: int) -> list[Card]:
    """Returns `count` of the cards of one node, as close to each other as possible.

    The smallest part of the node that holds enough of them is taken (GPUManager's link order);
    among equally small parts the one with the fewest, so that parts with many free cards stay whole
    (its fragment order).
    """
    depth = max(len(card.location) for card in free)
    for level in range(depth, -1, -1):
        parts = [part for part in _parts(free, level) if len(part) >= count]
        if parts:
            part = min(parts, key=lambda part: (len(part), part[0].id))
            return part if len(part) == count else _take(part, count, level)
    raise ValueError(f"{len(free)} cards are free, and {count} were asked for")


def _take(part: list[Card], count: int, level: int) -> list[Card]:
    """Takes cards of a part, from its fullest sub-parts on, so that they lie together."""
    inner = sorted(_parts(part, level + 1), key=lambda cards: (-len(cards), cards[0].id))
    return [card for cards in inner for card in cards][:count]


def _parts(cards: Iterable[Card], level: int) -> list[list[Card]]:
    """Returns the cards grouped by the parts of the node at a level; 0: the whole node."""
    parts: dict[tuple[str, ...], list[Card]] = defaultdict(list)
    for card in sorted(cards, key=lambda card: card.id):
        parts[card.location[:level]].append(card)
    return list(parts.values())
