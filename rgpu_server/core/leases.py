"""The book of leases: grant, keep alive, resize, revoke, expire."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from rgpu_common.units import format_bytes, format_share
from rgpu_server.core.model import (
    PPM,
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
from rgpu_server.core.placement import find, free_bytes, place, wanted_bytes
from rgpu_server.core.tenants import check_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_REMEMBERED = 4096


class Joined(Enum):
    """How a session came to its lease: a new one, an empty one of other sizes, one as it was."""

    NEW = "new"
    RESHAPED = "reshaped"
    AS_IT_WAS = "as it was"


@dataclass(slots=True)
class Lease:
    """A time-limited right to a placement.

    ends_at: when it expires if nothing happens; None while sessions hold an implicit lease.
    slots: page slot -> session.
    """

    id: str
    key: LeaseKey
    device: int
    quota: Quota
    explicit: bool
    ttl_seconds: float
    ends_at: float | None
    state: LeaseState = LeaseState.ACTIVE
    slots: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ended:
    state: LeaseState
    at: float


class LeaseBook:
    """All leases.  The sum of their memory on a device never passes the device."""

    def __init__(
        self, devices: Sequence[Device], policy: Policy, tenants: Mapping[str, TenantPolicy]
    ) -> None:
        self._devices = devices
        self._policy = policy
        self._tenants = tenants
        self._leases: dict[str, Lease] = {}
        self._by_key: dict[LeaseKey, Lease] = {}
        self._ended: dict[LeaseKey, _Ended] = {}
        self._next = 1

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def get(self, lease: str) -> Lease | None:
        """Returns the lease with this id, active or draining, or None."""
        return self._leases.get(lease)

    def leased_bytes(self, without: Lease | None = None) -> dict[int, int]:
        """Returns device -> sum of the memory of its leases."""
        sums: dict[int, int] = {}
        for lease in self._leases.values():
            if lease is not without:
                sums[lease.device] = sums.get(lease.device, 0) + lease.quota.memory_bytes
        return sums

    def grant(
        self, key: LeaseKey, wish: Wish, ttl_seconds: float, now: float
    ) -> tuple[Lease, bool]:
        """Grants an explicit lease; the same grant again keeps it alive.  True: it is new.

        Raises:
            RefusedError: it does not fit, or the key has a lease with other sizes.
        """
        ttl = self._ttl(ttl_seconds)
        held = self._by_key.get(key)
        if held is not None and held.state is LeaseState.ACTIVE:
            self._check_same(held, wish)
            held.explicit, held.ttl_seconds, held.ends_at = True, ttl, now + ttl
            return held, False
        self._check_drained(held)
        lease = self._new(key, wish)
        lease.explicit, lease.ttl_seconds, lease.ends_at = True, ttl, now + ttl
        return lease, True

    def join(self, key: LeaseKey, wish: Wish, now: float) -> tuple[Lease, Joined]:
        """Returns the lease of a session of `key`; an unknown key gets an implicit one.

        Raises:
            RefusedError: the lease has ended, is too small for the session, or does not fit.
        """
        held = self._by_key.get(key)
        if held is None:
            self._check_not_ended(key, now)
            return self._new(key, wish), Joined.NEW
        if held.state is not LeaseState.ACTIVE:
            raise RefusedError(
                Code.LEASE_ENDED,
                f"lease {key} {held.state.value}; ask for a new grant or use another lease key",
            )
        if held.explicit or held.slots:
            _check_within(held, wish)
            return held, Joined.AS_IT_WAS
        # Nobody is in it: what is asked for now counts, not what the last session asked for.
        before = held.quota
        self._reshape(held, wish)
        return held, Joined.AS_IT_WAS if held.quota == before else Joined.RESHAPED

    def unsettled(self, key: LeaseKey, wish: Wish) -> bool:
        """True if a session of `key` would fit better once the sessions there have ended."""
        held = self._by_key.get(key)
        if held is None or held.explicit or held.state is not LeaseState.ACTIVE or not held.slots:
            return False
        quota = held.quota
        return (
            wish.device not in (None, held.device)
            or wish.memory_bytes not in (0, quota.memory_bytes)
            or wish.share_request_ppm not in (0, quota.share_request_ppm)
            or wish.share_limit_ppm not in (0, quota.share_limit_ppm)
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
        if lease.state is not LeaseState.ACTIVE:
            self._drop(lease)
            return True
        if not lease.explicit:
            lease.ends_at = now + self._policy.grace_seconds
        return False

    def keep_alive(self, lease_id: str, now: float) -> Lease:
        """Moves the end of an explicit lease to `now` + its ttl; RefusedError if it has ended."""
        lease = self.active(lease_id)
        if lease.explicit:
            lease.ends_at = now + lease.ttl_seconds
        return lease

    def resize(
        self, lease_id: str, memory: int | None, request: int | None, limit: int | None
    ) -> Lease:
        """Changes sizes (None: as it is); RefusedError if the lease has ended or does not fit."""
        lease = self.active(lease_id)
        wish = Wish(
            lease.device,
            lease.quota.memory_bytes if memory is None else memory,
            lease.quota.share_request_ppm if request is None else request,
            lease.quota.share_limit_ppm if limit is None else limit,
        )
        if wish.memory_bytes <= 0:
            raise RefusedError(Code.BAD_REQUEST, "a lease needs more than 0 bytes of memory")
        self._resize_to(lease, wish)
        return lease

    def revoke(self, lease_id: str, now: float) -> tuple[Lease, bool]:
        """Ends a lease.  True: it is gone at once, having no session."""
        lease = self.active(lease_id)
        return lease, self._end(lease, LeaseState.REVOKED, now)

    def expire(self, now: float) -> list[tuple[Lease, bool]]:
        """Ends what was not kept alive until `now`.  True: gone at once."""
        late = [
            lease
            for lease in self._leases.values()
            if lease.state is LeaseState.ACTIVE
            and lease.ends_at is not None
            and lease.ends_at <= now
        ]
        self._forget(now)
        return [(lease, self._end(lease, LeaseState.EXPIRED, now)) for lease in late]

    def next_end(self) -> float | None:
        """Returns when `expire` has something to do next."""
        ends = [
            lease.ends_at
            for lease in self._leases.values()
            if lease.state is LeaseState.ACTIVE and lease.ends_at is not None
        ]
        return min(ends, default=None)

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

    def _new(self, key: LeaseKey, wish: Wish) -> Lease:
        device = place(self._devices, self.leased_bytes(), wish.device, wish.memory_bytes)
        quota = self._quota(device, wish)
        self._check_tenant(key.tenant, quota.memory_bytes, None)
        lease = Lease(f"lease-{self._next}", key, device.ordinal, quota, False, 0.0, None)
        self._next += 1
        self._leases[lease.id] = lease
        self._by_key[key] = lease
        self._ended.pop(key, None)
        return lease

    def _reshape(self, lease: Lease, wish: Wish) -> None:
        others = self.leased_bytes(without=lease)
        device = place(self._devices, others, wish.device, wish.memory_bytes)
        quota = self._quota(device, wish)
        self._check_tenant(lease.key.tenant, quota.memory_bytes, lease)
        lease.device, lease.quota = device.ordinal, quota

    def _resize_to(self, lease: Lease, wish: Wish) -> None:
        device = find(self._devices, lease.device)
        free = free_bytes(device, self.leased_bytes(without=lease))
        if wish.memory_bytes > free:
            raise RefusedError(
                Code.NO_MEMORY,
                f"lease {lease.key} cannot grow to {format_bytes(wish.memory_bytes)}: device "
                f"{device.ordinal} "
                f"has {format_bytes(free)} for it, {format_bytes(wish.memory_bytes - free)} too "
                "little",
            )
        self._check_tenant(lease.key.tenant, wish.memory_bytes, lease)
        request, limit = wish.share_request_ppm, wish.share_limit_ppm or PPM
        _check_shares(request, limit)
        lease.quota = Quota(wish.memory_bytes, request, limit)

    def _quota(self, device: Device, wish: Wish) -> Quota:
        request = wish.share_request_ppm or self._policy.default_share_request_ppm
        limit = wish.share_limit_ppm or max(self._policy.default_share_limit_ppm, request)
        _check_shares(request, limit)
        return Quota(wanted_bytes(device, wish.memory_bytes), request, limit)

    def _check_tenant(self, tenant: str, memory_bytes: int, without: Lease | None) -> None:
        policy = self._tenants.get(tenant, self._tenants.get("*", TenantPolicy()))
        held = sum(
            lease.quota.memory_bytes
            for lease in self._leases.values()
            if lease.key.tenant == tenant and lease is not without
        )
        check_memory(tenant, policy, held, memory_bytes)

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
        asked = self._quota(device, wish)
        if asked != held.quota or wish.device not in (None, held.device):
            raise RefusedError(
                Code.LEASE_EXISTS,
                f"lease {held.key} exists on device {held.device} with {_sizes(held.quota)}, asked "
                "for are "
                f"{_sizes(asked)}; resize it or use another lease key",
            )

    def _check_drained(self, held: Lease | None) -> None:
        if held is not None:
            raise RefusedError(
                Code.LEASE_ENDED,
                f"lease {held.key} {held.state.value} and its sessions are still ending; try again "
                "in a second",
            )

    def _check_not_ended(self, key: LeaseKey, now: float) -> None:
        ended = self._ended.get(key)
        if ended is not None and now - ended.at < self._policy.memory_seconds:
            raise RefusedError(
                Code.LEASE_ENDED,
                f"lease {key} {ended.state.value}, {now - ended.at:.0f} s ago; "
                "ask for a new grant or use another lease key",
            )

    def _end(self, lease: Lease, state: LeaseState, now: float) -> bool:
        lease.state, lease.ends_at = state, None
        if lease.explicit or state is LeaseState.REVOKED:
            self._ended[lease.key] = _Ended(state, now)
            while len(self._ended) > MAX_REMEMBERED:
                del self._ended[next(iter(self._ended))]
        if lease.slots:
            return False
        self._drop(lease)
        return True

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.id]
        del self._by_key[lease.key]

    def _forget(self, now: float) -> None:
        old = [key for key, e in self._ended.items() if now - e.at >= self._policy.memory_seconds]
        for key in old:
            del self._ended[key]


def _check_shares(request: int, limit: int) -> None:
    if not 0 <= request <= PPM or not 0 < limit <= PPM:
        raise RefusedError(Code.BAD_REQUEST, "a share is a fraction of one device, from 0 to 1")
    if request > limit:
        raise RefusedError(
            Code.BAD_REQUEST,
            f"the share {format_share(request)} is above its limit {format_share(limit)}; "
            "raise the limit or ask for a smaller share",
        )


def _check_within(held: Lease, wish: Wish) -> None:
    if wish.device not in (None, held.device):
        raise RefusedError(
            Code.LEASE_TOO_SMALL,
            f"lease {held.key} is on device {held.device}, the session asks for device "
            f"{wish.device}; "
            "leave the device out or use another lease key",
        )
    for name, asked, there, form in (
        ("memory", wish.memory_bytes, held.quota.memory_bytes, format_bytes),
        ("share", wish.share_request_ppm, held.quota.share_request_ppm, format_share),
        ("share limit", wish.share_limit_ppm, held.quota.share_limit_ppm, format_share),
    ):
        if asked > there:
            raise RefusedError(
                Code.LEASE_TOO_SMALL,
                f"lease {held.key} has a {name} of {form(there)} and the session asks for "
                f"{form(asked)}, "
                f"{form(asked - there)} more; ask for at most {form(there)} or use another lease "
                "key",
            )


def _sizes(quota: Quota) -> str:
    return (
        f"{format_bytes(quota.memory_bytes)}, share {format_share(quota.share_request_ppm)}, "
        f"limit {format_share(quota.share_limit_ppm)}"
    )
