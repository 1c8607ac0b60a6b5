"""Decides which process works on which request of a tenant, and when a process must end.

Pure: the caller says what happened and when, and carries out the decisions of `decide`. A *job* is
a process that has one module linked and works on one request at a time. It is kept for the next
request about its module as long as there is room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The most requests of one job. The code generator leaves some memory behind with each.
MAX_SERVED: Final = 128
# The processor time of a job's whole life, in limits of one request. The kernel ends the process
# beyond that.
LIFETIME_REQUESTS: Final = 8
_SOONEST_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Bounds:
    """The bounds of one tenant's compiler.

    Attributes:
        processes: the most jobs at a time, including those that are kept for their modules.
        request_seconds: processor time of one request.
        wall_seconds: time of one request, including waiting, however little processor time it got.
        burst_seconds: processor time at ordinary priority. Beyond it only one job at a time runs,
            and
            only when the machine has nothing else to do.
        refill: how fast the burst fills again, in processors.
    """

    processes: int = 2
    request_seconds: float = 60.0
    wall_seconds: float = 600.0
    burst_seconds: float = 300.0
    refill: float = 0.25

    @property
    def job_seconds(self) -> float:
        """Processor time of one job for all its requests together."""
        return LIFETIME_REQUESTS * self.request_seconds


@dataclass(frozen=True)
class Start:
    """Start a job for a request. First end job `instead`, which is idle (0: none)."""

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
    """Let the job run only when the machine has nothing else to do."""

    job: int


@dataclass(frozen=True)
class Refuse:
    """Refuse a request with this sentence, and end its job (0: it has none)."""

    request: int
    job: int
    sentence: str


Decision = Start | Give | Slow | Refuse


class Budget:
    """A budget of processor seconds that fills again with time. level: what is left now; None: all
    of it.
    """

    def __init__(self, burst: float, refill: float, now: float, level: float | None = None) -> None:
        self._burst, self._refill = burst, refill
        self._level, self._at = burst if level is None else level, now

    def spend(self, seconds: float, now: float) -> None:
        # The debt is limited to a fifth of the burst, so that it is paid back soon.
        self._level = max(self.level(now) - seconds, -self._burst / 5)
        self._at = now

    def level(self, now: float) -> float:
        return min(self._burst, self._level + (now - self._at) * self._refill)


class Debts:
    """Remembers how much tenants had overspent when their compiler ended. The next compiler of the
    tenant starts with that debt.
    """

    def __init__(self, refill: float = Bounds.refill, most: int = 1024) -> None:
        self._refill, self._most = refill, most
        self._known: dict[str, tuple[float, float]] = {}

    def keep(self, tenant: str, spent: float, seconds: float, now: float) -> None:
        """Notes a debt. spent: the processor time within the last `seconds`, and the debt before
        that.
        """
        debt = spent - self._refill * seconds
        if debt > 0:
            while len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[tenant] = (debt, now)

    def take(self, tenant: str, now: float) -> float:
        """Returns the rest of a tenant's debt, and forgets it: the caller passes it to the new
        compiler.
        """
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
    # None: the job is idle and kept for its module.
    request: _Waiting | None
    # spent: processor time of the process as last measured. began: the same at the start of the
    # request.
    spent: float = 0.0
    began: float = 0.0
    served: int = 0
    used_at: float = 0.0


class Schedule:
    """The requests and jobs of one compiler. Times are seconds of one monotonic clock."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        self._bounds = bounds
        self._budget = Budget(bounds.burst_seconds, bounds.refill, now)
        self._waiting: list[_Waiting] = []
        self._jobs: dict[int, _Job] = {}
        self._last_job = 0

    # --- what happened ----------------------------------------------------------------------------
    def owe(self, seconds: float, now: float) -> None:
        """Charges processor time that was spent before this schedule began."""
        self._budget.spend(seconds, now)

    def ask(self, request: int, key: bytes, now: float) -> None:
        """Adds a request. `key` names its module."""
        self._waiting.append(_Waiting(request, key, now))

    def withdraw(self, request: int) -> int:
        """Removes a request whose client has gone. Returns the job to end; 0 if the request has
        none.
        """
        self._waiting = [w for w in self._waiting if w.request != request]
        for job in self._jobs.values():
            if job.request is not None and job.request.request == request:
                del self._jobs[job.number]
                return job.number
        return 0

    def measured(self, job: int, spent: float, now: float) -> None:
        """Notes the processor time that a job has used so far."""
        found = self._jobs.get(job)
        if found is not None and spent > found.spent:
            self._budget.spend(spent - found.spent, now)
            found.spent = spent

    def answered(self, job: int, now: float) -> None:
        """Notes that a job has answered its request and is idle."""
        found = self._jobs[job]
        found.request, found.used_at = None, now
        found.served += 1

    def died(self, job: int) -> bool:
        """Notes that a job ended without an answer. Returns True if its request is tried once more.

        That is so if the job had answered other requests. These leave memory behind, so a new job
        may succeed.
        """
        found = self._jobs.pop(job)
        again = found.request is not None and found.served > 0
        if again and found.request is not None:
            self._waiting.insert(0, found.request)
        return again

    def failed(self, job: int) -> None:
        """Removes a job that could not be started. The caller answers its request."""
        del self._jobs[job]

    def retire(self) -> list[int]:
        """Removes and returns the idle jobs, which the caller ends because no client is left."""
        idle = [job.number for job in self._jobs.values() if job.request is None]
        for number in idle:
            del self._jobs[number]
        return idle

    # --- what to do -------------------------------------------------------------------------------
    def busy(self) -> list[int]:
        """Returns the jobs that work on a request."""
        return [job.number for job in self._jobs.values() if job.request is not None]

    def decide(self, now: float) -> list[Decision]:
        """Returns all decisions that are due now, and takes them as carried out."""
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
        """Returns the seconds until `decide` may have a decision without another event; None if
        never.
        """
        busy = [job for job in self._jobs.values() if job.request is not None]
        waits = [w.since + self._bounds.wall_seconds - now for w in self._waiting]
        for job in busy:
            assert job.request is not None
            waits.append(job.request.since + self._bounds.wall_seconds - now)
            # A job has one thread, so its processor time grows at most as fast as time.
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
        # The kernel does not let a process without rights leave the idle class, so a new job
        # replaces it.
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
