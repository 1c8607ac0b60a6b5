"""Turns: who is next where requests of several tenants wait for one thing."""

from __future__ import annotations


class Turns:
    """Gives each request a mark when it comes; of those that wait, the smallest mark is next.

    A tenant's marks follow each other, and a tenant that comes anew begins where the others are. So
    besides those of its own tenant a request waits for one request of each other tenant at most, or
    for two where its own tenant has just had its turn. This is start-time fair queueing, with
    requests of equal cost.
    """

    def __init__(self) -> None:
        self._now = 0
        # Tenant -> its last mark, if that is not earlier than the request that is served now.
        self._last: dict[str, int] = {}

    def mark(self, tenant: str) -> int:
        """Returns the mark of a request that has just come."""
        mark = max(self._last.get(tenant, -1) + 1, self._now)
        self._last[tenant] = mark
        return mark

    def serve(self, mark: int) -> None:
        """Notes that the request with this mark is served now."""
        if mark > self._now:
            self._now = mark
            self._last = {tenant: last for tenant, last in self._last.items() if last >= mark}
