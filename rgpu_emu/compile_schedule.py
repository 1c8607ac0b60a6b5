"""Decides which request of a tenant is worked on by which process, and when one has had enough.

Pure: the caller says what happened and when, and carries out what `decide` answers.  A *job* is a
process that has one module linked and works on one request at a time; it is kept for the next
request about its module as long as there is room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A job that has worked on so many requests is not used again: what the code generator leaves in
# memory grows with each.
MAX_SERVED: Final = 128
# Requests' limits of processor time that a job may live for; its process is ended beyond that.
LIFETIME_REQUESTS: Final = 8
_SOONEST_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Bounds:
    """What one tenant's compiler may take.

    Attributes:
        processes: jobs at a time, those that are kept for their modules included.
        request_seconds: processor time of one request.
        wall_seconds: time of one request, waiting included, however little processor time it got.
        burst_seconds: processor time at ordinary priority; beyond it one job at a time goes on,
            with what nobody else on the machine wants.
        refill: processors; how fast the burst fills again.
    """

    processes: int = 2
    request_seconds: float = 60.0
    wall_seconds: float = 600.0
    burst_seconds: float = 300.0
    refill: float = 0.25

    @property
    def job_seconds(self) -> float:
        """Processor time of one job, all its requests together."""
        return LIFETIME_REQUESTS * self.request_seconds


@dataclass(frozen=True)
class Start:
    """Start a job for a request; end job `instead` before, which nobody uses (0: none)."""

    request: int
    job: int
    instead: int
    slow: bool


@dataclass(frozen=True)
class Give:
    """Hand a request to a job that has its module."""

    request: int
    job: int


@dataclass(frozen=True)
class Slow:
    """From now on the job gets only processor time that nobody else wants."""

    job: int


@dataclass(frozen=True)
class Refuse:
    """Answer a request with this sentence, and end its job (0: it has none)."""

    request: int
    job: int
    sentence: str


Decision = Start | Give | Slow | Refuse


class Budget:
    """Processor seconds that are spent and come back with time."""

    def __init__(self, burst: float, refill: float, now: float) -> None:
        self._burst, self._refill = burst, refill
        self._level, self._at = burst, now

    def spend(self, seconds: float, now: float) -> None:
        # A debt of a fifth of the burst is remembered, so that it is paid in good time.
        self._level = max(self.level(now) - seconds, -self._burst / 5)
        self._at = now

    def level(self, now: float) -> float:
        return min(self._burst, self._level + (now - self._at) * self._refill)


class Debts:
    """What tenants had spent too much when their compiler ended: the next one begins with it."""

    def __init__(self, refill: float = Bounds.refill, most: int = 1024) -> None:
        self._refill, self._most = refill, most
        self._known: dict[str, tuple[float, float]] = {}

    def keep(self, tenant: str, spent: float, seconds: float, now: float) -> None:
        """`spent` is processor time within the last `seconds`, and what was owed before."""
        debt = spent - self._refill * seconds
        if debt > 0:
            while len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[tenant] = (debt, now)

    def take(self, tenant: str, now: float) -> float:
        """What is left of a tenant's debt, which whoever asks now carries."""
        debt, since = self._known.pop(tenant, (0.0, now))
        return max(debt - self._refill * (now - since), 0.0)


@dataclass
class _Waiting:
    request: int
    key: bytes
    since: float


@dataclass
class _Job:
    number: int
    key: bytes
    slow: bool
    # None: it is kept for its module.
    request: _Waiting | None
    # Processor time: of the process, as last measured, and at the start of the request.
    spent: float = 0.0
    began: float = 0.0
    served: int = 0
    used_at: float = 0.0


class Schedule:
    """The requests and jobs of one compiler.  Times are seconds of one monotonic clock."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        self._bounds = bounds
        self._budget = Budget(bounds.burst_seconds, bounds.refill, now)
        self._waiting: list[_Waiting] = []
        self._jobs: dict[int, _Job] = {}
        self._last_job = 0

    # --- what happened ----------------------------------------------------------------------------
    def owe(self, seconds: float, now: float) -> None:
        """Processor time that was spent before this schedule began."""
        self._budget.spend(seconds, now)

    def ask(self, request: int, key: bytes, now: float) -> None:
        """A request came; `key` names its module."""
        self._waiting.append(_Waiting(request, key, now))

    def withdraw(self, request: int) -> int:
        """Nobody waits for the answer any more: the job to be ended, 0 when it has none."""
        self._waiting = [w for w in self._waiting if w.request != request]
        for job in self._jobs.values():
            if job.request is not None and job.request.request == request:
                del self._jobs[job.number]
                return job.number
        return 0

    def measured(self, job: int, spent: float, now: float) -> None:
        """The processor time that a job has taken so far."""
        found = self._jobs.get(job)
        if found is not None and spent > found.spent:
            self._budget.spend(spent - found.spent, now)
            found.spent = spent

    def answered(self, job: int, now: float) -> None:
        """A job has answered its request and can have another."""
        found = self._jobs[job]
        found.request, found.used_at = None, now
        found.served += 1

    def died(self, job: int) -> bool:
        """A job ended without an answer.  True if its request is tried once more: the job had
        answered others before, which leave memory behind, so a new one may do better.
        """
        found = self._jobs.pop(job)
        again = found.request is not None and found.served > 0
        if again and found.request is not None:
            self._waiting.insert(0, found.request)
        return again

    def failed(self, job: int) -> None:
        """A job could not be started; its request is answered."""
        del self._jobs[job]

    def retire(self) -> list[int]:
        """Nobody is there to ask again: the jobs to be ended, which work on nothing."""
        idle = [job.number for job in self._jobs.values() if job.request is None]
        for number in idle:
            del self._jobs[number]
        return idle

    # --- what to do -------------------------------------------------------------------------------
    def busy(self) -> list[int]:
        """Jobs that work on a request."""
        return [job.number for job in self._jobs.values() if job.request is not None]

    def decide(self, now: float) -> list[Decision]:
        """Everything that is to be done now; it counts as done."""
        made = self._overdue(now)
        over = self._budget.level(now) <= 0
        if over:
            made += self._slow_down()
        while self._waiting:
            placed = self._place(self._waiting[0], over)
            if not placed:
                break
            del self._waiting[0]
            made += placed
        return made

    def wake(self, now: float) -> float | None:
        """Seconds until `decide` may have something to do although nothing happened."""
        busy = [job for job in self._jobs.values() if job.request is not None]
        waits = [w.since + self._bounds.wall_seconds - now for w in self._waiting]
        for job in busy:
            assert job.request is not None
            waits.append(job.request.since + self._bounds.wall_seconds - now)
            # A job has one thread: it cannot spend time faster than time goes by.
            waits.append(self._bounds.request_seconds - (job.spent - job.began))
        level = self._budget.level(now)
        if busy and level > 0:
            waits.append(level / len(busy))
        return max(min(waits), _SOONEST_SECONDS) if waits else None

    def _overdue(self, now: float) -> list[Decision]:
        bounds = self._bounds
        made: list[Decision] = []
        for job in list(self._jobs.values()):
            if job.request is None:
                continue
            spent = job.spent - job.began
            sentence = ""
            if spent >= bounds.request_seconds:
                sentence = (
                    f"compiling took more than {bounds.request_seconds:g} s of processor time: "
                    "make the kernel smaller"
                )
            elif now - job.request.since >= bounds.wall_seconds:
                sentence = (
                    f"after {bounds.wall_seconds:g} s the compiler had been given {spent:.1f} s of "
                    "processor time and was not done: the server is overloaded or its compiler was "
                    "stopped; try again later"
                )
            if sentence:
                del self._jobs[job.number]
                made.append(Refuse(job.request.request, job.number, sentence))
        for waiting in [w for w in self._waiting if now - w.since >= bounds.wall_seconds]:
            self._waiting.remove(waiting)
            sentence = (
                f"the request waited {bounds.wall_seconds:g} s for other compilations of the same "
                f"tenant, of which {bounds.processes} run at a time: compile less at once"
            )
            made.append(Refuse(waiting.request, 0, sentence))
        return made

    def _slow_down(self) -> list[Decision]:
        made: list[Decision] = []
        for job in self._jobs.values():
            if job.request is not None and not job.slow:
                job.slow = True
                made.append(Slow(job.number))
        return made

    def _place(self, waiting: _Waiting, over: bool) -> list[Decision]:
        bounds = self._bounds
        if len(self.busy()) >= (1 if over else bounds.processes):
            return []
        idle = sorted(
            (job for job in self._jobs.values() if job.request is None), key=lambda job: job.used_at
        )
        own = next((job for job in idle if job.key == waiting.key and waiting.key), None)
        # The kernel lets no process without rights leave the idle class: a new one takes its place.
        if own is not None and (over or not own.slow) and self._lasts(own):
            own.request, own.began = waiting, own.spent
            return [Give(waiting.request, own.number), *(self._slow_down() if over else [])]
        instead = own
        if instead is None and len(self._jobs) >= bounds.processes:
            instead = idle[0]
        if instead is not None:
            del self._jobs[instead.number]
        self._last_job += 1
        self._jobs[self._last_job] = _Job(self._last_job, waiting.key, over, waiting)
        number = instead.number if instead is not None else 0
        return [Start(waiting.request, self._last_job, number, over)]

    def _lasts(self, job: _Job) -> bool:
        left = self._bounds.job_seconds - job.spent
        return job.served < MAX_SERVED and left >= 2 * self._bounds.request_seconds
