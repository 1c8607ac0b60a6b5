"""What programs use of the cards, as their nodes said it last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_cluster.core.node import MAX_CARDS_PER_NODE
from rgpu_common.units import MAX_BYTES, PPM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.core.card import CardId
    from rgpu_common.v1 import agent_pb2


class CardUse(Struct, frozen=True):
    """What programs use of one card. lent_ppm: the device time beyond guaranteed shares."""

    used_ppm: int = 0
    lent_ppm: int = 0
    used_bytes: int = 0


NOTHING = CardUse()


class Uses:
    """Uses by node and card. A node that leaves takes its own with it."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, CardUse]] = {}

    def heard(self, node: str, rows: Iterable[agent_pb2.CardUse]) -> None:
        """Takes what a node says, which replaces what it has said before."""
        self._of[node] = {
            row.ordinal: CardUse(
                min(row.used_ppm, PPM),
                min(row.lent_ppm, row.used_ppm, PPM),
                min(row.used_bytes, MAX_BYTES),
            )
            for row in list(rows)[:MAX_CARDS_PER_NODE]
        }

    def forget(self, node: str) -> None:
        """Forgets a node."""
        self._of.pop(node, None)

    def of(self, card: CardId) -> CardUse:
        """Returns what programs use of a card; nothing if its node does not say."""
        return self._of.get(card.node, {}).get(card.ordinal, NOTHING)
