"""The loop goes first, but never takes a processor away."""

from __future__ import annotations

import os

from helpers.waiting import wait_until

from rgpu_server.tokens.priority import Priority
from tokens.harness import Loop

MS = 1_000_000


class Machine:
    """Records the requests. used_ns: the loop's own processor time."""

    def __init__(self) -> None:
        self.used_ns = 0
        self.asked: list[bool] = []
        self.now = 0
        self.priority = Priority(self.asked.append, lambda: self.used_ns)

    def pass_tick(self, used_ms: int) -> None:
        self.now += 100 * MS
        self.used_ns += used_ms * MS
        self.priority.tick(self.now)


def test_a_loop_that_uses_little_is_urgent() -> None:
    machine = Machine()
    for _ in range(5):
        machine.pass_tick(3)
    assert machine.asked == [True]


def test_a_loop_that_is_kept_busy_is_not_until_it_calms_down() -> None:
    machine = Machine()
    for used in (3, 3, 80, 90, 3, 3):
        machine.pass_tick(used)
    assert machine.asked == [True, False, True]


def test_the_process_asks_the_kernel_and_goes_on_where_it_may_not() -> None:
    with Loop() as loop:
        assert loop.process is not None
        pid = loop.process.pid
        if os.geteuid() == 0:
            wait_until(lambda: os.sched_getscheduler(pid) in (os.SCHED_RR, os.SCHED_OTHER))
        worker = loop.worker(loop.lease("a"), "short")
        worker.tell()
        worker.hears("granted")
