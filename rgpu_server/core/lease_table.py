"""All leases of a server, by id and by key, and what they hold of each device in all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rgpu_server.core.model import LeaseState
from rgpu_server.core.quota import NOTHING, Holding, minus, plus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_server.core.lease import Lease
    from rgpu_server.core.model import Amount, LeaseKey


class LeaseTable:
    """All leases. Whoever changes what a lease holds calls `changed`.

    next_number: the number of the next lease in the order of grants. weak: the leases that have
    less of a share than was asked for. moved: the tenants whose leases hold something else than
    when this set was last emptied.
    """

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._by_key: dict[LeaseKey, Lease] = {}
        self._by_tenant: defaultdict[str, dict[str, Lease]] = defaultdict(dict)
        self.next_number = 1
        self.moved: set[str] = set()
        self.weak: set[str] = set()
        self._totals: defaultdict[int, Amount] = defaultdict(lambda: NOTHING)
        # What of the totals is each lease's: its device and its amount.
        self._counted: dict[str, tuple[int, Amount]] = {}

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
        self._by_tenant[lease.key.tenant][lease.id] = lease
        self.changed(lease)

    def remove(self, lease: Lease) -> None:
        """Forgets a lease."""
        del self._leases[lease.id]
        del self._by_key[lease.key]
        of_tenant = self._by_tenant[lease.key.tenant]
        del of_tenant[lease.id]
        if not of_tenant:
            del self._by_tenant[lease.key.tenant]
        self.changed(lease)

    def changed(self, lease: Lease) -> None:
        """Notes that a lease has another device, other sizes or other held bytes than before."""
        self.moved.add(lease.key.tenant)
        device, amount = self._counted.pop(lease.id, (lease.device, NOTHING))
        self._totals[device] = minus(self._totals[device], amount)
        self.weak.discard(lease.id)
        if lease.id not in self._leases:
            return
        self._counted[lease.id] = lease.device, lease.amount
        self._totals[lease.device] = plus(self._totals[lease.device], lease.amount)
        if lease.quota.share_request_ppm < lease.asked_share_ppm:
            self.weak.add(lease.id)

    def total_on(self, device: int) -> Amount:
        """Returns what all leases hold of a device. Unlike `holdings` it costs the same however
        many there are.
        """
        return self._totals[device]

    def holdings(self, without: Lease | None = None) -> list[Holding]:
        """Returns the holding of each lease except `without`."""
        return [_holding(lease) for lease in self._leases.values() if lease is not without]

    def holdings_of(self, tenant: str) -> list[Holding]:
        """Returns the holding of each lease of a tenant."""
        return [_holding(lease) for lease in self._by_tenant.get(tenant, {}).values()]


def _holding(lease: Lease) -> Holding:
    return Holding(
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
