"""The ids of units, and which of the free ones belong together. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.vocabulary import HUNDREDTHS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.kubelet.units.vocabulary import Resource
    from rgpu_common.v1 import agent_pb2

_ID = re.compile(r"gpu-([0-9]{1,6})\.([0-9]{1,6})")


def ids_of(cards: Iterable[agent_pb2.CardReport], resource: Resource) -> list[str]:
    """Returns the ids of all units of a resource. A MIG slice is not offered in such units."""
    return [
        f"gpu-{card.ordinal}.{number}"
        for card in sorted(cards, key=lambda one: one.ordinal)
        if not card.mig
        for number in range(resource.count(card.memory_bytes))
    ]


def preferred(
    resource: Resource, free: Sequence[str], needed: Sequence[str], size: int
) -> list[str]:
    """Returns `size` of the free ids, with all that are needed, on as few cards as possible.

    A part of a card comes from the card with the least room that has enough. Whole cards are those
    of which all is free, if there are enough of them.
    """
    left = Counter(_card(one) for one in free)
    whole = resource.kind is Kind.CORE and size >= HUNDREDTHS

    def key(card: str) -> tuple[int, int, str]:
        if whole:
            return -(left[card] >= HUNDREDTHS), -left[card], card
        enough = left[card] >= size
        return -enough, left[card] if enough else -left[card], card

    first = {_card(one): -1 for one in needed}
    order = {card: place for place, card in enumerate(sorted(left, key=key))}
    wanted = set(needed)
    others = sorted(
        (one for one in free if one not in wanted),
        key=lambda one: (first.get(_card(one), order[_card(one)]), _number(one)),
    )
    return [*needed, *others][:size]


def cards_of(ids: Iterable[str]) -> list[int]:
    """Returns the cards of a container that has these units of a card's time, or of its memory.

    Raises:
        PrepareError: an id is none of ours.
    """
    found = set()
    for one in ids:
        match = _ID.fullmatch(one)
        if match is None:
            raise PrepareError(f"{one[:64]!r} is no unit of this node: restart the kubelet")
        found.add(int(match[1]))
    return sorted(found)


def _card(unit: str) -> str:
    return unit.rpartition(".")[0]


def _number(unit: str) -> int:
    return int(unit.rpartition(".")[2])
