"""The book of leases: grant, join, keep alive, resize, pause, revoke, expire. `lease_users` has the
sessions and runs of each lease.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_server.core.bars import Bars
from rgpu_server.core.ended import EndedKeys
from rgpu_server.core.lease import (
    Joined,
    Lease,
    check_as_asked,
    check_drained,
    check_extends,
    check_not_larger,
    check_same,
    differs,
    life,
)
from rgpu_server.core.lease_table import LeaseTable
from rgpu_server.core.lease_users import LeaseUsers
from rgpu_server.core.lending import Lending, always
from rgpu_server.core.model import (
    Amount,
    Code,
    Device,
    LeaseKey,
    LeaseState,
    Quota,
    RefusedError,
    Wish,
)
from rgpu_server.core.placement import find
from rgpu_server.core.plans import Ask
from rgpu_server.core.quota import Holding, Quotas
from rgpu_server.core.shares import Change, changed, resolve
from rgpu_server.core.tenants import check_grants, check_tenants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rgpu_server.core.booked import Booked
    from rgpu_server.core.policy import Policy, TenantPolicy


class LeaseBook:
    """Grants, changes and ends leases. The sums of their memory and of their share requests never
    exceed a device.

    Times (`now`) are seconds of the caller's clock, which never goes back.
    """

    def __init__(
        self, devices: Sequence[Device], policy: Policy, tenants: Mapping[str, TenantPolicy]
    ) -> None:
        self._devices = devices
        self._policy = policy
        self._tenants = tenants
        self.quotas = Quotas(devices, policy, tenants)
        self._table = LeaseTable()
        self.lending = Lending(devices, policy, self.quotas, self._table)
        self.users = LeaseUsers(self._table, self.lending, policy)
        self._ended = EndedKeys(policy)
        self._made = 0
        # The room on devices that is kept for claims in line.
        self.bars = Bars()

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._table)

    def get(self, lease: str) -> Lease | None:
        """Returns the lease with this id, active or draining, or None."""
        return self._table.get(lease)

    def adopt(self, lease: Lease, now: float) -> None:
        """Takes over a lease of an earlier daemon, also if it would not be granted today.

        An explicit lease gets a new ttl, an implicit one without sessions a new grace period. A
        reservation keeps its end; a clock that began anew gives it no more than its whole time.
        """
        end = lease.ends_at if lease.reserved else None
        if lease.booked is not None and not (lease.reserved or lease.kept):
            # Without a session, its run has its ttl to come back.
            lease.explicit = not lease.slots
        if lease.state is LeaseState.ACTIVE:
            if lease.kept:
                lease.keep(lease.ttl_seconds, now)
            elif lease.explicit:
                lease.ends_at = min(end or math.inf, now + lease.ttl_seconds)
            else:
                lease.ends_at = None if lease.slots else now + self._policy.grace_seconds
        lease.number = lease.number or self._table.next_number
        self._table.add(lease)
        number = lease.id.rpartition("-")[2]
        following = int(number) + 1 if number.isdecimal() else 0
        self._table.next_number = max(self._table.next_number, following)

    @property
    def changes(self) -> int:
        """Counts since the start how often room became free or a new lease was made."""
        return self.lending.changes + self._made

    def of(self, key: LeaseKey) -> Lease | None:
        """Returns the lease of this key, active or draining, or None."""
        return self._table.of(key)

    def is_active(self, key: LeaseKey) -> bool:
        """Returns whether this key has an active lease."""
        lease = self._table.of(key)
        return lease is not None and lease.state is LeaseState.ACTIVE

    def holdings(self) -> list[Holding]:
        """Returns what each lease holds."""
        return self._table.holdings()

    def total_on(self, device: int) -> Amount:
        """Returns what all leases hold of a device."""
        return self._table.total_on(device)

    def weak(self) -> set[str]:
        """Returns the ids of the leases that have less of a share than was asked for."""
        return self._table.weak

    def borrowing(self) -> tuple[set[str], set[str]]:
        """Returns the ids of the leases whose share, and whose memory, is borrowed."""
        return self.lending.borrowing()

    def grant(
        self,
        key: LeaseKey,
        wish: Wish,
        ttl_seconds: float,
        now: float,
        *,
        passes_line: bool = False,
        booked: Booked | None = None,
        operator: bool = False,
        name: str = "",
    ) -> tuple[Lease, bool]:
        """Grants an explicit lease. The same grant again keeps it alive. Returns True with a new
        lease.

        ttl_seconds: 0 for the policy's. passes_line: the lease may take room for which claims wait.
        booked: what a new lease has of it; a reservation may live as long as its manager allows.
        operator: an operator asks. name: what people call it.

        Raises:
            RefusedError: it does not fit, the key has a lease with other sizes, or there are too
                many leases.
        """
        reserved = booked is not None and booked.reserved
        ttl = ttl_seconds if reserved else life(ttl_seconds, self._policy)
        held = self._table.of(key)
        trusted = operator or booked is not None
        if held is None or not held.explicit:
            self._check_grants(key.tenant, operator=trusted)
        if held is not None and held.state is LeaseState.ACTIVE:
            asked = self._ask(key, wish, 0, None).quota_on(find(self._devices, held.device))
            check_same(held, wish.device, asked)
            check_extends(held)
            held.explicit = True
            held.keep(ttl, now)
            return held, False
        check_drained(held)
        self.check_new(key, operator=trusted)
        lease = self._new(key, wish, now, passes_line=passes_line)
        lease.explicit, lease.ttl_seconds, lease.ends_at = True, ttl, now + ttl
        lease.booked, lease.name = booked, name
        return lease, True

    def join(
        self,
        key: LeaseKey,
        wish: Wish,
        now: float,
        address: str = "",
        *,
        operator: bool = False,
        name: str = "",
    ) -> tuple[Lease, Joined]:
        """Returns the lease of a session of `key`. A key without a lease gets an implicit one.
        operator: the session is an operator's. name: of its program; a lease that is granted or in
        use keeps the name that it has.

        Raises:
            RefusedError: the lease has ended, has other sizes and is in use, or does not fit.
        """
        held = self._table.of(key)
        if held is None:
            self._ended.check(key, now)
            self.check_new(key, operator=operator)
            lease = self._new(key, wish, now)
            lease.address, lease.name = address, name
            return lease, Joined.NEW
        if held.state is not LeaseState.ACTIVE:
            raise RefusedError(
                Code.LEASE_ENDED,
                f"lease {key} {held.state.value}; ask for a new grant or use another lease key",
            )
        if held.explicit or held.used:
            check_as_asked(held, wish, find(self._devices, held.device))
            held.name = held.name or name
            return held, Joined.AS_IT_WAS
        self._check_tenants(key.tenant)
        joined = self._join_empty(held, wish, now, keeps=self._policy.member and not operator)
        held.name = name
        return held, joined

    def _join_empty(self, held: Lease, wish: Wish, now: float, *, keeps: bool) -> Joined:
        """The lease is empty: the sizes asked for now count, not those of its last session. keeps:
        it keeps the sizes of which the cluster's manager knows. RefusedError as `join`.
        """
        if keeps:
            check_as_asked(held, wish, find(self._devices, held.device))
            return Joined.AS_IT_WAS
        before = held.quota
        self._reshape(held, wish, now)
        return Joined.AS_IT_WAS if held.quota == before else Joined.RESHAPED

    def unsettled(self, key: LeaseKey, wish: Wish) -> bool:
        """True if a session of `key` asks for other sizes than its implicit lease, which is in use
        now. Once that lease is empty it can take the new sizes.
        """
        held = self._table.of(key)
        if held is None or held.explicit or held.state is not LeaseState.ACTIVE or not held.used:
            return False
        return differs(held, wish, find(self._devices, held.device))

    def keep_alive(self, lease_id: str, now: float, ttl_seconds: float = 0) -> Lease:
        """Moves the end of an explicit lease to `now` + its ttl; RefusedError if the lease has
        ended. ttl_seconds: its ttl from now on; 0: the one it has.
        """
        lease = self.active(lease_id)
        check_extends(lease)
        if lease.explicit:
            lease.keep(life(ttl_seconds or lease.ttl_seconds, self._policy), now)
        return lease

    def pause(self, lease_id: str, paused: bool, operator: bool = True) -> tuple[Lease, bool]:
        """Pauses or resumes the device work of a lease, and returns it, and whether that changed
        anything: who may resume it is a change, too.

        Raises:
            RefusedError: the lease has ended, or an operator paused it and another caller resumes
                it.
        """
        lease = self.active(lease_id)
        if lease.paused and lease.stopped and not operator:
            sentence = f"lease {lease.key} was paused by an operator; only an operator resumes it"
            raise RefusedError(Code.NOT_ALLOWED, sentence)
        before = lease.paused, lease.stopped
        lease.paused = paused
        lease.stopped = paused and operator
        return lease, (lease.paused, lease.stopped) != before

    def resize(
        self, lease_id: str, change: Change, used_bytes: int, now: float, *, operator: bool = False
    ) -> Lease:
        """Changes sizes; RefusedError if the lease has ended or the sizes do not fit.

        used_bytes: the memory that its sessions hold now. It stays taken until they free it.
        operator: an operator or the cluster's manager asks.
        """
        lease = self.active(lease_id)
        device = find(self._devices, lease.device)
        tenant = self.quotas.policy_of(lease.key.tenant)
        asked = changed(lease.asked, change, device, tenant)
        if self._policy.member and not operator:
            check_not_larger(lease, asked)
        quota, has = asked, lease.quota.share_request_ppm
        if has < lease.asked_share_ppm and asked.share_request_ppm <= lease.asked_share_ppm:
            # Its owner has the borrowed share now; `restore` gives it back later.
            quota = replace(asked, share_request_ppm=0)
        before = Amount(has, lease.quota.memory_bytes)
        ask = Ask(lease.key.tenant, lease.device, always(quota), lease.number, before)
        self.lending.admit(ask, lease, now)
        lease.first = lease.first or lease.asked
        lease.quota, lease.asked_share_ppm = quota, asked.share_request_ppm
        # A worker may report any number. Its sessions cannot hold more than its lease had.
        lease.held_bytes = min(used_bytes, max(before.memory_bytes, lease.held_bytes))
        self.lending.freed(lease)
        return lease

    def oversize(self) -> list[str]:
        """Returns the leases whose sessions are known to hold more than the memory limit."""
        return [x.id for x in self._table if x.held_bytes > x.quota.memory_bytes]

    def observe(self, used: Mapping[str, int]) -> None:
        """Notes how much memory oversized leases hold now."""
        for lease_id, used_bytes in used.items():
            lease = self._table.get(lease_id)
            if lease is not None and used_bytes < lease.held_bytes:
                lease.held_bytes = used_bytes
                self.lending.freed(lease)

    def revoke(self, lease_id: str, now: float) -> tuple[Lease, bool]:
        """Ends a lease. Returns True if it had no session and is gone at once."""
        lease = self.active(lease_id)
        return lease, self._end(lease, LeaseState.REVOKED, now)

    def end_all(self, now: float) -> list[tuple[Lease, bool]]:
        """Ends all leases because the server is drained. True: the lease is gone at once."""
        active = [x for x in self._table if x.state is LeaseState.ACTIVE]
        return [(lease, self._end(lease, LeaseState.DRAINED, now)) for lease in active]

    def expire(self, now: float) -> list[tuple[Lease, bool]]:
        """Ends the leases whose time is over, or whose borrowed memory is reclaimed now. True: the
        lease is gone at once.
        """
        ended = []
        for lease in self._table:
            if lease.state is not LeaseState.ACTIVE:
                continue
            if lease.reclaim_at is not None and lease.reclaim_at <= now:
                ended.append((lease, self._end(lease, LeaseState.RECLAIMED, now)))
            elif lease.ends_at is not None and lease.ends_at <= now:
                ended.append((lease, self._end(lease, LeaseState.EXPIRED, now)))
        self._ended.clean(now)
        self.lending.expire(now)
        return ended

    def next_end(self) -> float | None:
        """Returns the next time at which `expire` has work to do."""
        active = [x for x in self._table if x.state is LeaseState.ACTIVE]
        ends = [time for x in active for time in (x.ends_at, x.reclaim_at) if time is not None]
        return min(ends + self.lending.ends(), default=None)

    def active(self, lease_id: str) -> Lease:
        """Returns an active lease; RefusedError if there is none with this id."""
        lease = self._table.get(lease_id)
        if lease is None:
            raise RefusedError(
                Code.LEASE_UNKNOWN,
                f"there is no lease {lease_id!r}; it may have expired: grant a new one",
            )
        if lease.state is not LeaseState.ACTIVE:
            raise RefusedError(
                Code.LEASE_ENDED, f"lease {lease.key} {lease.state.value}; grant a new one"
            )
        return lease

    # Admission

    def _new(self, key: LeaseKey, wish: Wish, now: float, *, passes_line: bool = False) -> Lease:
        self._check_tenants(key.tenant)
        ask = self._ask(key, wish, self._table.next_number, None if passes_line else self.bars)
        plan = self.lending.admit(ask, None, now)
        number = self._table.next_number
        self._table.next_number += 1
        self._made += 1
        lease = Lease(f"lease-{number}", key, plan.device.ordinal, plan.quota, False, 0.0, None)
        lease.number, lease.asked_share_ppm = number, plan.quota.share_request_ppm
        self._table.add(lease)
        self._ended.forget(key)
        return lease

    def _reshape(self, lease: Lease, wish: Wish, now: float) -> None:
        ask = self._ask(lease.key, wish, lease.number, self.bars)
        plan = self.lending.admit(ask, lease, now)
        lease.device, lease.quota = plan.device.ordinal, plan.quota
        lease.asked_share_ppm, lease.reclaim_at = plan.quota.share_request_ppm, None
        lease.first, lease.own = None, False
        self.lending.freed(lease)

    def check_new(self, key: LeaseKey, *, operator: bool) -> None:
        """Refuses a key without a lease if only the cluster's manager makes leases here. operator:
        an operator or the manager asks.
        """
        if self._policy.member and not operator and self._table.of(key) is None:
            raise RefusedError(
                Code.NOT_ALLOWED,
                f"this server has no lease {key}. It is a node of a cluster, where the manager "
                "grants leases: ask the manager with `rgpu run --manager` or RGPU_MANAGER, and "
                "leave --server and RGPU_SERVER out",
            )

    def check_line(self, key: LeaseKey, wish: Wish) -> None:
        """Checks a new lease against the bars of the claims in line.

        It does not look at all leases, so many claims in line cost little.

        Raises:
            RefusedError: all room that the lease could take is kept for claims.
        """
        if self.bars and self._table.of(key) is None:
            self.lending.check_line(self._ask(key, wish, self._table.next_number, self.bars))

    def possible(self, key: LeaseKey, wish: Wish) -> dict[int, Quota]:
        """Returns the devices on which a new lease would fit without other leases, with its
        ceilings there.

        Raises:
            RefusedError: there is no such device, so waiting does not help.
        """
        ask = self._ask(key, wish, 0, None)
        return {o: ask.quota_on(find(self._devices, o)) for o in self.lending.possible(ask)}

    def _ask(self, key: LeaseKey, wish: Wish, number: int, bars: Bars | None) -> Ask:
        tenant = self.quotas.policy_of(key.tenant)

        @cache
        def quota_on(device: Device) -> Quota:
            return resolve(self._policy, tenant, wish, device)

        return Ask(key.tenant, wish.device, quota_on, number, bars=bars)

    # Checks

    def _check_tenants(self, tenant: str) -> None:
        there = (x.key.tenant for x in self._table if not x.idle)
        check_tenants(tenant, self._tenants, there, self._policy.max_tenants)

    def _check_grants(self, tenant: str, *, operator: bool) -> None:
        there = [x.key.tenant for x in self._table if x.explicit]
        policy, most = self.quotas.policy_of(tenant), self._policy.max_leases
        check_grants(tenant, policy, there, most, operator=operator)

    # The end

    def _end(self, lease: Lease, state: LeaseState, now: float) -> bool:
        lease.state, lease.ends_at, lease.reclaim_at = state, None, None
        if lease.explicit or state is LeaseState.REVOKED:
            self._ended.add(lease.key, state, now)
        if lease.slots:
            return False
        self.lending.drop(lease)
        return True
