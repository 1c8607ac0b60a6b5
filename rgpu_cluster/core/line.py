"""Requests that wait, and the order in which they are tried.

By priority, highest first; then by the dominant share of their tenants, smallest first (Dominant
Resource Fairness, NSDI'11); then by age. A request that does not fit now does not keep a later one
from a card that it cannot use itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rgpu_cluster.core.card import gpu_ppm
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rgpu_cluster.core.decision import Refusal
    from rgpu_cluster.core.limits import Limits
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request


@dataclass(slots=True)
class Entry:
    """One request in line.

    since_ns: since when it waits. refusal: why it was not placed when it was last tried.
    told: the place in line of which its client knows. attempt: how often it was placed. refused:
    what a daemon said when it refused the request last; refusals: how often that was in a row;
    not_before_ns: when it is tried again; hopeless: it is not tried again. passing: the barred
    nodes that may allow it later. tried: the state of the pool in which it did not fit.
    """

    request: Request
    since_ns: int
    number: int
    wait: bool
    gang: str = ""
    gang_size: int = 1
    refusal: Refusal | None = None
    told: int = 0
    attempt: int = 0
    refused: str = ""
    refusals: int = 0
    not_before_ns: int = 0
    hopeless: bool = False
    passing: set[str] = field(default_factory=set)
    tried: tuple[int, int] = (-1, -1)

    def bar(self, node: str, *, passing: bool) -> None:
        """Keeps the request off a node; `passing`: until all others were tried."""
        self.request = replace(self.request, barred=self.request.barred | {node})
        if passing:
            self.passing.add(node)

    def unbar(self) -> None:
        """Lets it try again the nodes that may allow it now."""
        self.request = replace(self.request, barred=self.request.barred - self.passing)
        self.passing.clear()

    def rest(self, now_ns: int, limits: Limits) -> None:
        """Has it tried again later, the later the more often it was refused."""
        later = min(limits.retry_ns << min(self.refusals, 32), limits.longest_retry_ns)
        self.not_before_ns = now_ns + later
        self.tried = (-1, -1)


class Line:
    """The requests in line, by id."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        # Counts the requests that have come.
        self.changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: str) -> bool:
        return request in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, request: str) -> Entry | None:
        """Returns the entry of a request, or None."""
        return self._entries.get(request)

    def add(self, entry: Entry) -> None:
        """Adds a request."""
        self.changes += 1
        self._entries[entry.request.id] = entry

    def remove(self, request: str) -> bool:
        """Removes a request. Returns False if it is not in line."""
        return self._entries.pop(request, None) is not None

    def gang(self, name: str) -> list[Entry]:
        """Returns the requests of a gang that are in line."""
        return [entry for entry in self._entries.values() if entry.gang == name]

    def order(
        self, shares: Mapping[str, int], borrows: Callable[[Request], bool] = lambda _: False
    ) -> list[Entry]:
        """Returns the requests in the order in which they are tried.

        shares: `dominant_shares`. borrows: whether a request goes beyond its tenant's quota; then
        it is behind all that do not.
        """
        return sorted(
            self._entries.values(),
            key=lambda e: (
                borrows(e.request),
                -e.request.priority,
                shares.get(e.request.tenant, 0),
                e.since_ns,
                e.number,
            ),
        )


def dominant_shares(pool: Pool) -> dict[str, int]:
    """Returns each tenant's larger part of the pool: of its device time or memory, in ppm."""
    used: dict[str, list[int]] = {}
    total_memory = total_time = 0
    for card in pool.cards():
        total_time += card.part_ppm
        total_memory += card.memory_bytes
        for holding in pool.holdings(card.id):
            sums = used.setdefault(holding.tenant, [0, 0])
            sums[0] += gpu_ppm(card, holding)
            sums[1] += card.memory_bytes if holding.whole else holding.memory_bytes
    return {
        tenant: max(time * PPM // total_time, memory * PPM // total_memory)
        for tenant, (time, memory) in used.items()
    }


def members(entry: Entry, line: Line, placed: int = 0) -> list[Entry] | None:
    """Returns the requests that are placed together with this one; None: some are not here yet.

    placed: how many members of its gang have cards already.
    """
    if not entry.gang:
        return [entry]
    gang = line.gang(entry.gang)
    return gang if len(gang) + placed >= entry.gang_size else None
