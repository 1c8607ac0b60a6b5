"""Requests with alternatives: they take the first that fits, in the order of their client.

All members of a gang take their first alternative, or all take their second, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_cluster.core import filters
from rgpu_cluster.core.decision import Refusal
from rgpu_cluster.core.line import Entry
from rgpu_cluster.core.quotas import only_borrows
from rgpu_cluster.core.request import holding_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.events import Asked
    from rgpu_cluster.core.line import Line
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.quotas import Accounts
    from rgpu_cluster.core.request import Request


def entry_of(event: Asked, since_ns: int, number: int) -> Entry:
    """Returns the entry of a request that comes."""
    entry = Entry(event.request, since_ns, number, event.wait, event.gang, event.gang_size)
    entry.choices += event.others
    return entry


def numbers_of(together: Sequence[Entry]) -> range:
    """Returns the numbers of the alternatives of requests that are placed together."""
    if len(together) == 1:
        return range(len(together[0].choices))
    return range(max(len(one.choices) for one in together))


def choose(together: Iterable[Entry], number: int) -> None:
    """Has each of these requests ask for its alternative of this number."""
    for one in together:
        one.choose(number)


def borrows(entry: Entry, accounts: Accounts) -> bool:
    """Returns whether each alternative goes beyond the tenant's quota."""
    return accounts.borrows(entry.request) and all(map(accounts.borrows, entry.choices))


def over_quota(
    together: Sequence[Entry], accounts: Accounts, line: Line, generation: int
) -> dict[int, Refusal]:
    """Returns why the tenant of these requests may not have an alternative, by its number."""
    found: dict[int, Refusal] = {}
    if not accounts:
        return found
    rows = [[one.at(number) for one in together] for number in numbers_of(together)]
    borrowing = [len(rows) > 1 and accounts.borrows(*requests) for requests in rows]
    for number, requests in enumerate(rows):
        why, possible = accounts.why_not(requests)
        # Its place in line is that of the alternatives that do not borrow. One that does must not
        # take cards before those who come later in line and are owed them.
        if not why and borrowing[number] and not all(borrowing):
            why = _others_wait(requests[0], accounts, line)
        if why:
            found[number] = Refusal(requests[0], generation, (), possible, why)
    return found


def _others_wait(request: Request, accounts: Accounts, line: Line) -> str:
    """Returns the sentence if other tenants wait for what may be their own; else ""."""
    for group in line.groups():
        entry = line.get(group.order[0][2])
        if entry is None or group.key.tenant == request.tenant:
            continue
        models = {one.model for one in entry.choices if accounts.owed(one)}
        if models and (not request.model or models & {"", request.model}):
            return only_borrows(request.tenant)
    return ""


def take_over(entry: Entry, cards: Sequence[CardId], pool: Pool) -> bool:
    """Has a request ask for the alternative of which daemons have leases on these cards. Returns
    False if there is none.
    """
    for number, request in enumerate(entry.choices):
        if len(cards) == request.cards and (
            len(entry.choices) == 1 or all(_is_of(request, card, pool) for card in cards)
        ):
            entry.choose(number)
            return True
    return False


def _is_of(request: Request, place: CardId, pool: Pool) -> bool:
    """Returns whether the lease of a request has the size that the request asks for."""
    card, had = pool.card(place), pool.holding(place, request.id)
    if had is None or filters.of_kind(card, request) is not None:
        return False
    size = had.share_ppm, had.memory_bytes
    if had.elastic is not None:
        size = had.elastic.wanted_ppm, had.elastic.wanted_bytes
    wanted = holding_of(request, card.memory_bytes)
    return (*size, had.whole) == (wanted.share_ppm, wanted.memory_bytes, wanted.whole)
