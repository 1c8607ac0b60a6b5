"""One device: FIFO, kernels run to their end.  Carries out the scheduler's actions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share
from sim.loads import Load
from sim.worker import Worker

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
STEP = 100 * MS


@dataclass(frozen=True)
class Costs:
    """The costs of a device and its daemon.

    launch, notice: before and after a kernel. handover: from a Grant to the first release, or from
    a Prepare if there was one. message: one way between daemon and worker. fence: to end a worker.
    grace: how long a holder without work keeps the token; None is two hand-overs.
    """

    launch: int = 5 * US
    notice: int = 3 * US
    handover: int = 100 * US
    message: int = 20 * US
    fence: int = 5 * MS
    grace: int | None = None
    overlap: bool = True


class Device:
    """Time is ns from 0.  `run(until)` may be called again to go on."""

    def __init__(self, params: TokenParams | None = None, costs: Costs | None = None) -> None:
        self.costs = costs or Costs()
        self.scheduler = TokenScheduler(params)
        self.workers: dict[str, Worker] = {}
        self.now = 0
        self.clock_offset = 0
        self.free_at = 0
        self.user: Worker | None = None
        self.log: list[tuple[int, do.Action]] | None = None
        self.answers_checks = True
        self.counts: dict[str, int] = {}
        self._prepared: dict[str, int] = {}
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._carry = {
            do.Grant: self._grant,
            do.Extend: self._extend,
            do.Lengthen: self._lengthen,
            do.Recall: self._recall,
            do.Prepare: self._prepare,
            do.TimerAt: self._timer,
            do.Fence: self._fence,
            do.CheckAlive: self._check,
        }

    def add(self, lease: str, share: Share, load: Load, at: int = 0, payer: str = "") -> Worker:
        worker = Worker(self, lease, load)
        self.workers[lease] = worker
        self.at(at, self._start, worker, share, payer)
        return worker

    def _start(self, worker: Worker, share: Share, payer: str) -> None:
        self.tell(on.Joined(worker.lease, share, payer))
        worker.load.start(self, worker)

    def at(self, time: int, what: Callable[..., None], *args: Any) -> None:
        heappush(self._heap, (time, next(self._order), what, args))

    def run(self, until: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, what, args = heappop(heap)
            what(*args)
        self.now = until

    def tell(self, event: on.Event) -> list[do.Action]:
        """Hands an event to the scheduler and carries out the answer."""
        actions = self.scheduler.handle(event, self.now + self.clock_offset)
        for action in actions:
            name = type(action).__name__
            self.counts[name] = self.counts.get(name, 0) + 1
            if self.log is not None:
                self.log.append((self.now, action))
            carry = self._carry.get(type(action))
            if carry is not None:
                carry(action)
        return actions

    def _grant(self, action: do.Grant) -> None:
        costs = self.costs
        ready = self._prepared.pop(action.lease, self.now) + costs.handover
        if not costs.overlap:
            ready = self.now + costs.handover
        worker = self.workers[action.lease]
        self.at(
            max(ready, self.now), worker.granted, action.gen, action.slice_ns, action.until_recall
        )

    def _extend(self, action: do.Extend) -> None:
        worker = self.workers[action.lease]
        when = self.now + 2 * self.costs.message
        self.at(when, worker.extended, action.gen, action.slice_ns, action.until_recall)

    def _lengthen(self, action: do.Lengthen) -> None:
        worker = self.workers[action.lease]
        when = self.now + 2 * self.costs.message
        self.at(when, worker.lengthened, action.gen, worker.serial, action.slice_ns)

    def _recall(self, action: do.Recall) -> None:
        worker = self.workers[action.lease]
        when = self.now + self.costs.message
        self.at(when, worker.recalled, action.gen, action.at_ns - self.clock_offset)

    def _prepare(self, action: do.Prepare) -> None:
        self._prepared[action.lease] = self.now

    def _timer(self, action: do.TimerAt) -> None:
        self.at(max(self.now, action.at_ns - self.clock_offset), self._wake, action.at_ns)

    def _wake(self, at_ns: int) -> None:
        """A timer of before the clock jumped is dropped."""
        due = self.scheduler.next_wake()
        if due is not None and min(due, at_ns) <= self.now + self.clock_offset:
            self.tell(on.TimePassed())

    def _fence(self, action: do.Fence) -> None:
        worker = self.workers[action.lease]
        worker.fenced()
        gone = self.now + self.costs.fence
        self.at(gone, self._fence_done, worker, action.gen)

    def _fence_done(self, worker: Worker, gen: int) -> None:
        if self.user is worker:
            worker.stop_kernels()
        self.tell(on.Fenced(worker.lease, gen))

    def _check(self, action: do.CheckAlive) -> None:
        worker = self.workers[action.lease]
        if self.answers_checks:
            answer = on.Lost if worker.silent else on.Alive
            self.at(self.now + self.costs.message, self.tell, answer(action.lease, action.gen))

    # The hardware

    def launch(self, worker: Worker, duration: int) -> tuple[int, int]:
        """Queues a kernel; returns when it begins and when it ends."""
        start = max(self.now + self.costs.launch, self.free_at)
        if self.user is not worker:
            assert self.free_at <= self.now, f"{worker.lease} released beside {self.user}"
            self.user = worker
        self.free_at = start + duration
        return start, self.free_at
