"""Reservations: room that a tenant has for a time, whether or not its programs run in it.

A reservation is a request whose lease ends at its time, and not with a program. It is placed,
granted, reported and released like any other; the daemon alone looks at its time. So a manager that
is away, or whose clock jumps, neither ends one nor makes one longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.core.book import Book
    from rgpu_cluster.core.limits import Limits
    from rgpu_cluster.core.line import Line
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

NS = 1_000_000_000


def reserved_by(tenant: str, pool: Pool, book: Book, line: Line) -> set[str]:
    """Returns the ids of a tenant's reservations: those that it has, and those that wait."""
    asked: Iterable[Request] = (
        *(booking.entry.request for booking in book),
        *(entry.request for entry in line),
    )
    found = {request.id for request in asked if request.reserved and request.tenant == tenant}
    for card in pool.cards():
        held = pool.holdings(card.id)
        found |= {one.lease for one in held if one.reserved and one.tenant == tenant}
    return found


def why_not(request: Request, pool: Pool, book: Book, line: Line, limits: Limits) -> str:
    """Returns why this request may not reserve, in a sentence; "" if it may."""
    if not request.reserved:
        return ""
    longest = limits.reserve_ns // NS
    if request.reserve_seconds > longest:
        return (
            f"a reservation of {format_duration(request.reserve_seconds)} was asked for, and the "
            f"longest here is {format_duration(longest)}; ask for a shorter time with --for"
        )
    most = limits.reservations_per_tenant
    have = len(reserved_by(request.tenant, pool, book, line))
    if have >= most:
        return (
            f"tenant {request.tenant} has {have} reservations, and a tenant has at most {most} "
            "here; release one with `rgpu release ID`, or use it for this as well"
        )
    return ""
