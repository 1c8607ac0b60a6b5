"""Leases whose claim is not known: an earlier manager asked for them, or the claim is new. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A claim that was made a moment ago may not have been heard of yet.
SECONDS = 10.0
# A node may make leases up, and each namespace that it names costs the API server two lists.
MOST_NAMESPACES = 8


class Strays:
    def __init__(self) -> None:
        # Lease -> since when it has no known claim, or when it was looked at last.
        self._since: dict[str, float] = {}

    def look(self, leases: Iterable[tuple[str, str]], now: float) -> dict[str, list[str]]:
        """Takes the leases that have no known claim now, each with its namespace.

        Returns those that have had none for long enough, by namespace, and no more namespaces than
        can be looked at. The same lease is not returned again for a while. now: seconds of any
        clock.
        """
        spaces = dict(leases)
        # Those that wait for longest come first.
        since = {lease: self._since.get(lease, now) for lease in spaces}
        self._since = dict(sorted(since.items(), key=lambda one: one[1]))
        due: dict[str, list[str]] = {}
        for lease, then in list(self._since.items()):
            namespace = spaces[lease]
            if now - then >= SECONDS and (namespace in due or len(due) < MOST_NAMESPACES):
                due.setdefault(namespace, []).append(lease)
                self._since[lease] = now
        return due
