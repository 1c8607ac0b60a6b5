"""Requests that have cards, from the moment at which the pool reserves them.

CLEARING: leases on its cards are to shrink or to end first. PENDING: the pool has reserved the
cards, and not all daemons have granted yet. PLACED: all have. UNDOING: the request goes back:
daemons are told to revoke. Its cards stay reserved until each daemon has said that it has no such
lease, because it might have granted one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_cluster.core.actions import Abandon, Grant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.decision import Decision
    from rgpu_cluster.core.line import Entry
    from rgpu_cluster.core.pressure import Give


class Stage(Enum):
    """How far a request with cards is."""

    CLEARING = "clearing"
    PENDING = "pending"
    PLACED = "placed"
    UNDOING = "undoing"


class Booking(Struct):
    """One request that has cards.

    waiting_for: nodes whose daemons have to answer: with a grant (PENDING), or that the lease is
        gone (UNDOING).
    granted: nodes whose daemons have granted, with the generation of the node that has the lease.
    since_ns: since when the stage lasts.
    again: the request goes back in line when it is undone. adopted: daemons had its leases before
    this manager knew the request. gives: what other leases gave for it.
    """

    entry: Entry
    decision: Decision
    stage: Stage = Stage.PENDING
    waiting_for: set[str] = field(default_factory=set)
    granted: dict[str, int] = field(default_factory=dict)
    since_ns: int = 0
    again: bool = False
    gives: tuple[Give, ...] = ()
    adopted: bool = False

    @property
    def cards(self) -> tuple[CardId, ...]:
        """All of its cards."""
        return self.decision.chosen.cards

    def cards_on(self, node: str) -> tuple[CardId, ...]:
        """Returns its cards on a node."""
        return tuple(card for card in self.decision.chosen.cards if card.node == node)

    def abandoned(self) -> list[Abandon]:
        """Returns what to tell the daemons of a run whose client has gone. A reservation stays."""
        request = self.entry.request
        if self.stage is not Stage.PLACED or request.reserved:
            return []
        return [Abandon(request.id, node, self.entry.attempt) for node in self.nodes()]

    def ask(self, now_ns: int) -> list[Grant]:
        """Begins to wait for the daemons, and returns what to ask them."""
        self.stage, self.since_ns, self.waiting_for = Stage.PENDING, now_ns, set(self.nodes())
        grants = []
        for node in self.nodes():
            cards = self.cards_on(node)
            first = self.decision.chosen.cards.index(cards[0])
            grants.append(Grant(self.entry.request, node, cards, self.entry.attempt, first))
        return grants

    def nodes(self) -> list[str]:
        """Returns its nodes."""
        return sorted({card.node for card in self.decision.chosen.cards})


class Book:
    """All bookings, by request. What is asked after each event costs no step for a booking that is
    PLACED, because a large cluster has thousands of these.
    """

    def __init__(self) -> None:
        self._bookings: dict[str, Booking] = {}
        self._adopted: dict[str, dict[str, Booking]] = {}
        self._on: dict[str, dict[str, Booking]] = {}
        # All that are not PLACED, and some that have been placed since.
        self._moving: dict[str, Booking] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._bookings

    def __len__(self) -> int:
        return len(self._bookings)

    def __iter__(self) -> Iterator[Booking]:
        return iter(list(self._bookings.values()))

    def get(self, request: str) -> Booking | None:
        """Returns the booking of a request, or None."""
        return self._bookings.get(request)

    def add(self, booking: Booking) -> None:
        """Adds a booking."""
        request, gang = booking.entry.request.id, booking.entry.gang
        self._bookings[request] = booking
        self._moving[request] = booking
        for node in booking.nodes():
            self._on.setdefault(node, {})[request] = booking
        if booking.adopted and gang:
            self._adopted.setdefault(gang, {})[request] = booking

    def remove(self, request: str) -> None:
        """Removes a booking."""
        booking = self._bookings.pop(request, None)
        if booking is None:
            return
        self._moving.pop(request, None)
        for node in booking.nodes():
            del self._on[node][request]
            if not self._on[node]:
                del self._on[node]
        gang = booking.entry.gang
        if gang in self._adopted:
            self._adopted[gang].pop(request, None)
            if not self._adopted[gang]:
                del self._adopted[gang]

    def adopted(self, gang: str) -> list[Booking]:
        """Returns the members of a gang that have cards since before this manager was started."""
        return list(self._adopted.get(gang, {}).values())

    def on(self, node: str) -> list[Booking]:
        """Returns the bookings that have cards on a node."""
        return list(self._on.get(node, {}).values())

    def undo(self, booking: Booking) -> None:
        """Notes that a booking goes back."""
        booking.stage = Stage.UNDOING
        if self._bookings.get(booking.entry.request.id) is booking:
            self._moving[booking.entry.request.id] = booking

    def moving(self) -> list[Booking]:
        """Returns the bookings that are not PLACED."""
        for request in [r for r, one in self._moving.items() if one.stage is Stage.PLACED]:
            del self._moving[request]
        return list(self._moving.values())
