"""What a node's report says of the leases that the manager has asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rgpu_cluster.core.book import Booking
    from rgpu_cluster.core.card import CardId, Holding


class Presence(NamedTuple):
    """A request's leases on one node: of which attempt they are, and on which cards."""

    attempt: int
    cards: frozenset[CardId]


def presence(held: Mapping[CardId, Iterable[Holding]]) -> dict[str, Presence]:
    """Returns the leases of a report, by request."""
    found: dict[str, Presence] = {}
    for card, holdings in held.items():
        for one in holdings:
            before = found.get(one.lease, Presence(0, frozenset()))
            attempt = max(before.attempt, one.attempt)
            found[one.lease] = Presence(attempt, before.cards | {card})
    return found


def agrees(booking: Booking, node: str, present: Mapping[str, Presence]) -> bool:
    """Returns whether a node has just the leases of a request that were asked for.

    A manager that was started again counts attempts anew. So leases of the same attempt may be on
    other cards or other nodes, from before.
    """
    cards = frozenset(booking.cards_on(node))
    return bool(cards) and present.get(booking.entry.request.id) == (booking.entry.attempt, cards)
