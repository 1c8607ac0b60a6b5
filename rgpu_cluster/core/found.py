"""A class of cards that can take a request, with its score."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rgpu_cluster.core.request import Mode

if TYPE_CHECKING:
    from collections.abc import Container

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.classes import Kind, Members, State
    from rgpu_cluster.core.node import Site
    from rgpu_cluster.core.paths import Predicted


class Found(NamedTuple):
    """A class, or those of its cards that are on the program's own node.

    total: the score of one card. members: for a remote mode they include the cards of the program's
    own node, which are found apart.
    """

    total: int
    mode: Mode
    predicted: Predicted
    kind: Kind
    site: Site
    state: State
    members: Members | tuple[CardId, ...]

    def pick(self, number: int, home: str, closed: Container[str] = ()) -> CardId:
        """Returns one of the cards: the same for the same number and history.

        Different numbers spread over the class. home: the program's own node. closed: nodes of
        which it takes none.
        """
        count = len(self.members)
        for step in range(count):
            card = self.members[(number + step) % count]
            if self.mode <= Mode.LOCAL or (card.node != home and card.node not in closed):
                return card
        raise AssertionError("a class was found of which no card can be used")


def order(found: Found) -> tuple[int, int, int, int, int]:
    """Orders classes of equal score by facts, so that no accident of a table decides."""
    load = found.state.load
    return found.total, found.mode, -load.used_ppm, -load.used_bytes, found.state.idle_cards
