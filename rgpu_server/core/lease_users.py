"""The users of leases: sessions, which have slots, and runs, which hold a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import Code, LeaseState, RefusedError

if TYPE_CHECKING:
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.lease_table import LeaseTable
    from rgpu_server.core.lending import Lending
    from rgpu_server.core.model import LeaseKey
    from rgpu_server.core.policy import Policy


class LeaseUsers:
    """Adds and removes the users of leases. A lease that came with its first user ends some time
    after its last one.

    Times (`now`) are seconds of the caller's clock, which never goes back.
    """

    def __init__(self, table: LeaseTable, lending: Lending, policy: Policy) -> None:
        self._table = table
        self._lending = lending
        self._policy = policy

    def attach(self, lease: Lease, session: int) -> int:
        """Gives a session a slot in the lease's page; RefusedError if all are taken."""
        for slot in range(self._policy.slots):
            if slot not in lease.slots:
                lease.slots[slot] = session
                lease.begin()
                return slot
        raise RefusedError(
            Code.LEASE_FULL,
            f"lease {lease.key} has {self._policy.slots} sessions, which is all it can have; "
            "end one or use another lease key",
        )

    def detach(self, lease: Lease, slot: int, now: float) -> bool:
        """Frees a slot. Returns True if the lease ended with its last session."""
        del lease.slots[slot]
        if lease.slots:
            return False
        lease.held_bytes = 0
        self._lending.freed(lease)
        if lease.state is not LeaseState.ACTIVE:
            self._lending.drop(lease)
            return True
        return self._left(lease, now)

    def hold(self, lease: Lease, claim: int) -> None:
        """Notes that a run holds the lease; RefusedError if it has as many holders as it
        may have.
        """
        if len(lease.holders) >= self._policy.slots:
            raise RefusedError(
                Code.LEASE_FULL,
                f"lease {lease.key} is held by {len(lease.holders)} runs, which is all it can have;"
                " end one or use another lease key",
            )
        lease.holders.add(claim)
        lease.begin()

    def let_go(self, lease: Lease, claim: int, now: float) -> bool:
        """Notes that a run has ended. Returns True if its lease ended with it."""
        lease.holders.discard(claim)
        if lease.used or lease.state is not LeaseState.ACTIVE:
            return False
        self._lending.freed(lease)
        return self._left(lease, now)

    def without_session(self, tenant: str, key: LeaseKey) -> int:
        """Returns how many leases of a tenant are held by a run and have no session; skips that of
        `key`.
        """
        return sum(
            1
            for x in self._table
            if x.key.tenant == tenant and x.holders and not x.slots and x.key != key
        )

    def _left(self, lease: Lease, now: float) -> bool:
        """Handles an active lease that has become empty. Returns True if it is gone, because it was
        for one run alone.
        """
        if lease.kept and not lease.used:
            lease.keep(lease.ttl_seconds, now)
        if lease.used or lease.explicit:
            return False
        if lease.own:
            self._lending.drop(lease)
            return True
        lease.ends_at = now + self._policy.grace_seconds
        self._crowd(lease)
        return False

    def _crowd(self, lease: Lease) -> None:
        """Ends the oldest empty leases of a tenant, and of an address, if there are too many."""
        for same in (
            [x for x in self._table if x.idle and x.key.tenant == lease.key.tenant],
            [x for x in self._table if x.idle and x.address == lease.address],
        ):
            same.sort(key=lambda x: (x.ends_at or 0.0, x.number))
            for old in same[: max(len(same) - self._policy.max_idle_leases, 0)]:
                if self._table.get(old.id) is not None:
                    self._lending.dismiss(old)
