"""The book of leases: grant, keep alive, resize, pause, revoke, expire, reclaim."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rgpu_common.units import format_bytes
from rgpu_server.core.admission import Admission, Ask, Plan
from rgpu_server.core.claims import Claims
from rgpu_server.core.ended import EndedKeys
from rgpu_server.core.lease import Joined, Lease, check_drained, check_within, sizes
from rgpu_server.core.model import (
    Amount,
    Code,
    Device,
    LeaseKey,
    LeaseState,
    Policy,
    Quota,
    RefusedError,
    TenantPolicy,
    Wish,
)
from rgpu_server.core.placement import find
from rgpu_server.core.quota import Holding, Quotas
from rgpu_server.core.shares import Change, changed, resolve
from rgpu_server.core.tenants import check_grants, check_tenants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class LeaseBook:
    """All leases.  The sums of their memory and of their share requests never pass a device."""

    def __init__(
        self, devices: Sequence[Device], policy: Policy, tenants: Mapping[str, TenantPolicy]
    ) -> None:
        self._devices = devices
        self._policy = policy
        self._tenants = tenants
        self.quotas = Quotas(devices, policy, tenants)
        self._admission = Admission(devices, policy, self.quotas)
        self._leases: dict[str, Lease] = {}
        self._by_key: dict[LeaseKey, Lease] = {}
        self._ended = EndedKeys(policy)
        self._claims = Claims(policy)
        self._changed: dict[str, tuple[Lease, bool]] = {}
        self._noticed: list[Lease] = []
        self._room = False
        self._next = 1

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def get(self, lease: str) -> Lease | None:
        """Returns the lease with this id, active or draining, or None."""
        return self._leases.get(lease)

    def adopt(self, lease: Lease, now: float) -> None:
        """Takes over a lease of an earlier daemon, whether or not it would be granted today.  An
        explicit one gets a new ttl, an implicit one without sessions its grace.
        """
        if lease.state is LeaseState.ACTIVE:
            if lease.explicit:
                lease.ends_at = now + lease.ttl_seconds
            else:
                lease.ends_at = None if lease.slots else now + self._policy.grace_seconds
        lease.number = lease.number or self._next
        self._leases[lease.id] = lease
        self._by_key[lease.key] = lease
        number = lease.id.rpartition("-")[2]
        self._next = max(self._next, int(number) + 1 if number.isdecimal() else 0)

    def has(self, key: LeaseKey) -> bool:
        """True if there is a lease of this key, active or draining."""
        return key in self._by_key

    def holdings(self, without: Lease | None = None) -> list[Holding]:
        """Returns what each lease holds."""
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

    def borrowing(self) -> tuple[set[str], set[str]]:
        """Returns the ids of the leases whose share, and whose memory, is borrowed."""
        return self.quotas.borrowing(self.holdings())

    def take_changes(self) -> list[tuple[Lease, bool]]:
        """Returns the leases that others made to give way, or that got their share back, since
        this was asked last.  True: it is gone.
        """
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def take_notices(self) -> list[Lease]:
        """Returns the leases that were told since this was asked last that they will end."""
        noticed, self._noticed = self._noticed, []
        return noticed

    def grant(
        self, key: LeaseKey, wish: Wish, ttl_seconds: float, now: float
    ) -> tuple[Lease, bool]:
        """Grants an explicit lease; the same grant again keeps it alive.  True: it is new.

        Raises:
            RefusedError: it does not fit, the key has a lease with other sizes, or there are too
                many.
        """
        ttl = self._ttl(ttl_seconds)
        held = self._by_key.get(key)
        if held is None or not held.explicit:
            self._check_grants(key.tenant)
        if held is not None and held.state is LeaseState.ACTIVE:
            self._check_same(held, wish)
            held.explicit, held.ttl_seconds, held.ends_at = True, ttl, now + ttl
            return held, False
        check_drained(held)
        lease = self._new(key, wish, now)
        lease.explicit, lease.ttl_seconds, lease.ends_at = True, ttl, now + ttl
        return lease, True

    def join(
        self, key: LeaseKey, wish: Wish, now: float, address: str = ""
    ) -> tuple[Lease, Joined]:
        """Returns the lease of a session of `key`; an unknown key gets an implicit one.

        Raises:
            RefusedError: the lease has ended, is too small for the session, or does not fit.
        """
        held = self._by_key.get(key)
        if held is None:
            self._ended.check(key, now)
            lease = self._new(key, wish, now)
            lease.address = address
            return lease, Joined.NEW
        if held.state is not LeaseState.ACTIVE:
            raise RefusedError(
                Code.LEASE_ENDED,
                f"lease {key} {held.state.value}; ask for a new grant or use another lease key",
            )
        if held.explicit or held.slots:
            check_within(held, wish, find(self._devices, held.device))
            return held, Joined.AS_IT_WAS
        self._check_tenants(key.tenant)
        # Nobody is in it: what is asked for now counts, not what the last session asked for.
        before = held.quota
        self._reshape(held, wish, now)
        return held, Joined.AS_IT_WAS if held.quota == before else Joined.RESHAPED

    def unsettled(self, key: LeaseKey, wish: Wish) -> bool:
        """True if a session of `key` would fit better once the sessions there have ended."""
        held = self._by_key.get(key)
        if held is None or held.explicit or held.state is not LeaseState.ACTIVE or not held.slots:
            return False
        quota = held.asked
        return (
            wish.device not in (None, held.device)
            or wish.memory_on(find(self._devices, held.device)) not in (0, quota.memory_bytes)
            or wish.share_request_ppm not in (0, quota.share_request_ppm)
            or wish.share_limit_ppm not in (0, quota.share_limit_ppm)
            or wish.policy not in (None, quota.policy)
        )

    def attach(self, lease: Lease, session: int) -> int:
        """Gives a session a slot in the lease's page; RefusedError if all are taken."""
        for slot in range(self._policy.slots):
            if slot not in lease.slots:
                lease.slots[slot] = session
                if not lease.explicit:
                    lease.ends_at = None
                return slot
        raise RefusedError(
            Code.LEASE_FULL,
            f"lease {lease.key} has {self._policy.slots} sessions, which is all it can have; "
            "end one or use another lease key",
        )

    def detach(self, lease: Lease, slot: int, now: float) -> bool:
        """Frees a slot.  True: the lease is gone with its last session."""
        del lease.slots[slot]
        if lease.slots:
            return False
        lease.held_bytes = 0
        self._room = True
        if lease.state is not LeaseState.ACTIVE:
            self._drop(lease)
            return True
        if not lease.explicit:
            lease.ends_at = now + self._policy.grace_seconds
            self._crowd(lease)
        return False

    def keep_alive(self, lease_id: str, now: float) -> Lease:
        """Moves the end of an explicit lease to `now` + its ttl; RefusedError if it has ended."""
        lease = self.active(lease_id)
        if lease.explicit:
            lease.ends_at = now + lease.ttl_seconds
        return lease

    def pause(self, lease_id: str, paused: bool, operator: bool = True) -> Lease:
        """Stops or lets go on the device work of a lease; RefusedError if it has ended, or if an
        operator stopped it and somebody else lets it go on.
        """
        lease = self.active(lease_id)
        if lease.paused and lease.stopped and not operator:
            sentence = f"lease {lease.key} was paused by an operator, who alone lets it go on"
            raise RefusedError(Code.NOT_ALLOWED, sentence)
        lease.paused = paused
        lease.stopped = paused and operator
        return lease

    def resize(self, lease_id: str, change: Change, used_bytes: int, now: float) -> Lease:
        """Changes sizes; RefusedError if the lease has ended or they do not fit.

        used_bytes: what its sessions hold now, which stays taken until it is freed.
        """
        lease = self.active(lease_id)
        device = find(self._devices, lease.device)
        tenant = self.quotas.policy_of(lease.key.tenant)
        asked = changed(lease.asked, change, device, tenant)
        quota, has = asked, lease.quota.share_request_ppm
        if has < lease.asked_share_ppm and asked.share_request_ppm <= lease.asked_share_ppm:
            quota = replace(asked, share_request_ppm=0)  # what it lent back it gets back later
        before = Amount(has, lease.quota.memory_bytes)
        ask = Ask(lease.key.tenant, lease.device, _always(quota), lease.number, before)
        self._admit(ask, lease, now)
        lease.quota, lease.asked_share_ppm = quota, asked.share_request_ppm
        # A worker may say any number; what its lease had bounds what it can hold.
        lease.held_bytes = min(used_bytes, max(before.memory_bytes, lease.held_bytes))
        self._room = True
        return lease

    def oversize(self) -> list[str]:
        """Returns the leases that hold more than they have, as far as it is known."""
        return [x.id for x in self._leases.values() if x.held_bytes > x.quota.memory_bytes]

    def observe(self, used: Mapping[str, int]) -> None:
        """Takes note of what oversized leases hold now."""
        for lease_id, used_bytes in used.items():
            lease = self._leases.get(lease_id)
            if lease is not None and used_bytes < lease.held_bytes:
                lease.held_bytes, self._room = used_bytes, True

    def revoke(self, lease_id: str, now: float) -> tuple[Lease, bool]:
        """Ends a lease.  True: it is gone at once, having no session."""
        lease = self.active(lease_id)
        return lease, self._end(lease, LeaseState.REVOKED, now)

    def end_all(self, now: float) -> list[tuple[Lease, bool]]:
        """Ends all leases because the server is drained.  True: gone at once."""
        active = [x for x in self._leases.values() if x.state is LeaseState.ACTIVE]
        return [(lease, self._end(lease, LeaseState.DRAINED, now)) for lease in active]

    def expire(self, now: float) -> list[tuple[Lease, bool]]:
        """Ends what was not kept alive until `now`, or is reclaimed now.  True: gone at once."""
        ended = []
        for lease in list(self._leases.values()):
            if lease.state is not LeaseState.ACTIVE:
                continue
            if lease.reclaim_at is not None and lease.reclaim_at <= now:
                ended.append((lease, self._end(lease, LeaseState.RECLAIMED, now)))
            elif lease.ends_at is not None and lease.ends_at <= now:
                ended.append((lease, self._end(lease, LeaseState.EXPIRED, now)))
        self._ended.clean(now)
        self._room |= self._claims.expire(now)
        return ended

    def next_end(self) -> float | None:
        """Returns when `expire` has something to do next."""
        active = [x for x in self._leases.values() if x.state is LeaseState.ACTIVE]
        ends = [time for x in active for time in (x.ends_at, x.reclaim_at) if time is not None]
        return min(ends + self._claims.ends(), default=None)

    def active(self, lease_id: str) -> Lease:
        """Returns an active lease; RefusedError if there is none with this id."""
        lease = self._leases.get(lease_id)
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

    def restore(self, now: float) -> None:
        """Gives back what owners had taken, first come first, where there is room again."""
        if not self._room:
            return
        self._room = False
        self._review_notices(now)
        weak = [
            x
            for x in self._leases.values()
            if x.state is LeaseState.ACTIVE and x.quota.share_request_ppm < x.asked_share_ppm
        ]
        for lease in weak:
            ask = Ask(
                lease.key.tenant, lease.device, _always(lease.asked), lease.number, lease.amount
            )
            others = self.holdings(lease)
            back = Amount(lease.asked_share_ppm, 0)
            there = Holding("", lease.key.tenant, lease.device, back, lease.number)
            try:
                plan = self._admission.plan(ask, others, self._claims.current(now))
                # What its tenant got meanwhile is within the ceiling without this.
                self.quotas.check_ceilings(there, others)
            except RefusedError:
                continue
            if plan.fits:
                self._make_way(plan, now)
                lease.quota = lease.asked
                self._changed[lease.id] = (lease, False)

    def _review_notices(self, now: float) -> None:
        """What is borrowed may stay if nobody waits for it and owners leave as much idle."""
        wanted = {claim.model for claim in self._claims.current(now)}
        for model in {device.model for device in self._devices}:
            leases = [
                x
                for x in self._leases.values()
                if find(self._devices, x.device).model == model and x.state is LeaseState.ACTIVE
            ]
            leases.sort(key=lambda x: (-x.quota.priority, x.number))
            memories = self.borrowing()[1]
            for lease in [x for x in leases if x.reclaim_at is not None]:
                when, lease.reclaim_at = lease.reclaim_at, None
                # An earlier lease of its tenant may have ended: then it is owned now.
                if lease.id in memories and (model in wanted or self._overdrawn(model)):
                    lease.reclaim_at = when
            for lease in reversed([x for x in leases if x.id in memories]):
                if self._policy.reclaim_memory and self._overdrawn(model):
                    self._notice(lease, now)

    def _overdrawn(self, model: str) -> bool:
        borrowed, lent = self.quotas.balance(model, self.holdings(), {})
        return borrowed.memory_bytes > lent.memory_bytes

    # Admission

    def _new(self, key: LeaseKey, wish: Wish, now: float) -> Lease:
        self._check_tenants(key.tenant)
        plan = self._place(key, wish, None, now)
        number = self._next
        self._next += 1
        lease = Lease(f"lease-{number}", key, plan.device.ordinal, plan.quota, False, 0.0, None)
        lease.number, lease.asked_share_ppm = number, plan.quota.share_request_ppm
        self._leases[lease.id] = lease
        self._by_key[key] = lease
        self._ended.forget(key)
        return lease

    def _reshape(self, lease: Lease, wish: Wish, now: float) -> None:
        plan = self._place(lease.key, wish, lease, now)
        lease.device, lease.quota = plan.device.ordinal, plan.quota
        lease.asked_share_ppm, lease.reclaim_at = plan.quota.share_request_ppm, None
        self._room = True

    def _place(self, key: LeaseKey, wish: Wish, lease: Lease | None, now: float) -> Plan:
        tenant = self.quotas.policy_of(key.tenant)

        def quota_on(device: Device) -> Quota:
            return resolve(self._policy, tenant, wish, device)

        number = self._next if lease is None else lease.number
        return self._admit(Ask(key.tenant, wish.device, quota_on, number), lease, now)

    def _admit(self, ask: Ask, lease: Lease | None, now: float) -> Plan:
        """Makes room as the plan says; RefusedError if there is none, or none yet."""
        holdings = self.holdings(lease)
        plan = self._admission.plan(ask, holdings, self._claims.current(now))
        amount = Amount(plan.quota.share_request_ppm, plan.quota.memory_bytes)
        more = Amount(
            amount.share_ppm if amount.share_ppm > ask.before.share_ppm else 0,
            amount.memory_bytes if amount.memory_bytes > ask.before.memory_bytes else 0,
        )
        there = Holding("", ask.tenant, plan.device.ordinal, more, ask.number)
        empty = {h.lease for h in holdings if h.idle and h.tenant == ask.tenant}
        try:
            self.quotas.check_ceilings(there, holdings)
        except RefusedError:
            self.quotas.check_ceilings(there, [h for h in holdings if h.lease not in empty])
            plan = replace(plan, dropped=tuple({*plan.dropped, *empty}))
        self._make_way(plan, now)
        if plan.wait:
            self._claims.add(ask.tenant, plan.device, amount, now)
            raise self._lent(plan, now)
        self._claims.met(ask.tenant, plan.device.model, amount)
        return plan

    def _make_way(self, plan: Plan, now: float) -> None:
        for lease_id in plan.dropped:
            self._dismiss(self._leases[lease_id])
        for lease_id in plan.weakened:
            lease = self._leases[lease_id]
            lease.quota = replace(lease.quota, share_request_ppm=0)
            self._changed[lease.id] = (lease, False)
        for lease_id in plan.noticed:
            self._notice(self._leases[lease_id], now)

    def _notice(self, lease: Lease, now: float) -> None:
        if lease.reclaim_at is None:
            lease.reclaim_at = now + self._policy.reclaim_seconds
            self._noticed.append(lease)

    def _lent(self, plan: Plan, now: float) -> RefusedError:
        times = [x.reclaim_at - now for x in self._leases.values() if x.reclaim_at is not None]
        return RefusedError(
            Code.LENT,
            f"{format_bytes(plan.quota.memory_bytes)} of device {plan.device.ordinal} are lent to "
            f"others and have been asked back: try again in {max(times, default=0):.0f} s",
        )

    # Checks

    def _check_tenants(self, tenant: str) -> None:
        there = (x.key.tenant for x in self._leases.values() if not x.idle)
        check_tenants(tenant, self._tenants, there, self._policy.max_tenants)

    def _check_grants(self, tenant: str) -> None:
        there = [x.key.tenant for x in self._leases.values() if x.explicit]
        check_grants(tenant, self.quotas.policy_of(tenant), there, self._policy.max_leases)

    def _ttl(self, seconds: float) -> float:
        ttl = seconds or self._policy.ttl_seconds
        if not 0 < ttl <= self._policy.max_ttl_seconds:
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a lease cannot live {seconds:g} s: ask for more than 0 and at most "
                f"{self._policy.max_ttl_seconds:g} s, and keep it alive",
            )
        return ttl

    def _check_same(self, held: Lease, wish: Wish) -> None:
        device = find(self._devices, held.device)
        asked = resolve(self._policy, self.quotas.policy_of(held.key.tenant), wish, device)
        if asked != held.asked or wish.device not in (None, held.device):
            raise RefusedError(
                Code.LEASE_EXISTS,
                f"lease {held.key} exists on device {held.device} with {sizes(held.asked)}, asked "
                f"for are {sizes(asked)}; resize it or use another lease key",
            )

    # The end

    def _end(self, lease: Lease, state: LeaseState, now: float) -> bool:
        lease.state, lease.ends_at, lease.reclaim_at = state, None, None
        if lease.explicit or state is LeaseState.REVOKED:
            self._ended.add(lease.key, state, now)
        if lease.slots:
            return False
        self._drop(lease)
        return True

    def _crowd(self, lease: Lease) -> None:
        """Empty leases of one tenant, and from one address, are not many: the oldest go."""
        for same in (
            [x for x in self._leases.values() if x.idle and x.key.tenant == lease.key.tenant],
            [x for x in self._leases.values() if x.idle and x.address == lease.address],
        ):
            same.sort(key=lambda x: (x.ends_at or 0.0, x.number))
            for old in same[: max(len(same) - self._policy.max_idle_leases, 0)]:
                if old.id in self._leases:
                    self._dismiss(old)

    def _dismiss(self, lease: Lease) -> None:
        lease.state = LeaseState.EXPIRED
        self._drop(lease)
        self._changed[lease.id] = (lease, True)

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.id]
        del self._by_key[lease.key]
        self._changed.pop(lease.id, None)
        self._room = True


def _always(quota: Quota) -> Callable[[Device], Quota]:
    return lambda _device: quota
