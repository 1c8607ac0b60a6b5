"""All leases of a server, by id and by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import LeaseState
from rgpu_server.core.quota import Holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_server.core.lease import Lease
    from rgpu_server.core.model import LeaseKey


class LeaseTable:
    """All leases. next_number: the number of the next lease in the order of grants. version: counts
    how often what leases hold has changed; whoever changes it calls `changed`.
    """

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._by_key: dict[LeaseKey, Lease] = {}
        self.next_number = 1
        self.version = 0

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def get(self, lease_id: str) -> Lease | None:
        """Returns the lease with this id, active or draining, or None."""
        return self._leases.get(lease_id)

    def of(self, key: LeaseKey) -> Lease | None:
        """Returns the lease of this key, active or draining, or None."""
        return self._by_key.get(key)

    def add(self, lease: Lease) -> None:
        """Adds a lease."""
        self._leases[lease.id] = lease
        self._by_key[lease.key] = lease
        self.changed()

    def remove(self, lease: Lease) -> None:
        """Forgets a lease."""
        del self._leases[lease.id]
        del self._by_key[lease.key]
        self.changed()

    def changed(self) -> None:
        """Notes that a lease has another device, other sizes or other held bytes than before."""
        self.version += 1

    def holdings(self, without: Lease | None = None) -> list[Holding]:
        """Returns the holding of each lease except `without`."""
        return [
            Holding(
                lease.id,
                lease.key.tenant,
                lease.device,
                lease.amount,
                lease.number,
                lease.quota.priority,
                lease.idle,
                lease.state is LeaseState.ACTIVE,
                lease.reclaim_at is not None,
            )
            for lease in self._leases.values()
            if lease is not without
        ]
