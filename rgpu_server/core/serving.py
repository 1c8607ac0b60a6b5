"""Gives every session a worker, or a sentence that says why it gets none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_common.units import counted, format_bytes
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.kept import KeptPlaces
from rgpu_server.core.lease import Joined
from rgpu_server.core.model import Code, LeaseKey, Refusal, RefusedError, SessionState
from rgpu_server.core.placement import find
from rgpu_server.core.pool import WorkerPool, array_pool, not_ready, seam_word
from rgpu_server.core.sessions import Session, SessionTable
from rgpu_server.core.tenants import check_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.core.leases import LeaseBook
    from rgpu_server.core.model import Device
    from rgpu_server.core.outbox import Outbox
    from rgpu_server.core.policy import Policy
    from rgpu_server.core.standing import Standing

_LEFT = "its client left before it was open"


class Serving:
    """Handles sessions from their request to their end. Times are seconds of the caller's clock.

    pools: one for each library, with all its workers. settling: session -> its request, which waits
    until its lease is empty, and its deadline. kept: places for sessions of runs that hold a lease.
    handlers: one row per event type that concerns a session or a worker.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: Policy,
        leases: LeaseBook,
        standing: Standing,
        out: Outbox,
        pools: Sequence[str] = (),
    ) -> None:
        self.sessions = SessionTable()
        names = [*(d.library for d in devices), *pools]
        self.pools = {name: WorkerPool(name, policy) for name in names}
        self.settling: dict[int, tuple[on.SessionRequested, float]] = {}
        self.kept = KeptPlaces(policy)
        self._changes = 0
        self._devices = devices
        self._policy = policy
        self._tenant_sessions = policy.tenant_sessions or (policy.max_sessions + 1) // 2
        self._leases = leases
        self._standing = standing
        self._out = out
        self._next_worker = 1
        self.handlers: dict[type[Any], Callable[[Any, float], None]] = {
            on.SessionRequested: self._requested,
            on.ClientLeft: self._client_left,
            on.ClientDied: self._client_died,
            on.MemoryExceeded: self._memory_exceeded,
            on.WorkerReady: self._worker_ready,
            on.SessionOpened: self._opened,
            on.SessionRefusedByWorker: self._refused_by_worker,
            on.WorkerExited: self._worker_exited,
        }

    @property
    def changes(self) -> int:
        """Counts since the start how often a place for a session became free, or workers failed to
        start.
        """
        return self._changes + self.kept.given_up

    def next_wake(self, now: float) -> float | None:
        """Returns the next time at which something changes without an event; None: never."""
        times = [self.sessions.next_deadline(), *(until for _, until in self.settling.values())]
        if not self._standing.stopping:
            times += [
                p.next_wake(len(self.sessions.waiting(p.library)), now) for p in self.pools.values()
            ]
        return min((t for t in times if t is not None), default=None)

    def adopt(self, session: Session) -> None:
        """Takes over a session of an earlier daemon, with its worker."""
        assert session.worker is not None
        self.sessions.add(session)
        self.pools[session.library].adopt(session.worker, session.id)
        lease = self._leases.get(session.lease)
        if lease is not None:
            lease.seams.add(seam_word(session.library))
        self._next_worker = max(self._next_worker, session.worker + 1)

    def settle(self, now: float) -> None:
        """Opens the sessions that wait for an empty lease and whose wait is over."""
        stopping = self._standing.stopping
        for event, until in list(self.settling.values()):
            if stopping or until <= now or not self._leases.unsettled(_key(event), event.wish):
                del self.settling[event.session]
                if not self._open(event, now) and until < now + self._policy.settle_seconds:
                    self._changes += 1  # its place is free again

    def refill(self, now: float) -> None:
        """Starts as many workers as the pools ask for."""
        if self._standing.stopping:
            return
        for pool in self.pools.values():
            for _ in range(pool.to_start(len(self.sessions.waiting(pool.library)), now)):
                pool.started(self._next_worker, now)
                self._out.add(do.StartWorker(self._next_worker, pool.library))
                self._next_worker += 1

    def stop_idle(self) -> None:
        """Ends the workers that have no session."""
        for pool in self.pools.values():
            for worker in pool.idle():
                self._out.add(do.StopWorker(worker))

    def end(self, session: Session, refusal: Refusal, now: float) -> None:
        """Ends a session. Its worker tells the client why; without a worker the shell does."""
        if session.worker is None:
            self._out.add(do.RefuseSession(session.id, refusal))
            self._gone(session, refusal.sentence, now)
        elif session.state is not SessionState.ENDING:
            session.state = SessionState.ENDING
            session.deadline = now + self._policy.end_seconds
            self._out.add(do.EndSession(session.worker, session.id, refusal.sentence))

    def end_late(self, now: float) -> None:
        """Ends sessions that are not open in time, and kills workers that are not ready or did not
        end in time.
        """
        for pool in self.pools.values():
            late = pool.give_up_late(now)
            for worker in late:
                self._out.add(do.KillWorker(worker, not_ready(self._policy)))
            if late:
                self._tell_waiting(pool, now)
        for session in self.sessions.late(now):
            self._late(session, now)

    def _late(self, session: Session, now: float) -> None:
        if session.state is SessionState.ENDING and session.worker is not None:
            session.deadline = None
            self._out.add(do.KillWorker(session.worker))
            return
        seconds = self._policy.open_seconds
        what = (
            self.pools[session.library].none_free(now)
            if session.worker is None
            else "its worker did not open it"
        )
        sentence = (
            f"the session was not open after {seconds:g} s: {what}; the server's log says more"
        )
        self.end(session, Refusal(Code.NO_WORKER, sentence), now)

    # Opening

    def _requested(self, event: on.SessionRequested, now: float) -> None:
        try:
            self.check_room(event.tenant, _key(event))
        except RefusedError:
            self._open(event, now)  # refuses it, perhaps with a more specific reason
        else:
            self.settling[event.session] = (event, now + self._policy.settle_seconds)

    def _open(self, event: on.SessionRequested, now: float) -> bool:
        """Opens a session; returns False if it is refused."""
        try:
            session = self._admit(event, now)
        except RefusedError as error:
            self._out.add(do.RefuseSession(event.session, error.refusal))
            return False
        self.sessions.add(session)
        self._give_worker(session, now)
        return True

    def _admit(self, event: on.SessionRequested, now: float) -> Session:
        self._standing.check_running()
        self._standing.check_not_draining()
        self.check_room(event.tenant, _key(event))
        self.check_pool(event.wish.device, event.seam)
        lease, joined = self._leases.join(
            _key(event), event.wish, now, event.address, operator=event.operator, name=event.name
        )
        slot = self._leases.users.attach(lease, event.session)
        self.kept.take(lease.key)
        self._out.add_changes(self._leases.lending)
        if joined is Joined.NEW:
            self._out.make_page(lease)
        elif joined is Joined.RESHAPED:
            self._out.update_page(lease)
        self._out.add(do.TakeSlot(lease.id, slot, event.session))
        library = array_pool(find(self._devices, lease.device).library, event.seam)
        lease.seams.add(seam_word(library))
        deadline = now + self._policy.open_seconds
        return Session(event.session, event.tenant, lease.id, slot, library, now, deadline)

    def check_room(self, tenant: str, key: LeaseKey) -> None:
        """Refuses one more session in the lease of `key` if there are as many as allowed.

        Sessions that wait for an empty lease count as sessions, and so do runs whose place is kept.
        For the ceiling of its own tenant a run counts as long as it holds a lease.
        """
        there = len(self.sessions) + len(self.settling) + self.kept.besides(key)
        if there >= self._policy.max_sessions:
            raise RefusedError(
                Code.SERVER_FULL,
                f"the server has {counted(there, 'session')}, its maximum; try again when one has "
                "ended",
            )
        settling = sum(event.tenant == tenant for event, _ in self.settling.values())
        held = self._leases.users.without_session(tenant, key)
        running = self.sessions.of_tenant(tenant) + settling + held
        ceilings = self._leases.quotas.policy_of(tenant)
        check_sessions(tenant, ceilings, running, self._tenant_sessions)

    def check_pool(self, device: int | None, seam: str = "") -> None:
        """Refuses a session at once if the workers of all pools that may serve it cannot start."""
        devices = self._devices if device is None else [find(self._devices, device)]
        names = {array_pool(one.library, seam) for one in devices}
        pools = [self.pools[name] for name in sorted(names) if name in self.pools]
        if not pools:
            raise RefusedError(Code.NO_WORKER, _no_seam(seam))
        if all(pool.broken for pool in pools):
            raise RefusedError(Code.NO_WORKER, _broken_sentence(pools[0]))

    def _give_worker(self, session: Session, now: float) -> None:
        pool = self.pools[session.library]
        worker = pool.take(session.id)
        lease = self._leases.get(session.lease)
        if worker is None or lease is None:
            if pool.broken:
                self.end(session, Refusal(Code.NO_WORKER, _broken_sentence(pool)), now)
            return
        self.sessions.give(session, worker)
        self._out.add(
            do.AssignWorker(
                worker=worker,
                session=session.id,
                lease=lease.id,
                tenant=session.tenant,
                slot=session.slot,
                device=lease.device,
                memory_bytes=lease.quota.memory_bytes,
            )
        )

    def _client_left(self, event: on.ClientLeft, now: float) -> None:
        if self.settling.pop(event.session, None) is not None:
            self._changes += 1
            self._out.add(do.ForgetSession(event.session, _LEFT))
        session = self.sessions.get(event.session)
        if session is not None and session.state is SessionState.WAITING:
            self._gone(session, _LEFT, now)

    def _client_died(self, event: on.ClientDied, now: float) -> None:
        session = self.sessions.get(event.session)
        if session is not None:
            self.end(session, Refusal(Code.NO_WORKER, "the client's process is gone"), now)

    def _memory_exceeded(self, event: on.MemoryExceeded, now: float) -> None:
        session = self.sessions.get(event.session)
        lease = None if session is None else self._leases.get(session.lease)
        if session is None or lease is None:
            return
        sentence = (
            f"the sessions of lease {lease.key} hold {format_bytes(event.held_bytes)} of the "
            f"node's memory, and it has {format_bytes(lease.quota.memory_bytes)}: ask for more "
            "memory, or work on less at a time"
        )
        self.end(session, Refusal(Code.NO_MEMORY, sentence), now)

    def _gone(self, session: Session, reason: str, now: float) -> None:
        self.sessions.remove(session)
        self._changes += 1
        lease = self._leases.get(session.lease)
        if lease is not None:
            self._out.add(do.ClearSlot(lease.id, session.slot, session.id))
            if self._leases.users.detach(lease, session.slot, now):
                self._out.add(do.DropPage(lease.id))
            elif lease.holders and not lease.slots:
                self.kept.keep(lease.key, now)
        self._out.add(do.ForgetSession(session.id, reason))

    # Workers

    def _worker_ready(self, event: on.WorkerReady, now: float) -> None:
        pool = self._pool_of(event.worker)
        if pool is None:
            return
        pool.ready(event.worker)
        session = self.sessions.next_waiting(pool.library)
        if session is not None:
            self._give_worker(session, now)

    def _opened(self, event: on.SessionOpened, now: float) -> None:
        session = self._session_of(event.worker)
        if session is not None and session.state is SessionState.OPENING:
            session.state, session.deadline = SessionState.OPEN, None

    def _refused_by_worker(self, event: on.SessionRefusedByWorker, now: float) -> None:
        session = self._session_of(event.worker)
        if session is not None:
            session.state, session.deadline = SessionState.ENDING, now + self._policy.end_seconds

    def _worker_exited(self, event: on.WorkerExited, now: float) -> None:
        pool = self._pool_of(event.worker)
        if pool is None:
            return
        session = self._session_of(event.worker)
        pool.exited(event.worker, event.reason, now)
        self._changes += pool.broken  # claims in line must be refused, not wait in vain
        if session is not None:
            if session.state is SessionState.OPENING:
                sentence = f"the worker of this session ended before it was open: {event.reason}"
                self._out.add(do.RefuseSession(session.id, Refusal(Code.NO_WORKER, sentence)))
            self._gone(session, event.reason, now)
        self._tell_waiting(pool, now)

    def _tell_waiting(self, pool: WorkerPool, now: float) -> None:
        """Ends the sessions that wait for a worker in vain."""
        if pool.broken:
            for waiting in self.sessions.waiting(pool.library):
                self.end(waiting, Refusal(Code.NO_WORKER, _broken_sentence(pool)), now)

    def _pool_of(self, worker: int) -> WorkerPool | None:
        return next((pool for pool in self.pools.values() if worker in pool), None)

    def _session_of(self, worker: int) -> Session | None:
        pool = self._pool_of(worker)
        known = pool.get(worker) if pool is not None else None
        return None if known is None or known.session is None else self.sessions.get(known.session)


def _key(event: on.SessionRequested) -> LeaseKey:
    return LeaseKey.of_client(event.tenant, event.key, event.container)


def _no_seam(seam: str) -> str:
    return (
        f"this server does not execute arrays of {seam}: install rgpu there with its extra {seam}, "
        "and start it again"
    )


def _broken_sentence(pool: WorkerPool) -> str:
    return (
        f"the workers for {pool.library!r} do not start: {pool.last_failure}; "
        "the server's log says more"
    )
