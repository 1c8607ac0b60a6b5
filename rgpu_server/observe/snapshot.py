"""The server as it is now, for the control-plane API and the metrics alike.

Nothing here changes the server. Its changes go through `rgpu_server.service.control`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import Amount, SessionState
from rgpu_server.core.pool import seam_word
from rgpu_server.core.quota import EVERYBODY, over
from rgpu_server.workers.pages import Counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rgpu_server.conductor import Conductor
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.line import Waiter
    from rgpu_server.core.sessions import Session
    from rgpu_server.devices import DeviceFacts, Inventory
    from rgpu_server.session_counts import SessionCounts
    from rgpu_server.tokens.protocol import DeviceIs, UsageIs


class DeviceView(Struct, frozen=True):
    ordinal: int
    facts: DeviceFacts
    leased_bytes: int
    used_bytes: int
    leased_share_ppm: int
    leases: int
    sessions: int
    pool: str


class LeaseView(Struct, frozen=True):
    """reclaim_seconds: until it ends because an owner needs what it borrowed."""

    lease: Lease
    counters: Counters
    time: UsageIs
    remaining_seconds: float
    borrowed_share: bool = False
    borrowed_memory: bool = False
    reclaim_seconds: float | None = None

    @property
    def ends_seconds(self) -> float | None:
        """The time until its end, if that is known: of a reservation, or announced."""
        if not self.lease.reserved:
            return self.reclaim_seconds
        times = self.reclaim_seconds, self.remaining_seconds
        return min(time for time in times if time is not None)


class SessionView(Struct, frozen=True):
    session: Session
    lease: Lease
    counters: Counters
    program: str
    client_pid: int
    peer: str
    transport: str
    worker_pid: int
    age_seconds: float
    compiling: bool = False
    round_trip_ns: int = 0


class WaitingView(Struct, frozen=True):
    """A claim in line.  waiting: how many wait in its line."""

    waiter: Waiter
    waiting: int
    waited_seconds: float

    @property
    def tenant(self) -> str:
        return self.waiter.event.tenant


class NodeView(Struct, frozen=True):
    """leases, sessions: how many there are."""

    draining: bool
    end_after_seconds: float | None
    leases: int
    sessions: int


class TenantView(Struct, frozen=True):
    """What one tenant owns and holds of the devices of one model.  owned is None: no quota.
    ceiling: its share and memory over all devices, each None if there is none.
    """

    tenant: str
    model: str
    owned: Amount | None
    held: Amount
    leases: int
    ceiling: tuple[int | None, int | None] = (None, None)

    @property
    def borrowed(self) -> Amount:
        """What the tenant holds over its quota."""
        return Amount() if self.owned is None else over(self.held, self.owned)

    @property
    def idle(self) -> Amount:
        """What the tenant owns and does not hold."""
        return Amount() if self.owned is None else over(self.owned, self.held)


def _until(now: float, *times: float | None) -> float | None:
    """Returns how long it is until the first of these times; None: there is none."""
    return min((max(time - now, 0.0) for time in times if time is not None), default=None)


def _remaining(lease: Lease, now: float) -> float:
    return 0.0 if lease.ends_at is None else max(lease.ends_at - now, 0.0)


class Observer:
    """Reads node, pages and workers; changes nothing."""

    def __init__(self, conductor: Conductor, inventory: Inventory) -> None:
        self._conductor = conductor
        self._inventory = inventory
        self._held: list[LeaseView] | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Looks at the leases once for all that is asked in the block. Nothing may wait in it."""
        self._held = self.leases()
        try:
            yield
        finally:
            self._held = None

    def node(self) -> NodeView:
        """Returns the state of the whole server."""
        node, left = self._conductor.node, None
        drain = node.standing.drain
        if drain is not None and drain.ends_at is not None:
            left = max(drain.ends_at - self._conductor.clock.now(), 0.0)
        leases = sum(1 for _ in node.leases)
        return NodeView(drain is not None, left, leases, len(node.sessions))

    def tenants(self) -> list[TenantView]:
        """Returns one view for each model and each tenant that has a quota or a lease."""
        node = self._conductor.node
        quotas, holdings = node.leases.quotas, node.leases.holdings()
        named = {name for name in node.tenants if name != EVERYBODY}
        views = []
        for model in dict.fromkeys(device.model for device in node.devices):
            ordinals = {device.ordinal for device in node.devices if device.model == model}
            here = [h for h in holdings if h.device in ordinals]
            for tenant in sorted(named | {h.tenant for h in here}):
                owned, held = quotas.owned(tenant, model), quotas.held(tenant, model, here)
                leases = sum(1 for h in here if h.tenant == tenant)
                policy = quotas.policy_of(tenant)
                ceiling = policy.share_ppm, policy.memory_bytes
                views.append(TenantView(tenant, model, owned, held, leases, ceiling))
        return views

    def devices(self) -> list[DeviceView]:
        """Returns one view per device, by ordinal."""
        leases = self.leases()
        return [self._device(ordinal, leases) for ordinal in sorted(self._inventory.facts)]

    def leases(self, tenant: str = "") -> list[LeaseView]:
        """Returns all leases, or those of a tenant."""
        if self._held is not None:
            return [v for v in self._held if not tenant or v.lease.key.tenant == tenant]
        leases = self._conductor.node.leases
        return self._views(one for one in leases if not tenant or one.key.tenant == tenant)

    def lease(self, lease_id: str) -> LeaseView | None:
        """Returns one lease, or None."""
        lease = self._conductor.node.leases.get(lease_id)
        return None if lease is None else self._views([lease])[0]

    def remaining_seconds(self, lease_id: str) -> float:
        """Returns how long a lease lives from now on; 0.0: until its last session, or it is not
        there. It costs the same however many leases there are.
        """
        lease = self._conductor.node.leases.get(lease_id)
        return 0.0 if lease is None else _remaining(lease, self._conductor.clock.now())

    def _views(self, leases: Iterable[Lease]) -> list[LeaseView]:
        now, pages = self._conductor.clock.now(), self._conductor.pages
        shares, memories = self._conductor.node.leases.borrowing()
        return [
            LeaseView(
                lease,
                pages.usage(lease.id),
                pages.time_used(lease.id),
                _remaining(lease, now),
                lease.id in shares,
                lease.id in memories,
                _until(now, lease.reclaim_at, lease.announced_at),
            )
            for lease in leases
        ]

    def used_bytes(self, lease_id: str) -> int:
        """Returns the memory that the programs of a lease hold."""
        return self._conductor.pages.usage(lease_id).used_bytes

    def time_used(self, lease_id: str) -> UsageIs:
        """Returns what a lease used of its device."""
        return self._conductor.pages.time_used(lease_id)

    def processes(self, lease_id: str) -> list[tuple[int, str, Counters]]:
        """Returns (process id as the client says it, program, counters) of each session."""
        lease = self._conductor.node.leases.get(lease_id)
        page = self._conductor.pages.get(lease_id)
        if lease is None or page is None:
            return []
        there = ((slot, self._conductor.desk.get(one)) for slot, one in lease.slots.items())
        return [(v.hello.pid, v.hello.program, page.read(slot)) for slot, v in there if v]

    def tenant_of(self, lease_id: str) -> str | None:
        """Returns the tenant of a lease; None if there is no such lease."""
        lease = self._conductor.node.leases.get(lease_id)
        return None if lease is None else lease.key.tenant

    def held_bytes(self, lease_id: str) -> dict[int, int]:
        """Returns session -> bytes that it holds, for one lease; empty if it is not there."""
        lease = self._conductor.node.leases.get(lease_id)
        page = self._conductor.pages.get(lease_id)
        if lease is None or page is None:
            return {}
        return {session: page.charged(slot) for slot, session in lease.slots.items()}

    def compiling(self, lease_id: str) -> int:
        """Returns for how many sessions of a lease the driver loads or compiles code now."""
        lease = self._conductor.node.leases.get(lease_id)
        page = self._conductor.pages.get(lease_id)
        if lease is None or page is None:
            return 0
        return sum(page.compiling(slot) for slot in lease.slots)

    def seams(self, lease_id: str) -> list[str]:
        """Returns the seam of each session of a lease, sorted; the words of `session_seams`."""
        sessions = self._conductor.node.sessions
        return sorted(seam_word(one.library) for one in sessions if one.lease == lease_id)

    def sessions(self, tenant: str = "") -> list[SessionView]:
        """Returns all sessions, or those of a tenant."""
        views = (self._session(session) for session in self._conductor.node.sessions)
        return [v for v in views if v is not None and (not tenant or v.session.tenant == tenant)]

    def waiting(self) -> list[WaitingView]:
        """Returns the claims that wait in line, first come first."""
        line, now = self._conductor.node.line, self._conductor.clock.now()
        lengths = line.lengths()
        return [WaitingView(w, lengths.of(w), max(now - w.since, 0.0)) for w in line]

    def token_silence(self) -> float | None:
        """Returns the seconds since the token loop last said something; None: it has not yet."""
        handover = self._conductor.handover
        if handover is None or handover.heard_at is None:
            return None
        return max(self._conductor.clock.now() - handover.heard_at, 0.0)

    def token_reports(self) -> Mapping[int, DeviceIs]:
        """Returns device -> what the token loop said of it last; empty if nobody schedules."""
        handover = self._conductor.handover
        return {} if handover is None else handover.tokens

    def session_states(self) -> dict[SessionState, int]:
        """Returns how many sessions are in each state."""
        states = dict.fromkeys(SessionState, 0)
        for session in self._conductor.node.sessions:
            states[session.state] += 1
        return states

    def session_transports(self) -> Counter[str]:
        """Returns how many sessions came over each transport."""
        visitors = (self._conductor.desk.get(s.id) for s in self._conductor.node.sessions)
        return Counter(v.transport for v in visitors if v is not None)

    def session_seams(self) -> Counter[str]:
        """Returns how many sessions are at each seam: "driver", or the name of an array library."""
        sessions = self._conductor.node.sessions
        return Counter(seam_word(session.library) for session in sessions)

    def session_counts(self) -> SessionCounts:
        """Returns what sessions did since the server started."""
        return self._conductor.counts

    def resumes_refused(self) -> int:
        """Returns how many connections asked for a session that they could not have."""
        return self._conductor.desk.resumes_refused

    def workers(self) -> dict[str, int]:
        """Returns library -> how many worker processes it has."""
        return {pool.library: len(pool) for pool in self._conductor.node.pools.values()}

    def broken_libraries(self) -> list[str]:
        """Returns the libraries whose workers do not start."""
        return [pool.library for pool in self._conductor.node.pools.values() if pool.broken]

    def ordinals(self) -> Sequence[int]:
        """Returns the numbers of the devices."""
        return [device.ordinal for device in self._conductor.node.devices]

    def _device(self, ordinal: int, leases: list[LeaseView]) -> DeviceView:
        here = [view for view in leases if view.lease.device == ordinal]
        return DeviceView(
            ordinal=ordinal,
            facts=self._inventory.facts[ordinal],
            leased_bytes=sum(view.lease.quota.memory_bytes for view in here),
            used_bytes=sum((view.counters for view in here), Counters()).used_bytes,
            leased_share_ppm=sum(view.lease.quota.share_request_ppm for view in here),
            leases=len(here),
            sessions=sum(len(view.lease.slots) for view in here),
            pool=self._conductor.node.devices[ordinal].pool,
        )

    def _session(self, session: Session) -> SessionView | None:
        conductor = self._conductor
        lease = conductor.node.leases.get(session.lease)
        visitor = conductor.desk.get(session.id)
        page = conductor.pages.get(session.lease)
        if lease is None or visitor is None or page is None:
            return None
        worker = conductor.workers.get(session.worker) if session.worker is not None else None
        return SessionView(
            session=session,
            lease=lease,
            counters=page.read(session.slot),
            program=visitor.hello.program,
            client_pid=visitor.hello.pid,
            peer=visitor.peer,
            transport=visitor.transport,
            worker_pid=worker.pid if worker is not None else 0,
            age_seconds=conductor.clock.now() - session.opened_at,
            compiling=page.compiling(session.slot),
            round_trip_ns=visitor.round_trip_ns,
        )
