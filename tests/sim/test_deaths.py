"""Deaths, silence, resizes and clocks that jump, on a simulated device."""

from __future__ import annotations

import random

import pytest

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from sim.device import Costs, Device
from sim.loads import Saturated, mixed
from sim.measures import share_error, used, utilisation
from sim.runs import MS, SECOND, fraction
from sim.worker import Worker


def pair(kernel: int = 2 * MS, costs: Costs | None = None) -> tuple[Device, Worker, Worker]:
    device = Device(None, costs)
    first = device.add("first", fraction(0.5), Saturated(kernel))
    second = device.add("second", fraction(0.5), Saturated(2 * MS))
    return device, first, second


def until_holding(device: Device, worker: Worker) -> None:
    """Runs on until the worker has a kernel on the device."""
    for _ in range(100_000):
        if worker.holding and worker.flight:
            return
        device.run(device.now + 200_000)
    raise AssertionError("never held the token")


def test_a_worker_that_dies_while_it_holds_is_fenced_and_the_other_goes_on() -> None:
    device, first, second = pair(250 * MS)
    device.run(SECOND)
    until_holding(device, first)
    device.log = []
    first.kill()
    assert [a for _, a in device.log] == [do.Fence("first", first.gen)]
    died = device.now
    device.run(died + 4 * MS)
    assert not any(isinstance(a, do.Grant) for _, a in device.log)
    device.run(died + SECOND)
    assert used(second, died // (100 * MS) * 100 * MS + 100 * MS, died // MS * MS) == 0
    begin = (died // (100 * MS) + 1) * 100 * MS
    assert utilisation([second], begin, begin + 500 * MS) >= 0.99


def test_dying_over_and_over_gains_nothing() -> None:
    """The lease is charged for the work of its dead processes, so the other lease keeps
    its half.
    """
    device, first, second = pair(100 * MS)
    rng = random.Random(5)
    while device.now < 20 * SECOND:
        device.run(device.now + rng.randrange(50 * MS, 400 * MS))
        if first.flight:
            first.kill()
            device.run(device.now + 10 * MS)
            first.revive()
    assert used(second, SECOND, 20 * SECOND) / (19 * SECOND) >= 0.5 - 0.02
    assert device.counts["Fence"] > 10


def test_a_late_return_after_a_fence_is_audited_and_charged_once() -> None:
    device, first, second = pair()
    device.run(SECOND)
    until_holding(device, first)
    gen = first.gen
    device.tell(on.Lost("first", gen))
    before = device.scheduler.charged_ns
    late = on.Returned("first", gen, 50 * MS, 50 * MS, False)
    assert device.tell(late) == [do.Audit("first", gen, 50 * MS)]
    assert device.scheduler.charged_ns == before
    device.run(device.now + 50 * MS)
    assert device.tell(late)[0] == do.Audit("first", gen, 50 * MS)
    assert second.holding


def test_a_silent_holder_is_fenced_and_only_then_replaced() -> None:
    device, first, _ = pair()
    device.run(SECOND)
    until_holding(device, first)
    first.silent = True
    start = device.now
    device.log = []
    device.run(start + 3 * SECOND)
    names = [(type(a).__name__, a.lease) for _, a in device.log if not isinstance(a, do.TimerAt)]
    interesting = [name for name in names if name[0] in ("CheckAlive", "Fence", "Grant")]
    assert interesting[:3] == [("CheckAlive", "first"), ("Fence", "first"), ("Grant", "second")]
    fenced = next(t for t, a in device.log if isinstance(a, do.Fence))
    granted = next(t for t, a in device.log if isinstance(a, do.Grant))
    assert granted >= fenced + device.costs.fence
    assert fenced - start <= 2100 * MS


def test_a_supervisor_that_says_nothing_does_not_block_the_device() -> None:
    device, first, second = pair()
    device.answers_checks = False
    device.run(SECOND)
    until_holding(device, first)
    first.silent = True
    start = device.now
    device.run(start + 5 * SECOND)
    assert device.counts["Fence"] == 1
    assert second.holding


def test_a_kernel_of_five_seconds_is_waited_for_and_charged() -> None:
    device = Device()
    long = device.add("long", fraction(0.5), Saturated(5 * SECOND))
    short = device.add("short", fraction(0.5), Saturated(2 * MS))
    device.run(60 * SECOND)
    assert device.counts["CheckAlive"] > 3
    assert "Fence" not in device.counts
    assert used(long, 0, 60 * SECOND) / (60 * SECOND) == pytest.approx(0.5, abs=0.09)
    assert used(short, 0, 60 * SECOND) / (60 * SECOND) == pytest.approx(0.5, abs=0.09)


def test_a_kernel_that_never_ends_is_fenced_at_the_drain_limit() -> None:
    device = Device()
    device.add("endless", fraction(0.5), Saturated(10_000 * SECOND))
    short = device.add("short", fraction(0.5), Saturated(2 * MS))
    device.run(66 * SECOND)
    assert device.counts["Fence"] == 1
    assert utilisation([short], 62 * SECOND, 66 * SECOND) >= 0.99


def test_whatever_the_order_of_deaths_the_survivors_get_their_shares() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        device = Device()
        workers = [
            device.add(f"lease-{n}", fraction(0.2), Saturated(mixed(n, MS // 10, 40 * MS)))
            for n in range(5)
        ]
        for _ in range(40):
            device.run(device.now + rng.randrange(1, 80 * MS))
            victim = rng.choice(workers[1:])
            if victim.dead:
                victim.revive()
            else:
                victim.kill()
        for worker in workers:
            if worker.dead:
                device.run(device.now + 10 * MS)
                worker.revive()
        begin = (device.now // (100 * MS) + 10) * 100 * MS
        device.run(begin + 10 * SECOND)
        for worker in workers:
            assert share_error(worker, 0.2, begin, begin + 10 * SECOND, 10 * SECOND) <= 2


# Resize


def test_a_resize_is_in_force_within_a_slice() -> None:
    device, first, second = pair()
    device.run(2 * SECOND)
    device.tell(on.Resized("first", fraction(0.2)))
    device.tell(on.Resized("second", fraction(0.8)))
    device.run(5 * SECOND)
    assert share_error(first, 0.2, 2100 * MS, 5 * SECOND, SECOND) <= 2
    assert share_error(second, 0.8, 2100 * MS, 5 * SECOND, SECOND) <= 2


def test_a_resize_down_does_not_shed_a_debt_and_up_does_not_grow_it() -> None:
    for part in (0.05, 0.6):
        device = Device()
        debtor = device.add("debtor", fraction(0.2), Saturated(250 * MS))
        other = device.add("other", fraction(0.4), Saturated(2 * MS))
        device.run(2 * SECOND)
        until_holding(device, debtor)
        device.run(device.now + 250 * MS)
        before = device.scheduler.usage("debtor")
        device.tell(on.Resized("debtor", fraction(part)))
        after = device.scheduler.usage("debtor")
        assert before is not None
        assert after is not None
        assert after.owed_ns == pytest.approx(before.owed_ns, abs=MS)
        assert other.kernels > 0


def test_a_cap_put_on_a_running_lease_holds_at_once() -> None:
    device = Device()
    worker = device.add("alone", fraction(0.1), Saturated(2 * MS))
    device.run(SECOND)
    device.tell(on.Resized("alone", fraction(0.1, 0.3)))
    device.run(4 * SECOND)
    assert share_error(worker, 0.3, 1100 * MS, 4 * SECOND, SECOND) <= 3


def test_pause_stops_a_lease_and_resume_gives_no_more_than_the_sleep_credit() -> None:
    device, first, second = pair()
    device.run(2 * SECOND)
    device.tell(on.Paused("first"))
    device.run(5 * SECOND)
    assert used(first, 2100 * MS, 5 * SECOND) == 0
    assert utilisation([second], 2100 * MS, 5 * SECOND) >= 0.99
    device.tell(on.Resumed("first"))
    device.run(8 * SECOND)
    assert used(first, 5 * SECOND, 6 * SECOND) <= 0.5 * SECOND + 70 * MS
    assert share_error(first, 0.5, 6 * SECOND, 8 * SECOND, SECOND) <= 1


# A clock that jumps


@pytest.mark.parametrize("jump", [-3600 * SECOND, 3600 * SECOND, -20 * MS, 7 * SECOND])
def test_a_clock_that_jumps_takes_nothing_from_anybody(jump: int) -> None:
    device = Device()
    a = device.add("a", fraction(0.3, 0.3), Saturated(2 * MS))
    b = device.add("b", fraction(0.5), Saturated(2 * MS))
    sleeper = device.add("sleeper", fraction(0.2), Saturated(2 * MS, [(SECOND, 4 * SECOND)]))
    device.run(2 * SECOND)
    device.clock_offset += jump
    device.run(9 * SECOND)
    assert used(a, 2 * SECOND, 5 * SECOND) / (3 * SECOND) <= 0.3 + 0.03
    assert sleeper.waits[-1] <= 20 * MS
    for worker, share in ((a, 0.3), (b, 0.5), (sleeper, 0.2)):
        assert share_error(worker, share, 5 * SECOND, 9 * SECOND, SECOND) <= 2
