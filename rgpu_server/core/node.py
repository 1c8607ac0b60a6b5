"""The whole server's decisions: one event in, the actions out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.lease import Joined, Lease
from rgpu_server.core.leases import LeaseBook
from rgpu_server.core.model import (
    Code,
    Device,
    LeaseKey,
    LeaseState,
    PageState,
    Policy,
    Refusal,
    RefusedError,
    SessionState,
    TenantPolicy,
)
from rgpu_server.core.placement import find
from rgpu_server.core.pool import WorkerPool
from rgpu_server.core.sessions import Session, SessionTable
from rgpu_server.core.tenants import check_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MAX_DRAIN_SECONDS = 7 * 86400.0

# A key that the node gave; tenants name theirs as they like, also so.
_GIVEN_KEY = re.compile("granted-([0-9]{1,15})")
_LEFT = "its client left before it was open"


@dataclass(frozen=True, slots=True)
class Drain:
    """ends_at: when all leases end, None: never."""

    ends_at: float | None


class Node:
    """Leases, sessions and workers of one server.

    Read access (`leases`, `sessions`, `pools`, `devices`) is for reports; only `handle` changes
    anything.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: Policy | None = None,
        tenants: Mapping[str, TenantPolicy] | None = None,
    ) -> None:
        self.devices = tuple(devices)
        self.policy = policy or Policy()
        self.tenants = dict(tenants or {})
        self.leases = LeaseBook(self.devices, self.policy, self.tenants)
        self.sessions = SessionTable()
        self.pools = {d.library: WorkerPool(d.library, self.policy) for d in self.devices}
        self.stopping = False
        # Set while the node is drained; ends_at None: what runs goes on.
        self.drain: Drain | None = None
        # Session -> its request, which waits for its lease to settle, and until when.
        self.settling: dict[int, tuple[on.SessionRequested, float]] = {}
        self._out: list[do.Action] = []
        self._next_worker = 1
        self._next_key = 1
        # One row per event type: the method that handles it.
        self._handlers: dict[type[Any], Callable[[Any, float], None]] = {
            on.Started: self._nothing,
            on.Adopted: self._adopted,
            on.TimePassed: self._time_passed,
            on.StopRequested: self._stop_requested,
            on.LeaseRequested: self._lease_requested,
            on.KeepAliveRequested: self._keep_alive_requested,
            on.ResizeRequested: self._resize_requested,
            on.PauseRequested: self._pause_requested,
            on.RevokeRequested: self._revoke_requested,
            on.MemoryObserved: self._memory_observed,
            on.DrainRequested: self._drain_requested,
            on.UndrainRequested: self._undrain_requested,
            on.SessionRequested: self._session_requested,
            on.ClientLeft: self._client_left,
            on.WorkerReady: self._worker_ready,
            on.SessionOpened: self._session_opened,
            on.SessionRefusedByWorker: self._session_refused_by_worker,
            on.WorkerExited: self._worker_exited,
        }

    def handle(self, event: on.Event, now: float) -> list[do.Action]:
        """Returns what to do, in order, after `event` at time `now` (seconds, never going back)."""
        self._out = []
        self._handlers[type(event)](event, now)
        self._settle(now)
        self.leases.lending.restore(now)
        self._write_changes()
        self._refill(now)
        out, self._out = self._out, []
        return out

    def next_wake(self, now: float) -> float | None:
        """Returns when to hand in `TimePassed`, or None while only other events can change
        anything.
        """
        times = [self.leases.next_end(), self.sessions.next_deadline()]
        times += [until for _, until in self.settling.values()]
        if self.drain is not None:
            times.append(self.drain.ends_at)
        if not self.stopping:
            times += [
                p.next_start(len(self.sessions.waiting(p.library)), now)
                for p in self.pools.values()
            ]
        return min((t for t in times if t is not None), default=None)

    # Leases

    def _lease_requested(self, event: on.LeaseRequested, now: float) -> None:
        def grant() -> do.Answer:
            self._check_running()
            key = LeaseKey(event.tenant, event.key or self._fresh_key(event.tenant))
            if not self.leases.has(key):
                self._check_not_draining()
            lease, new = self.leases.grant(key, event.wish, event.ttl_seconds, now)
            self._write_changes()
            if new:
                self._out.append(do.MakePage(lease.id, lease.quota))
            return do.Answer(event.request, lease.id)

        self._answer(event.request, grant)

    def _keep_alive_requested(self, event: on.KeepAliveRequested, now: float) -> None:
        self._answer(
            event.request,
            lambda: do.Answer(event.request, self.leases.keep_alive(event.lease, now).id),
        )

    def _resize_requested(self, event: on.ResizeRequested, now: float) -> None:
        def resize() -> do.Answer:
            used = sum(event.used.values())
            lease = self.leases.resize(event.lease, event.change, used, now)
            self._write_changes()
            self._update_page(lease)
            ended = self._end_largest(lease, event.used, now) if event.kill else 0
            return do.Answer(event.request, lease.id, ended)

        self._answer(event.request, resize)

    def _end_largest(self, lease: Lease, used: Mapping[int, int], now: float) -> int:
        """Ends sessions until what the others hold is within the lease; returns how many."""
        over = sum(used.values()) - lease.quota.memory_bytes
        sentence = f"lease {lease.key} was made smaller than what it held"
        ended = 0
        for session_id in sorted(used, key=lambda s: (-used[s], s)):
            session = self.sessions.get(session_id)
            if over <= 0:
                break
            if session is not None and session.lease == lease.id:
                self._end(session, Refusal(Code.LEASE_ENDED, sentence), now)
                over, ended = over - used[session_id], ended + 1
        return ended

    def _pause_requested(self, event: on.PauseRequested, now: float) -> None:
        def pause() -> do.Answer:
            lease = self.leases.pause(event.lease, event.paused, event.operator)
            self._update_page(lease)
            return do.Answer(event.request, lease.id)

        self._answer(event.request, pause)

    def _memory_observed(self, event: on.MemoryObserved, now: float) -> None:
        self.leases.observe(event.used)

    def _update_page(self, lease: Lease) -> None:
        state = PageState.PAUSED if lease.paused else PageState.ACTIVE
        self._out.append(do.UpdatePage(lease.id, lease.quota, state))

    def _write_changes(self) -> None:
        """Leases that gave way for another one, got their share back, or will have to end."""
        for lease, gone in self.leases.lending.take_changes():
            if gone:
                self._out.append(do.DropPage(lease.id))
            else:
                self._update_page(lease)
        for lease in self.leases.lending.take_notices():
            seconds = self.policy.reclaim_seconds
            self._out.append(do.AnnounceReclaim(lease.id, seconds))

    def _revoke_requested(self, event: on.RevokeRequested, now: float) -> None:
        def revoke() -> do.Answer:
            lease, gone = self.leases.revoke(event.lease, now)
            sessions = len(lease.slots)
            self._lease_ended(lease, gone, now)
            return do.Answer(event.request, lease.id, sessions)

        self._answer(event.request, revoke)

    def _answer(self, request: int, decide: Callable[[], do.Answer]) -> None:
        try:
            self._out.append(decide())
        except RefusedError as error:
            self._write_changes()
            self._out.append(do.Refuse(request, error.refusal))

    def _lease_ended(self, lease: Lease, gone: bool, now: float) -> None:
        sentence = f"lease {lease.key} {lease.state.value}"
        if lease.state is LeaseState.EXPIRED:
            sentence += ": it was not kept alive in time"
        if gone:
            self._out.append(do.DropPage(lease.id))
            return
        self._out.append(do.UpdatePage(lease.id, lease.quota, PageState.ENDED))
        for session_id in list(lease.slots.values()):
            session = self.sessions.get(session_id)
            if session is not None:
                self._end(session, Refusal(Code.LEASE_ENDED, sentence), now)

    def _fresh_key(self, tenant: str) -> str:
        while True:
            key = f"granted-{self._next_key}"
            self._next_key += 1
            # A tenant may have named one like it.
            if not self.leases.has(LeaseKey(tenant, key)):
                return key

    # Sessions

    def _session_requested(self, event: on.SessionRequested, now: float) -> None:
        try:
            self._check_room(event.tenant)
        except RefusedError:
            self._open(event, now)  # it is refused, perhaps for a better reason
        else:
            self.settling[event.session] = (event, now + self.policy.settle_seconds)

    def _settle(self, now: float) -> None:
        """Opens the sessions that need not wait for their lease to become empty, or no longer."""
        for event, until in list(self.settling.values()):
            if self.stopping or until <= now or not self.leases.unsettled(_key(event), event.wish):
                del self.settling[event.session]
                self._open(event, now)

    def _open(self, event: on.SessionRequested, now: float) -> None:
        try:
            session = self._admit(event, now)
        except RefusedError as error:
            self._out.append(do.RefuseSession(event.session, error.refusal))
            return
        self.sessions.add(session)
        self._give_worker(session, now)

    def _admit(self, event: on.SessionRequested, now: float) -> Session:
        self._check_running()
        self._check_not_draining()
        self._check_room(event.tenant)
        self._check_pool(event)
        lease, joined = self.leases.join(_key(event), event.wish, now, event.address)
        slot = self.leases.attach(lease, event.session)
        self._write_changes()
        if joined is Joined.NEW:
            self._out.append(do.MakePage(lease.id, lease.quota))
        elif joined is Joined.RESHAPED:
            self._update_page(lease)
        self._out.append(do.TakeSlot(lease.id, slot, event.session))
        library = find(self.devices, lease.device).library
        deadline = now + self.policy.open_seconds
        return Session(event.session, event.tenant, lease.id, slot, library, now, deadline)

    def _check_room(self, tenant: str) -> None:
        """Sessions that wait for their lease to settle have their places already."""
        if len(self.sessions) + len(self.settling) >= self.policy.max_sessions:
            raise RefusedError(
                Code.SERVER_FULL,
                f"the server has {len(self.sessions)} sessions, its maximum; try again when one "
                "has ended",
            )
        settling = sum(event.tenant == tenant for event, _ in self.settling.values())
        running = self.sessions.of_tenant(tenant) + settling
        check_sessions(tenant, self.leases.quotas.policy_of(tenant), running)

    def _check_running(self) -> None:
        if self.stopping:
            raise RefusedError(
                Code.STOPPING, "the server is stopping; use another one or wait until it is back"
            )

    def _check_not_draining(self) -> None:
        if self.drain is not None:
            raise RefusedError(
                Code.DRAINING,
                "the server is being drained by its operator and takes nothing new; use another "
                "one or wait until `rgpu undrain`",
            )

    def _check_pool(self, event: on.SessionRequested) -> None:
        """Before anything is granted: a server whose workers cannot start says so at once."""
        pools = list(self.pools.values())
        if event.wish.device is not None:
            pools = [self.pools[find(self.devices, event.wish.device).library]]
        if all(pool.broken for pool in pools):
            raise RefusedError(Code.NO_WORKER, _broken_sentence(pools[0]))

    def _give_worker(self, session: Session, now: float) -> None:
        pool = self.pools[session.library]
        worker = pool.take(session.id)
        lease = self.leases.get(session.lease)
        if worker is None or lease is None:
            if pool.broken:
                self._end(session, Refusal(Code.NO_WORKER, _broken_sentence(pool)), now)
            return
        session.worker, session.state = worker, SessionState.OPENING
        self._out.append(
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
            self._out.append(do.ForgetSession(event.session, _LEFT))
        session = self.sessions.get(event.session)
        if session is not None and session.state is SessionState.WAITING:
            self._gone(session, _LEFT, now)

    def _end(self, session: Session, refusal: Refusal, now: float) -> None:
        if session.worker is None:
            self._out.append(do.RefuseSession(session.id, refusal))
            self._gone(session, refusal.sentence, now)
        elif session.state is not SessionState.ENDING:
            session.state = SessionState.ENDING
            session.deadline = now + self.policy.end_seconds
            self._out.append(do.EndSession(session.worker, session.id, refusal.sentence))

    def _gone(self, session: Session, reason: str, now: float) -> None:
        self.sessions.remove(session)
        lease = self.leases.get(session.lease)
        if lease is not None:
            self._out.append(do.ClearSlot(lease.id, session.slot, session.id))
            if self.leases.detach(lease, session.slot, now):
                self._out.append(do.DropPage(lease.id))
        self._out.append(do.ForgetSession(session.id, reason))

    # Workers

    def _worker_ready(self, event: on.WorkerReady, now: float) -> None:
        pool = self._pool_of(event.worker)
        if pool is None:
            return
        pool.ready(event.worker)
        for session in self.sessions.waiting(pool.library)[:1]:
            self._give_worker(session, now)

    def _session_opened(self, event: on.SessionOpened, now: float) -> None:
        session = self._session_of(event.worker)
        if session is not None and session.state is SessionState.OPENING:
            session.state, session.deadline = SessionState.OPEN, None

    def _session_refused_by_worker(self, event: on.SessionRefusedByWorker, now: float) -> None:
        session = self._session_of(event.worker)
        if session is not None:
            session.state, session.deadline = SessionState.ENDING, now + self.policy.end_seconds

    def _worker_exited(self, event: on.WorkerExited, now: float) -> None:
        pool = self._pool_of(event.worker)
        if pool is None:
            return
        session = self._session_of(event.worker)
        pool.exited(event.worker, event.reason, now)
        if session is not None:
            if session.state is SessionState.OPENING:
                sentence = f"the worker of this session ended before it was open: {event.reason}"
                self._out.append(do.RefuseSession(session.id, Refusal(Code.NO_WORKER, sentence)))
            self._gone(session, event.reason, now)
        if pool.broken:
            for waiting in self.sessions.waiting(pool.library):
                self._end(waiting, Refusal(Code.NO_WORKER, _broken_sentence(pool)), now)

    def _refill(self, now: float) -> None:
        if self.stopping:
            return
        for pool in self.pools.values():
            for _ in range(pool.to_start(len(self.sessions.waiting(pool.library)), now)):
                pool.started(self._next_worker)
                self._out.append(do.StartWorker(self._next_worker, pool.library))
                self._next_worker += 1

    def _pool_of(self, worker: int) -> WorkerPool | None:
        return next((pool for pool in self.pools.values() if worker in pool), None)

    def _session_of(self, worker: int) -> Session | None:
        pool = self._pool_of(worker)
        known = pool.get(worker) if pool is not None else None
        return None if known is None or known.session is None else self.sessions.get(known.session)

    # Time and the end

    def _nothing(self, event: on.Started, now: float) -> None:
        pass

    def _adopted(self, event: on.Adopted, now: float) -> None:
        """What an earlier daemon was ending is ended again: the worker may not have heard it."""
        for lease in event.leases:
            self.leases.adopt(lease, now)
            given = _GIVEN_KEY.fullmatch(lease.key.name)
            if given is not None:
                self._next_key = max(self._next_key, int(given[1]) + 1)
        for session in event.sessions:
            assert session.worker is not None
            self.sessions.add(session)
            self.pools[session.library].adopt(session.worker, session.id)
            self._next_worker = max(self._next_worker, session.worker + 1)
        for lease in event.leases:
            if lease.state is not LeaseState.ACTIVE:
                self._lease_ended(lease, False, now)

    def _time_passed(self, event: on.TimePassed, now: float) -> None:
        for lease, gone in self.leases.expire(now):
            self._lease_ended(lease, gone, now)
        if self.drain is not None and self.drain.ends_at is not None and self.drain.ends_at <= now:
            self.drain = Drain(None)
            for lease, gone in self.leases.end_all(now):
                self._lease_ended(lease, gone, now)
        for session in self.sessions.late(now):
            self._late(session, now)

    def _late(self, session: Session, now: float) -> None:
        if session.state is SessionState.ENDING and session.worker is not None:
            session.deadline = None
            self._out.append(do.KillWorker(session.worker))
            return
        seconds = self.policy.open_seconds
        what = "no worker was free" if session.worker is None else "its worker did not open it"
        sentence = (
            f"the session was not open after {seconds:g} s: {what}; the server's log says more"
        )
        self._end(session, Refusal(Code.NO_WORKER, sentence), now)

    def _drain_requested(self, event: on.DrainRequested, now: float) -> None:
        def drain() -> do.Answer:
            seconds = event.end_after_seconds
            if seconds is not None and not 0 <= seconds <= MAX_DRAIN_SECONDS:
                raise RefusedError(
                    Code.BAD_REQUEST,
                    f"leases cannot end after {seconds:g} s: say 0 to {MAX_DRAIN_SECONDS:g} s",
                )
            self.drain = Drain(None if seconds is None else now + seconds)
            return do.Answer(event.request, "")

        self._answer(event.request, drain)
        self._time_passed(on.TimePassed(), now)

    def _undrain_requested(self, event: on.UndrainRequested, now: float) -> None:
        self.drain = None
        self._out.append(do.Answer(event.request, ""))

    def _stop_requested(self, event: on.StopRequested, now: float) -> None:
        refusal = Refusal(Code.STOPPING, "the server was stopped by its operator")
        if not self.stopping:
            self.stopping = True
            for pool in self.pools.values():
                self._out += [do.StopWorker(worker) for worker in pool.idle()]
        for session in self.sessions:
            if event.end_sessions or session.worker is None:
                self._end(session, refusal, now)


def _key(event: on.SessionRequested) -> LeaseKey:
    return LeaseKey(event.tenant, event.key or f"container:{event.container}")


def _broken_sentence(pool: WorkerPool) -> str:
    return (
        f"the workers for {pool.library!r} do not start: {pool.last_failure}; "
        "the server's log says more"
    )
