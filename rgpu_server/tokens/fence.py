"""Ends the workers of a lease that does not give its device back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rgpu_common.wire.status import CUDA_ERROR_LAUNCH_TIMEOUT
from rgpu_server.tokens.page import Phase
from rgpu_server.tokens.seats import STALE_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.tokens.seats import Seat, WorkerSeat

    # Session (0: none) and sentence, for the operator.
    Tell = Callable[[int, str], None]

MS = 1_000_000
_KILL_NS = 1000 * MS
_KILLED = -1


class Fence:
    """Ends the active workers of a lease.

    A worker whose gate has not looked at the page for a second is killed.  Any other worker is told
    to end with an error that names the limit, and is killed a second later.

    patient: killing waits for a second from now, and telling for `max_kernel_ns`.
    """

    def __init__(self, seat: Seat, max_kernel_ns: int, tell: Tell, patient: bool = False) -> None:
        self.seat = seat
        self._max_kernel_ns = max_kernel_ns
        self._tell = tell
        now = time.monotonic_ns()
        self._stale_from = now + STALE_NS if patient else now
        self._late_from = now + max_kernel_ns if patient else now
        seat.say(Phase.RECALLED)
        self.press(now)

    def slip(self, by: int) -> None:
        """As `DeviceTokens.slip`."""
        self._stale_from += by
        self._late_from += by
        for worker in self.seat.workers.values():
            if worker.kill_at is not None and worker.kill_at != _KILLED:
                worker.kill_at += by

    def done(self) -> bool:
        """Whether nothing of the lease is on the device or will be."""
        return self.seat.demand().active == 0

    def drained(self) -> bool:
        """As `done`, for workers that may have run without a grant because no loop was there: what
        they have on the device without one counts too, for a while.
        """
        said = self.seat.demand()
        patient = time.monotonic_ns() < self._stale_from
        return said.active == 0 and not (patient and said.in_flight_ns)

    def press(self, now: int) -> None:
        """Does what is due."""
        for worker in self.seat.active_workers():
            if worker.kill_at is not None:
                if worker.kill_at <= now:
                    self._kill(worker, "its worker did not end when told to")
                continue
            alive = self.seat.token.gate(worker.slot).alive_ns
            if now - alive > STALE_NS:
                if now >= self._stale_from:
                    self._kill(worker, "its worker held the device and did not answer any more")
            elif now >= self._late_from:
                self._end(worker, now)

    def _end(self, worker: WorkerSeat, now: int) -> None:
        seconds = self._max_kernel_ns / 1e9
        sentence = (
            f"a kernel ran for more than {seconds:g} s while others waited for the device, or a "
            "graph waited for a value in memory; make it shorter, or have the operator raise "
            "quota.max_kernel_seconds"
        )
        worker.kill_at = now + _KILL_NS
        worker.end(CUDA_ERROR_LAUNCH_TIMEOUT, sentence)
        self._tell(worker.session, f"the session is ended: {sentence}")

    def _kill(self, worker: WorkerSeat, why: str) -> None:
        sentence = f"the session is killed: {why}"
        try:
            worker.kill()
        except PermissionError as error:
            sentence = f"worker {worker.pid} cannot be killed and blocks its device: {error}"
        if worker.kill_at != _KILLED:
            worker.kill_at = _KILLED
            self._tell(worker.session, sentence)
