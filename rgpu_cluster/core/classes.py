"""Cards in equal state are one class, so 8,000 cards cost what a few hundred classes cost.

Two cards are in one class if no request can tell them apart: they are of the same kind, at the same
site, carry the same load, and their nodes have as many idle cards and as much free bandwidth. The
classes are kept up to date with each lease; a decision only reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_cluster.core.card import Card, CardId, Load
    from rgpu_cluster.core.node import Site

# Free bandwidth is compared in 64 steps of the interface's whole bandwidth.
HEADROOM_STEPS = 64


class Kind(NamedTuple):
    """What never changes about a card."""

    model: str
    pool: str
    memory_bytes: int
    mig: str


class State(NamedTuple):
    """What leases change about a card.

    idle_cards: how many cards of its node are idle that are GPUs too, or slices of its profile.
    headroom: free bandwidth of its node in steps of HEADROOM_STEPS, rounded down.
    bandwidth_bps: the whole bandwidth of its node, 0: unknown.
    """

    load: Load
    idle_cards: int
    headroom: int
    bandwidth_bps: int


def kind_of(card: Card) -> Kind:
    """Returns the kind of a card."""
    return Kind(card.model, card.pool, card.memory_bytes, card.mig)


class Members:
    """The cards of one class. Adding, removing and picking take constant time."""

    __slots__ = ("_cards", "_places")

    def __init__(self) -> None:
        self._cards: list[CardId] = []
        self._places: dict[CardId, int] = {}

    def __len__(self) -> int:
        return len(self._cards)

    def __iter__(self) -> Iterator[CardId]:
        return iter(self._cards)

    def add(self, card: CardId) -> None:
        """Adds a card that is not in the class."""
        self._places[card] = len(self._cards)
        self._cards.append(card)

    def remove(self, card: CardId) -> None:
        """Removes a card of the class."""
        place = self._places.pop(card)
        last = self._cards.pop()
        if last != card:
            self._cards[place] = last
            self._places[last] = place

    def __getitem__(self, place: int) -> CardId:
        return self._cards[place]


class Classes:
    """All classes of a pool: by kind and site, then by state."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Kind, Site], dict[State, Members]] = {}
        self._of: dict[CardId, tuple[tuple[Kind, Site], State]] = {}

    def put(self, card: CardId, kind: Kind, site: Site, state: State) -> None:
        """Puts a card into its class, and takes it out of the one in which it was."""
        before = self._of.get(card)
        now = ((kind, site), state)
        if before == now:
            return
        if before is not None:
            self.drop(card)
        states = self._groups.setdefault(now[0], {})
        states.setdefault(state, Members()).add(card)
        self._of[card] = now

    def drop(self, card: CardId) -> None:
        """Takes a card out of its class."""
        group, state = self._of.pop(card)
        states = self._groups[group]
        states[state].remove(card)
        if not states[state]:
            del states[state]
            if not states:
                del self._groups[group]

    def where(self, card: CardId) -> tuple[Kind, Site, State]:
        """Returns the class of a card."""
        (kind, site), state = self._of[card]
        return kind, site, state

    def groups(self) -> Iterator[tuple[Kind, Site, dict[State, Members]]]:
        """Yields each kind and site with its classes."""
        for (kind, site), states in self._groups.items():
            yield kind, site, states

    def __len__(self) -> int:
        return sum(len(states) for states in self._groups.values())
