"""Carries out what the node decides: workers, sessions, and the timer between."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from rgpu_common.errors import WorkerError
from rgpu_common.units import format_duration
from rgpu_common.wire.frame import WireError
from rgpu_common.wire.status import CUDA_ERROR_DEVICE_UNAVAILABLE
from rgpu_common.wire.worker import (
    Attach,
    End,
    ExportClosed,
    ExportGiven,
    FromWorker,
    Opened,
    OpenExport,
    Ready,
    Refused,
    Resume,
    Resumed,
    Ring,
    Warn,
    encode_attach,
    encode_end,
    encode_resume,
    encode_warn,
)
from rgpu_server.assigner import Assigner
from rgpu_server.config import CompilerLimits, Limits
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import SessionState
from rgpu_server.core.pool import WorkerState, seam_of
from rgpu_server.export_broker import ExportBroker
from rgpu_server.identity.authenticator import Authenticator
from rgpu_server.isolation import Isolation, worker_of
from rgpu_server.lease_pages import LeasePages, LeaseWatcher, PageWatcher
from rgpu_server.observe.audit import audit
from rgpu_server.service.claims import claim_doers
from rgpu_server.service.desk import Desk, Visitor
from rgpu_server.session_compilers import SessionCompilers
from rgpu_server.session_counts import SessionCounts
from rgpu_server.workers.memory_check import MemoryCheck
from rgpu_server.workers.process import WorkerOptions, WorkerProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from rgpu_common.clock import Clock
    from rgpu_server.core.model import Refusal
    from rgpu_server.core.node import Node
    from rgpu_server.core.pool import Worker
    from rgpu_server.core.sessions import Session
    from rgpu_server.devices import Served
    from rgpu_server.tokens.protocol import DeviceIs
    from rgpu_server.workers.compiler import Compilers

log = logging.getLogger("rgpu.server")

# A start takes milliseconds of this loop and of a CPU; a session that opens now comes first.
_START_DELAY_SECONDS = 0.02


class SessionWatcher(PageWatcher, Protocol):
    """Hears of workers with a session, too, and has what the token loop said (Handover)."""

    tokens: dict[int, DeviceIs]
    heard_at: float | None

    def worker_is(self, session_id: int) -> None: ...


class Equipment(Struct):
    """What the conductor works with."""

    options: Mapping[str, WorkerOptions]
    served: Mapping[int, Served]
    limits: Limits = field(default_factory=Limits)
    compilers: Compilers | None = None
    compiling: CompilerLimits = field(default_factory=CompilerLimits)
    authenticator: Authenticator = field(default_factory=Authenticator)
    isolation: Isolation = field(default_factory=Isolation)


class Conductor:
    """Feeds events to the node and does what comes out, in order, one event at a time."""

    def __init__(self, node: Node, clock: Clock, equipment: Equipment) -> None:
        self.node = node
        self.clock = clock
        passing = self._pass_control, self._pass_resume
        self.desk = Desk(
            equipment.authenticator, self.feed, *passing, self._spawn_task, node.leases.is_active
        )
        self.pages = LeasePages(node.leases)
        self.workers: dict[int, WorkerProcess] = {}
        self.exports = ExportBroker(
            node.sessions, self._worker_of, self.pages, self._exports_changed
        )
        self.counts = SessionCounts()
        self.memory = MemoryCheck()
        self.changed = asyncio.Event()
        # Called after each event: for the manager, for a Kubernetes agent, for the file of
        # reservations.
        self.listeners: list[Callable[[], None]] = []
        # Without it nobody schedules and nothing outlives the daemon.
        self.handover: SessionWatcher | None = None
        self._equipment = equipment
        self.groups = next((o.groups for o in equipment.options.values()), None)
        self._requests = itertools.count(1)
        self._answers: dict[int, do.Answer | do.Refuse] = {}
        self._events: deque[on.Event] = deque()
        self._feeding = False
        self._timer: asyncio.TimerHandle | None = None
        self._starts: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._compilers = SessionCompilers(
            equipment.compilers, equipment.compiling, equipment.isolation
        )
        self._assigner = Assigner(equipment.served, equipment.limits, self._compilers)
        # One row per action type: the method that carries it out.
        self._doers: dict[type[Any], Callable[[Any], None]] = {
            do.StartWorker: self._start_worker,
            do.StopWorker: self._stop_worker,
            do.KillWorker: self._kill_worker,
            do.AssignWorker: self._assign_worker,
            do.EndSession: self._end_session,
            do.RefuseSession: self._refuse_session,
            do.ForgetSession: self._forget_session,
            do.Answer: self._keep_answer,
            do.Refuse: self._keep_answer,
            **claim_doers(node, self.desk.claims),
            **self.pages.doers,
            do.UpdatePage: self._update_page,
            do.AnnounceReclaim: self._announce_reclaim,
        }

    def report_to(self, handover: SessionWatcher, recorder: LeaseWatcher) -> None:
        """From now on tells them of leases, and `handover` of sessions that get a worker."""
        self.handover = self.pages.handover = handover
        self.pages.recorder = recorder

    def feed(self, event: on.Event) -> None:
        """Handles an event and everything that follows from it at once."""
        over = self.node.leases.oversize()
        if over:
            # What such leases have freed meanwhile is there for whoever asks now.
            used = {lease: self.pages.charged(lease) for lease in over}
            self._events.append(on.MemoryObserved(used))
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                for action in self.node.handle(self._events.popleft(), self.clock.now()):
                    self._doers[type(action)](action)
        finally:
            self._feeding = False
        self._set_timer()
        self.changed.set()
        for told in tuple(self.listeners):
            told()

    def next_request(self) -> int:
        """Returns a fresh number for an event that wants an answer."""
        return next(self._requests)

    def ask(self, request: int, event: on.Event) -> do.Answer | Refusal:
        """Handles an event that carries `request` and returns its answer."""
        self.feed(event)
        answer = self._answers.pop(request)
        return answer.refusal if isinstance(answer, do.Refuse) else answer

    def warn(self, lease: str, sentence: str) -> None:
        """Has the programs of a lease print a sentence; they go on."""
        for worker in self.workers.values():
            if worker.lease == lease:
                worker.send(encode_warn(Warn(sentence)))

    def kill_idle(self) -> None:
        """Kills the workers without a session that are still there."""
        for pool in self.node.pools.values():
            for number in pool.idle():
                worker = self.workers.get(number)
                if worker is not None:
                    worker.kill()

    async def close(self) -> None:
        """Leaves everything: warm workers end, workers with a session serve on."""
        if self._timer is not None:
            self._timer.cancel()
        for start in self._starts.values():
            start.cancel()
        for worker in self.workers.values():
            worker.abandon()
        self.workers.clear()
        self._compilers.close()
        self.desk.close()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self.pages.close()

    # What workers say

    def worker_said(self, worker: int, message: FromWorker, fds: Sequence[int]) -> None:
        """Hears a worker (WorkerWatcher)."""
        session = self._session_of(worker)
        if isinstance(message, Ready):
            self._heard_ready(worker, message)
        elif isinstance(message, Opened | Refused):
            self._heard_answer(worker, session, message)
        elif isinstance(message, Resumed) and session is not None:
            self.counts.note_resumed(session, message)
        elif isinstance(message, OpenExport | ExportGiven | ExportClosed) and session is not None:
            self.exports.said(session, message, fds)

    def _heard_ready(self, worker: int, message: Ready) -> None:
        known = self._known(worker)
        if known is None or known.state is not WorkerState.STARTING:
            self.workers[worker].distrust("it was ready before")
            return
        why = self._equipment.isolation.check(worker_of(known.library), message.report)
        if why:
            log.error("worker %d is not used: %s", worker, why)
            self.workers[worker].refuse("it is not isolated as it must be")
            return
        # NVIDIA's driver maps as much as it likes into the process.
        if seam_of(known.library) and self._equipment.options[known.library].emulated:
            self.memory.ready(known.library, self.workers[worker].pid)
            self.workers[worker].has_imported()
        self.feed(on.WorkerReady(worker))

    def _heard_answer(self, worker: int, session_id: int | None, message: Opened | Refused) -> None:
        """The worker has answered its client.  Told to END meanwhile, or adopted, it may say so
        late; what it says more than once counts and is noted once.
        """
        session = None if session_id is None else self.node.sessions.get(session_id)
        if session is None:
            self.workers[worker].distrust("it answered a client that it does not have")
            return
        ring = message.ring if isinstance(message, Opened) else Ring.NOT_WISHED
        transport = self.desk.opened(session.id, shares_memory=ring is Ring.USED)
        if isinstance(message, Opened):
            if session.state is SessionState.OPENING:
                self.counts.note_opened(message)
                audit(
                    "session_opened",
                    session=session.id,
                    transport=transport,
                    worker=self.workers[worker].pid,
                )
                self.feed(on.SessionOpened(worker))
        elif session.state is not SessionState.ENDING:
            self.counts.refused += 1
            audit(
                "session_refused",
                session=session.id,
                tenant=session.tenant,
                sentence=message.sentence,
            )
            self.feed(on.SessionRefusedByWorker(worker))

    def worker_exited(self, worker: int, reason: str) -> None:
        """Hears of a worker's end (WorkerWatcher)."""
        self.workers.pop(worker, None)
        session = self._session_of(worker)
        if session is not None:
            self.exports.ended(session)
        elif not self.node.standing.stopping:
            log.warning("worker %d: %s", worker, reason)
        self.feed(on.WorkerExited(worker, reason))

    # Actions

    def _start_worker(self, action: do.StartWorker) -> None:
        delay = 0.0 if self.node.sessions.waiting(action.library) else _START_DELAY_SECONDS
        loop = asyncio.get_running_loop()
        self._starts[action.worker] = loop.call_later(delay, self._start_now, action)

    def _start_now(self, action: do.StartWorker) -> None:
        del self._starts[action.worker]
        options = self._equipment.options[action.library]
        try:
            self.workers[action.worker] = WorkerProcess(action.worker, options, self)
        except (WorkerError, OSError) as error:
            log.error("a worker cannot be started: %s", error)
            self.feed(on.WorkerExited(action.worker, str(error)))

    def _stop_worker(self, action: do.StopWorker) -> None:
        start = self._starts.pop(action.worker, None)
        if start is not None:
            start.cancel()
            self.feed(on.WorkerExited(action.worker, "it was not started"))
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.close()

    def _kill_worker(self, action: do.KillWorker) -> None:
        worker = self.workers.get(action.worker)
        if worker is not None:
            log.warning("worker %d is killed: %s", action.worker, action.why)
            worker.refuse(action.why)

    def _assign_worker(self, action: do.AssignWorker) -> None:
        visitor = self.desk.get(action.session)
        worker, page = self.workers.get(action.worker), self.pages.get(action.lease)
        if visitor is None or visitor.connection is None or worker is None or page is None:
            if worker is not None:
                worker.kill()
            return
        worker.serves(action.lease, action.memory_bytes)
        try:
            sent = self._assigner.assign(action, visitor, worker, page, self._hand_over)
        except (OSError, WireError) as error:
            log.error("session %d gets no worker: %s", action.session, error)
            sent = False
        if not sent:
            worker.kill()

    def _hand_over(self, visitor: Visitor, session_id: int) -> None:
        self.desk.hand_over(visitor)
        if self.handover is not None:
            self.handover.worker_is(session_id)

    def _update_page(self, action: do.UpdatePage) -> None:
        self.pages.doers[do.UpdatePage](action)
        for worker in self.workers.values():
            if worker.lease == action.lease:
                worker.serves(action.lease, action.quota.memory_bytes)

    def _announce_reclaim(self, action: do.AnnounceReclaim) -> None:
        self.pages.doers[do.AnnounceReclaim](action)
        self.warn(
            action.lease,
            f"this program may lose its GPU in {format_duration(action.seconds)}: its memory was "
            "borrowed, and the owner needs it. Save what you need",
        )

    def _end_session(self, action: do.EndSession) -> None:
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.send(encode_end(End(CUDA_ERROR_DEVICE_UNAVAILABLE, action.sentence)))

    def _refuse_session(self, action: do.RefuseSession) -> None:
        self.counts.refused += 1
        visitor = self.desk.get(action.session)
        audit(
            "session_refused",
            session=action.session,
            tenant=None if visitor is None else visitor.tenant,
            sentence=action.refusal.sentence,
        )
        self.desk.refuse(action.session, action.refusal)

    def _forget_session(self, action: do.ForgetSession) -> None:
        self._compilers.release(action.session)
        visitor = self.desk.forget(action.session, action.reason)
        if visitor is None:
            return
        audit("session_ended", session=action.session, tenant=visitor.tenant, reason=action.reason)

    def _keep_answer(self, action: do.Answer | do.Refuse) -> None:
        self._answers[action.request] = action

    # Glue

    def _known(self, worker: int) -> Worker | None:
        pools = self.node.pools.values()
        return next((pool.get(worker) for pool in pools if worker in pool), None)

    def _session_of(self, worker: int) -> int | None:
        known = self._known(worker)
        return None if known is None else known.session

    def _worker_of(self, session: Session | None) -> WorkerProcess | None:
        return self.workers.get(session.worker) if session and session.worker else None

    def _exports_changed(self, lease: str) -> None:
        if self.handover is not None:
            self.handover.lease_is(lease)

    def _pass_control(self, session_id: int, connection: socket.socket) -> bool:
        worker = self._worker_of(self.node.sessions.get(session_id))
        return worker is not None and worker.send(encode_attach(Attach()), [connection.fileno()])

    def _pass_resume(self, session_id: int, connection: socket.socket, head: bytes) -> bool:
        worker = self._worker_of(self.node.sessions.get(session_id))
        return worker is not None and worker.send(
            encode_resume(Resume(head)), [connection.fileno()]
        )

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self.clock.now()
        wake = self.node.next_wake(now)
        if wake is not None:
            delay = max(wake - now, 0.0) + 1e-3
            self._timer = asyncio.get_running_loop().call_later(delay, self.feed, on.TimePassed())
