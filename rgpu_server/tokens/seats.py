"""What the token loop knows about a lease (a seat) and about a worker."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_common.wire.worker import End, encode_end
from rgpu_server.tokens.page import Demand, Phase, TokenView

if TYPE_CHECKING:
    from rgpu_server.core.tokens.share import Share
    from rgpu_server.workers.pages import LeasePage

_GENERATIONS = 1 << 32
# A gate that works under a grant looks at the page at least every 100 ms.  One that has not looked
# for so long counts as dead.
STALE_NS = 1_000_000_000
# Twice the longest time after which a worker counts a kernel that still runs.
_UNCOUNTED_NS = 2_000_000_000


class WorkerSeat(Struct, eq=False):
    """A worker with a session.

    log_fd: -1 if there is none.  kill_at: the worker was told to end, and is killed at this time.
    """

    session: int
    slot: int
    pid: int
    pidfd: int
    control_fd: int
    log_fd: int
    record: str
    kill_at: int | None = None

    def exited(self) -> bool:
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def kill(self) -> None:
        """Ends the process by force; PermissionError if that is not allowed."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def end(self, status: int, sentence: str) -> None:
        """Tells the worker to give its client this error and to end.  It may not hear this."""
        copy = socket.socket(fileno=os.dup(self.control_fd))
        with copy, contextlib.suppress(OSError):
            copy.send(encode_end(End(status, sentence)), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        for fd in (self.pidfd, self.control_fd, self.log_fd):
            if fd >= 0:
                os.close(fd)


class Seat(Struct, eq=False):
    """A lease on its device.

    generation: the page's number of the grant; it rises with every grant, so that near_end and
        spent of an earlier grant are not taken for those of this one.
    gen: the scheduler's number of the grant.
    since_ns, busy_mark: the time, and the work, up to which the scheduler has been told.
    peers: the number of workers at the grant.
    awake: the scheduler knows that the lease wants the device.
    absent: how many grants in a row the lease did not use.  retry_at: when to offer the next one.
    dead: slot -> session of workers that have exited and whose slots are not cleared yet.
    """

    lease: str
    tenant: str
    device: int
    share: Share
    paused: bool
    record: str
    page: LeasePage
    token: TokenView
    workers: dict[int, WorkerSeat] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)
    phase: Phase = Phase.NONE
    generation: int = 0
    gen: int = 0
    start_ns: int = 0
    slice_ns: int = 0
    since_ns: int = 0
    busy_mark: int = 0
    peers: int = 0
    awake: bool = False
    near_told: bool = False
    absent: int = 0
    retry_at: int | None = None
    signals: int = 0

    def grant(self, phase: Phase, start_ns: int, slice_ns: int) -> None:
        """Gives the lease its turn: a slice, or the device until it is recalled."""
        self.generation = self.generation % (_GENERATIONS - 1) + 1
        self.phase = phase
        self.start_ns = self.since_ns = start_ns
        self.slice_ns = slice_ns
        self.near_told = False
        before = self.demand()
        self.busy_mark, self.peers = before.busy_ns, before.workers
        self.token.write(phase, self.generation, start_ns, slice_ns)

    def lengthen(self, by_ns: int) -> None:
        """Its slice ends later.  The generation stays, so its work need not leave the device."""
        self.slice_ns += by_ns
        self.near_told = False
        self.token.write(self.phase, self.generation, self.start_ns, self.slice_ns)

    def say(self, phase: Phase) -> None:
        """Writes a phase of the same generation."""
        self.phase = phase
        self.token.write(phase, self.generation)

    def demand(self) -> Demand:
        """Returns what the living workers report.  The other slots are not read: they may hold what
        a dead worker left, or what a worker made up.
        """
        slots = 0
        for worker in self.workers.values():
            slots |= 1 << worker.slot
        return self.token.demand(self.generation, slots)

    def active_workers(self) -> list[WorkerSeat]:
        """Returns the living workers that have work on the device, or may put work there."""
        return [w for w in self.workers.values() if self.token.gate(w.slot).active_gen]

    def progress(self, now: int) -> tuple[int, int] | None:
        """Returns what `report` returns, if the holder's time is to be told now.

        A worker counts a kernel's time when the kernel is over, or while it runs: at the latest a
        second after it began.  Until then the time stays unreported, because the scheduler takes no
        more device time than there is in the time that it is told of.
        """
        late = now - self.since_ns
        if self.phase is not Phase.OPEN and late <= STALE_NS:
            return None
        said = self.demand()
        if said.active and said.busy_ns == self.busy_mark and late <= _UNCOUNTED_NS:
            return None
        return self.report(now, said)

    def report(self, until_ns: int, said: Demand) -> tuple[int, int]:
        """Returns the time held, and the device time within it, since the last report."""
        held = max(until_ns - self.since_ns, 0)
        busy = said.busy_ns - self.busy_mark
        if self.phase is not Phase.OPEN and (busy < 0 or said.workers < self.peers):
            busy = held  # the count of a worker that has exited is lost, so all time is charged
        self.since_ns, self.busy_mark = max(until_ns, self.since_ns), said.busy_ns
        self.peers = said.workers
        return held, min(max(busy, 0), held)
