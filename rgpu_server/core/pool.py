"""The warm workers of one library: how many to start, and when to start again after a crash."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.core.policy import Policy


class WorkerState(Enum):
    """STARTING until the worker reports READY, WARM until it gets a session, SERVING until it
    exits. GIVEN_UP from when it was not ready in time until it exits.
    """

    STARTING = "starting"
    GIVEN_UP = "given up"
    WARM = "warm"
    SERVING = "serving"


class Worker(Struct):
    """ready_by: when a start must be over."""

    id: int
    library: str
    ready_by: float
    state: WorkerState = WorkerState.STARTING
    session: int | None = None


def array_pool(library: str, seam: str) -> str:
    """Returns the name of the pool for an array library beside a device's library; "" names none.

    Nothing of such a pool is kept warm: a Python process with its libraries takes memory.
    """
    return f"{library}/{seam}" if seam else library


def device_library(pool: str) -> str:
    """Returns the device's library of a pool."""
    return pool.partition("/")[0]


def seam_of(pool: str) -> str:
    """Returns the array library of a pool; "" for a pool at the driver seam."""
    return pool.partition("/")[2]


def seam_word(pool: str) -> str:
    """Returns the word for a pool's seam in reports: "driver", or the name of an array library."""
    return seam_of(pool) or "driver"


class WorkerPool:
    """Keeps `warm_workers` ready, and one more for each session that waits.

    A worker that ends before it has a session counts as a failed start, and so does one that is not
    ready after `start_seconds`. After each failure the next start waits twice as long as after the
    one before.
    """

    def __init__(self, library: str, policy: Policy) -> None:
        self.library = library
        self.failures = 0
        self.last_failure = ""
        self._policy = policy
        self._not_before = 0.0
        self._workers: dict[int, Worker] = {}

    def __contains__(self, worker: int) -> bool:
        return worker in self._workers

    def __len__(self) -> int:
        return len(self._workers)

    def get(self, worker: int) -> Worker | None:
        """Returns the worker with this id, or None."""
        return self._workers.get(worker)

    def count(self, state: WorkerState) -> int:
        """Returns how many workers are in `state`."""
        return sum(1 for w in self._workers.values() if w.state is state)

    @property
    def broken(self) -> bool:
        """True if so many starts failed in a row that sessions do not wait for the next one."""
        return self.failures >= self._policy.max_start_failures

    def to_start(self, waiting: int, now: float) -> int:
        """Returns how many workers to start now. waiting: the number of sessions without
        a worker.
        """
        if now < self._not_before:
            return 0
        starting = self.count(WorkerState.STARTING)
        warm = 0 if seam_of(self.library) else self._policy.warm_workers
        wanted = warm + waiting - self.count(WorkerState.WARM) - starting
        room = (1 if self.failures else self._policy.max_starting) - starting
        return max(min(wanted, room), 0)

    def started(self, worker: int, now: float) -> None:
        """Adds a worker that the shell is told to start."""
        self._workers[worker] = Worker(worker, self.library, now + self._policy.start_seconds)

    def adopt(self, worker: int, session: int) -> None:
        """Adds a worker that serves a session already."""
        serving = WorkerState.SERVING
        self._workers[worker] = Worker(worker, self.library, 0.0, serving, session)

    def ready(self, worker: int) -> None:
        """Notes that a worker is warm."""
        known = self._workers.get(worker)
        if known is not None and known.state is WorkerState.STARTING:
            known.state = WorkerState.WARM
            self.failures, self._not_before = 0, 0.0

    def take(self, session: int) -> int | None:
        """Gives a session the worker that has been warm for longest; None if there is none."""
        for worker in self._workers.values():
            if worker.state is WorkerState.WARM:
                worker.state, worker.session = WorkerState.SERVING, session
                return worker.id
        return None

    def exited(self, worker: int, reason: str, now: float) -> Worker:
        """Removes a worker and returns it."""
        gone = self._workers.pop(worker)
        if gone.state in (WorkerState.STARTING, WorkerState.WARM):
            self._failed(reason, now)
        return gone

    def give_up_late(self, now: float) -> list[int]:
        """Returns the workers that are not ready in time. Each has failed to start now, however
        long its process takes to go.
        """
        late = [w for w in self._starting() if w.ready_by <= now]
        for worker in late:
            worker.state = WorkerState.GIVEN_UP
            self._failed(not_ready(self._policy), now)
        return [worker.id for worker in late]

    def none_free(self, now: float) -> str:
        """Returns in words that no worker was free, and what those do that start."""
        started = [w.ready_by - self._policy.start_seconds for w in self._starting()]
        if not started:
            return "no worker was free, and none was starting"
        return (
            f"no worker was free; {len(started)} starting, the first for {now - min(started):.1f} s"
        )

    def _starting(self) -> list[Worker]:
        return [w for w in self._workers.values() if w.state is WorkerState.STARTING]

    def _failed(self, reason: str, now: float) -> None:
        self.failures += 1
        self.last_failure = reason
        back_off = self._policy.first_back_off_seconds * 2 ** min(self.failures - 1, 16)
        self._not_before = now + min(back_off, self._policy.max_back_off_seconds)

    def idle(self) -> list[int]:
        """Returns the workers without a session."""
        return [w.id for w in self._workers.values() if w.state is not WorkerState.SERVING]

    def next_wake(self, waiting: int, now: float) -> float | None:
        """Returns when a start that waits for its back-off is due, or one that runs must be over;
        None if there is neither.
        """
        times = [worker.ready_by for worker in self._starting()]
        if self._not_before > now and self.to_start(waiting, self._not_before):
            times.append(self._not_before)
        return min(times, default=None)


def not_ready(policy: Policy) -> str:
    """Returns why a worker is given up that is not ready in time."""
    return f"it was not ready after {policy.start_seconds:g} s"
