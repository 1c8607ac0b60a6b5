"""The process: one thread, one epoll; leases, workers and daemons come and go."""

from __future__ import annotations

import gc
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from rgpu_common.errors import ProtocolError, WorkerError
from rgpu_common.wire.status import CUDA_ERROR_DEVICE_UNAVAILABLE
from rgpu_server.core.tokens.share import Share
from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.daemons import Daemons
from rgpu_server.tokens.device import DeviceTokens
from rgpu_server.tokens.page import Phase, TokenView
from rgpu_server.tokens.poller import EDGE, READ, Poller
from rgpu_server.tokens.reports import Reports
from rgpu_server.tokens.seats import Seat, WorkerSeat
from rgpu_server.workers.pages import Counters, LeasePage

if TYPE_CHECKING:
    import socket

    from rgpu_server.tokens.home import Home
    from rgpu_server.tokens.priority import Priority

log = logging.getLogger("rgpu.tokens")

MS = 1_000_000
TICK_NS = 100 * MS
# If so much more time has passed than the loop slept for, the clock jumped or the loop was stopped.
_SLIP_NS = 1000 * MS
_COLLECT_TICKS = 600
# Signals of one lease within a tick; one that sends more is looked at once a tick only.
_MAX_SIGNALS = 4000
_LOG_BYTES = 65536
_LEFT_OUT = (
    "the server cannot read the limits of this session's lease any more, so it ends the session; "
    "start the program again"
)


class TokenLoop:
    """`run` returns when no daemon is connected and no worker is left."""

    def __init__(
        self,
        home: Home | None = None,
        daemon: socket.socket | None = None,
        priority: Priority | None = None,
    ) -> None:
        self._poller = Poller()
        self._daemons = Daemons(self._poller, self._handle, self._daemon_left)
        self._home = home
        self._priority = priority
        self._devices: dict[int, DeviceTokens] = {}
        self._seats: dict[str, Seat] = {}
        self._workers: dict[int, WorkerSeat] = {}
        # Leases of the daemon that is there whose pages cannot be used.
        self._left_out: set[str] = set()
        self._started = False
        self._stopping = False
        self._tick_at = 0
        # The clock when it was last looked at, and when the loop wanted to be awake again.
        self._seen = self._due = time.monotonic_ns()
        self._ticks = 0
        self._reports = Reports()
        if home is not None:
            self._poller.watch(home.listener.fileno(), READ, self._accept)
        if daemon is not None:
            self._daemons.meet(daemon)

    def run(self) -> None:
        """Serves until nobody needs it any more."""
        gc.collect()
        gc.freeze()
        gc.disable()
        while not self._over():
            now = self._look_at_clock()
            if now >= self._tick_at:
                self._tick(now)
            for device in self._devices.values():
                due = device.due()
                if due is not None and due <= now:
                    device.act(now)
            self._due = max(self._next_due(), self._seen)
            for device in self._devices.values():
                device.looks_at = self._due
            self._poller.serve(self._due)

    def stop(self) -> None:
        """Ends `run` soon; safe in a signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Closes everything; workers go on with the grants that they have."""
        self._daemons.close()
        for seat in self._seats.values():
            seat.page.close()
        for worker in self._workers.values():
            worker.close()
        self._poller.close()

    def _look_at_clock(self) -> int:
        now, seen, due = time.monotonic_ns(), self._seen, self._due
        self._seen = now
        if now < seen or now > due + _SLIP_NS:
            by = now - (seen if now < seen else due)
            log.warning("the clock went on by %.1f s at once", by / 1e9)
            self._tick_at = now
            for device in self._devices.values():
                device.slip(by)
        return now

    def _next_due(self) -> int:
        due = self._tick_at
        for device in self._devices.values():
            at = device.due()
            if at is not None and at < due:
                due = at
        return due

    def _over(self) -> bool:
        if self._stopping:
            return True
        if self._daemons.here or self._workers:
            return False
        return self._home is None or self._home.leave()

    def _tick(self, now: int) -> None:
        self._tick_at = now + TICK_NS
        self._ticks += 1
        if self._priority is not None:
            self._priority.tick(now)
        for seat in self._seats.values():
            seat.token.heartbeat(now)
            if seat.signals > _MAX_SIGNALS:
                self._hear(seat)
                seat.signals = 0
                self._look(seat)
            seat.signals = 0
        for device in self._devices.values():
            device.tick(now)
        if self._daemons.here:
            # The next figures replace these: a daemon that does not read gets no queue of them.
            if not self._daemons.behind:
                self._reports.send(self._devices, self._daemons.tell)
            self._daemons.flush()
        if self._ticks % _COLLECT_TICKS == 0:
            gc.collect()

    # Leases and workers

    def _signalled(self, seat: Seat) -> None:
        seat.signals += 1
        if seat.signals > _MAX_SIGNALS:
            self._poller.unwatch(seat.page.signal_fd)
        self._look(seat)

    def _look(self, seat: Seat) -> None:
        device = self._devices.get(seat.device)
        if device is not None:
            device.look(seat)

    def _lease_is(self, m: say.LeaseIs, fds: list[int]) -> None:
        share = Share(m.request_ppm, m.limit_ppm, m.weight, m.priority)
        seat = self._seats.get(m.lease)
        if seat is not None:
            say.close_all(fds)
            seat.record = m.record
            device = self._devices.get(seat.device)
            if seat.device != m.device:
                self._move(seat, m.device)
                device = self._devices.get(m.device)
            if device is not None:
                device.reshape(seat, share, m.paused)
            return
        if m.lease in self._left_out:
            say.close_all(fds)
            return
        if not fds:
            raise ProtocolError(f"lease {m.lease} came without its page")
        try:
            page = LeasePage.existing(fds, Counters(*m.ended))
        except (WorkerError, OSError) as error:
            # One lease whose workers broke its page does not take the loop from the others.
            self._left_out.add(m.lease)
            self._note(0, f"lease {m.lease} is left out, and its sessions are ended: {error}")
            return
        token = TokenView(page.address)
        seat = Seat(m.lease, m.tenant, m.device, share, m.paused, m.record, page, token)
        self._seats[m.lease] = seat
        seat.token.heartbeat(time.monotonic_ns())
        self._hear(seat)
        self._place(seat)

    def _hear(self, seat: Seat) -> None:
        self._poller.watch(seat.page.signal_fd, EDGE, lambda: self._signalled(seat))

    def _place(self, seat: Seat) -> None:
        device = self._devices.get(seat.device)
        if device is not None:
            device.add(seat)
        else:
            seat.generation = seat.token.read().generation
            seat.say(Phase.OFF)

    def _move(self, seat: Seat, device: int) -> None:
        """An empty lease comes back with another device."""
        before = self._devices.get(seat.device)
        if before is not None:
            before.remove(seat)
        seat.device = device
        self._place(seat)

    def _lease_gone(self, m: say.LeaseGone, _fds: list[int]) -> None:
        self._left_out.discard(m.lease)
        seat = self._seats.pop(m.lease, None)
        if seat is None:
            return
        for worker in list(seat.workers.values()):
            self._forget(seat, worker)
        device = self._devices.get(seat.device)
        if device is not None:
            device.remove(seat)
        self._poller.unwatch(seat.page.signal_fd)
        seat.page.close()

    def _worker_is(self, m: say.WorkerIs, fds: list[int]) -> None:
        log_fd = fds[2] if len(fds) > 2 else -1
        worker = WorkerSeat(m.session, m.slot, m.pid, fds[0], fds[1], log_fd, m.record)
        if m.lease in self._left_out:
            worker.end(CUDA_ERROR_DEVICE_UNAVAILABLE, _LEFT_OUT)
            worker.close()
            return
        seat = self._seats.get(m.lease)
        if seat is None or m.session in self._workers:
            worker.close()
            raise ProtocolError(f"session {m.session} is of no known lease, or known already")
        self._workers[m.session] = seat.workers[m.session] = worker
        self._poller.watch(worker.pidfd, READ, lambda: self._exited(seat, worker))
        self._look(seat)

    def _worker_gone(self, m: say.WorkerGone, _fds: list[int]) -> None:
        seat = self._seats.get(m.lease)
        if seat is None:
            return
        worker = seat.workers.get(m.session)
        if worker is not None:
            self._exited(seat, worker)
        seat.dead = {slot: s for slot, s in seat.dead.items() if s != m.session}
        seat.page.ended = Counters(*m.ended)
        self._look(seat)

    def _exited(self, seat: Seat, worker: WorkerSeat) -> None:
        if not worker.exited():
            return
        self._forget(seat, worker)
        if self._daemons.here:
            seat.dead[worker.slot] = worker.session
        else:
            seat.page.clear(worker.slot)
        self._look(seat)

    def _forget(self, seat: Seat, worker: WorkerSeat) -> None:
        del self._workers[worker.session], seat.workers[worker.session]
        self._poller.unwatch(worker.pidfd)
        self._poller.unwatch(worker.log_fd)
        worker.close()

    # Daemons

    def _accept(self) -> None:
        assert self._home is not None
        connection = self._home.accept()
        if connection is None:
            return
        self._daemons.leave()
        for worker in self._workers.values():
            self._poller.unwatch(worker.log_fd)
        self._daemons.meet(connection)

    def _daemon_left(self) -> None:
        """From now on the slots of workers that end are ours to clear, and their logs to read."""
        self._left_out.clear()
        self._clear_dead()
        for worker in self._workers.values():
            if worker.log_fd >= 0:
                self._poller.watch(worker.log_fd, READ, partial(self._drop_log, worker))

    def _clear_dead(self) -> None:
        for seat in self._seats.values():
            for slot, session in seat.dead.items():
                if seat.token.gate(slot).session == session:
                    seat.page.clear(slot)
            seat.dead.clear()

    def _drop_log(self, worker: WorkerSeat) -> None:
        """A worker that prints must not block because nobody reads."""
        fd = worker.log_fd
        try:
            if os.read(fd, _LOG_BYTES):
                return
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("a worker's log: %s", error)
        self._poller.unwatch(fd)

    def _handle(self, message: say.Message, fds: list[int]) -> None:
        if isinstance(message, say.LeaseIs):
            self._lease_is(message, fds)
        elif isinstance(message, say.WorkerIs):
            self._worker_is(message, fds)
        elif isinstance(message, say.WorkerGone):
            self._worker_gone(message, fds)
        elif isinstance(message, say.LeaseGone):
            self._lease_gone(message, fds)
        elif isinstance(message, say.Setup):
            self._set_up(message)
        elif isinstance(message, say.Adopt):
            self._tell_all()
        elif isinstance(message, say.Start):
            self._start()
        else:
            raise ProtocolError(f"a daemon does not send {type(message).__name__}")

    def _set_up(self, m: say.Setup) -> None:
        """Devices whose tokens are given out; with other settings all are begun anew."""
        wanted = dict.fromkeys(m.devices, m.max_kernel_ms * MS)
        if wanted == {n: d.max_kernel_ns for n, d in self._devices.items()}:
            return
        self._started = False
        self._devices = {n: DeviceTokens(ns, self._note) for n, ns in wanted.items()}
        for seat in self._seats.values():
            self._place(seat)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for device in self._devices.values():
                device.start()

    def _tell_all(self) -> None:
        """Everything that a new daemon needs to go on; it has no page yet, and clears no slot."""
        self._clear_dead()
        for seat in self._seats.values():
            page, share = seat.page, seat.share
            message = say.LeaseIs(
                lease=seat.lease,
                tenant=seat.tenant,
                device=seat.device,
                request_ppm=share.request_ppm,
                limit_ppm=share.limit_ppm,
                weight=share.weight,
                priority=share.priority,
                paused=seat.paused,
                ended=page.ended.numbers(),
                record=seat.record,
            )
            self._daemons.tell(message, page.descriptors)
            for w in seat.workers.values():
                fds = [fd for fd in (w.pidfd, w.control_fd, w.log_fd) if fd >= 0]
                worker = say.WorkerIs(w.session, seat.lease, w.slot, w.pid, w.record)
                self._daemons.tell(worker, fds)
        self._daemons.tell(say.Told(len(self._seats), len(self._workers)))

    def _note(self, session: int, sentence: str) -> None:
        log.warning("session %d: %s", session, sentence)
        self._daemons.tell(say.Noted(session, sentence))
