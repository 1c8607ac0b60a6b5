"""What a node's report says of the leases that the manager has asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rgpu_cluster.core.actions import Revoke
from rgpu_cluster.core.node import STALE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rgpu_cluster.core.book import Book, Booking
    from rgpu_cluster.core.card import CardId, Holding
    from rgpu_cluster.core.line import Line
    from rgpu_cluster.core.node import Node


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


def strays(node: str, present: Mapping[str, Presence], book: Book, line: Line) -> Iterator[Revoke]:
    """Yields the ends of leases of requests that were placed again, elsewhere or later."""
    for lease, (attempt, _) in present.items():
        booking = book.get(lease)
        entry = booking.entry if booking is not None else line.get(lease)
        # One that waits and has not been placed yet takes over what a daemon has. One that is in
        # line again has given up all of its attempts.
        if entry is None or not entry.attempt:
            continue
        if booking is None or not agrees(booking, node, present):
            yield Revoke(lease, node, attempt)


def is_news(node: Node, known: Node) -> bool:
    """Returns whether a report says more than the last one. One that was asked for always does."""
    if STALE in known.taints:
        return node.generation >= known.generation
    return node.generation > known.generation
