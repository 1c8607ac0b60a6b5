"""How much of a node the usual requests can no longer use.

The fragmentation gradient of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC'23), for device time and memory. A node's fragmentation
for one shape of request is the free part of its cards that this shape cannot use; its
fragmentation is the mean over the mix of recent shapes. Placement takes the card where a request
adds least to it.

For a request that may be placed on any node, a processor or memory of the node that has run out
strands no card, so only cards are counted here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from rgpu_common.units import PPM


class Shape(NamedTuple):
    """The size of a request: for each of `cards` cards a share, and a part of the memory in ppm.

    whole: the cards are taken alone.
    """

    cards: int
    share_ppm: int
    memory_ppm: int
    whole: bool


# Equal to itself alone: `gradient` looks it up for each class of cards, and a hash of all shapes
# costs more than the rest of the look.
class Mix(Struct, frozen=True, eq=False):
    """The shapes of recent requests, each with its part of all requests in ppm."""

    shapes: tuple[tuple[Shape, int], ...]


# Before any request was seen: whole cards and some parts.
USUAL = Mix(
    (
        (Shape(1, PPM, PPM, True), 400_000),
        (Shape(1, PPM // 2, PPM // 2, False), 300_000),
        (Shape(1, PPM // 4, PPM // 4, False), 300_000),
    )
)


class Free(NamedTuple):
    """What is free of a card, in ppm of its time and of its memory."""

    time_ppm: int
    memory_ppm: int


def _stranded(free: Free, shape: Shape) -> int:
    """Returns the part of a card that is free and too small for a shape that shares cards."""
    if free.time_ppm >= shape.share_ppm and free.memory_ppm >= shape.memory_ppm:
        return 0
    return (free.time_ppm + free.memory_ppm) // 2


def _whole_gradient(before: Free, after: Free, idle: bool, idle_cards: int, cards: int) -> int:
    """Returns the gradient for a shape of whole cards, from the node's number of idle cards.

    With at least `cards` idle cards, only the free parts of other cards are of no use to the shape;
    with fewer, everything that is free.
    """
    taken = (before.time_ppm + before.memory_ppm - after.time_ppm - after.memory_ppm) // 2
    if not idle or idle_cards < cards:
        return -taken
    left = (after.time_ppm + after.memory_ppm) // 2
    if idle_cards > cards:
        return left
    return left + (cards - 1) * PPM


@lru_cache(maxsize=65536)
def gradient(before: Free, after: Free, idle_cards: int, idle: bool, mix: Mix) -> int:
    """Returns by how much the expected fragmentation grows, in ppm of a card.

    before, after: what is free of the card without and with the request.
    idle_cards: the idle cards of its node before; idle: this card is one of them.
    """
    total = 0
    for shape, weight in mix.shapes:
        if shape.whole:
            grown = _whole_gradient(before, after, idle, idle_cards, shape.cards)
        else:
            grown = _stranded(after, shape) - _stranded(before, shape)
        total += grown * weight
    return total // PPM
