"""How long a lease waits when it wakes, and what that costs the leases that borrowed its share."""

from __future__ import annotations

import pytest

from rgpu_server.core.tokens.params import TokenParams
from sim.device import Costs, Device
from sim.loads import Bursty, Saturated
from sim.measures import longest_gap, percentile, share_error, used, utilisation
from sim.runs import MS, SECOND, US, fraction


def sleeps(count: int) -> list[tuple[int, int]]:
    """Half a second of sleep a second, at phases that differ."""
    return [
        (n * SECOND + 500 * MS + n * 37 % 100 * MS, (n + 1) * SECOND + n * 53 % 100 * MS + 9 * MS)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("kernel", "median", "worst", "gap"),
    [(500 * US, 5.0, 5.2, 70), (2 * MS, 3.2, 4.2, 70), (250 * MS, 160, 250, 500)],
)
def test_a_lender_that_wakes_gets_its_share_back(
    kernel: int, median: float, worst: float, gap: float
) -> None:
    device = Device()
    lender = device.add("lender", fraction(0.5), Saturated(2 * MS, sleeps(20)))
    borrower = device.add("borrower", fraction(0.5), Saturated(kernel))
    device.run(20 * SECOND)
    assert len(lender.waits) >= 20
    # First service within the least hold, what is in flight, and two hand-overs.
    assert max(lender.waits) <= 5 * MS + max(kernel, 5 * MS + kernel) + 200 * US
    assert percentile(lender.waits, 0.5) <= median * MS
    assert max(lender.waits) <= worst * MS
    assert longest_gap(borrower, SECOND) <= gap * MS


def test_a_lent_share_is_back_within_a_tenth_of_a_second() -> None:
    device = Device()
    lender = device.add("lender", fraction(0.5), Saturated(2 * MS, [(0, 5 * SECOND)]))
    device.add("borrower", fraction(0.5), Saturated(2 * MS))
    device.run(7 * SECOND)
    # One-sided, for every x: what it got after waking is at least r * (x - 100 ms - k) - L.
    for tenths in range(1, 20):
        x = tenths * 100 * MS
        least = 0.5 * (x - 102 * MS) - 12.5 * MS
        assert used(lender, 5 * SECOND, 5 * SECOND + x) >= least


@pytest.mark.parametrize(("request_", "p50", "p99"), [(0.4, 34, 37), (0.5, 34, 37)])
def test_bursts_run_at_full_speed(request_: float, p50: float, p99: float) -> None:
    device = Device()
    load = Bursty(2 * MS, 15, 100 * MS, first=13 * MS)
    device.add("bursty", fraction(request_), load)
    device.add("background", fraction(1 - request_), Saturated(2 * MS))
    device.run(20 * SECOND)
    assert percentile(load.times[5:], 0.5) <= p50 * MS
    assert percentile(load.times[5:], 0.99) <= p99 * MS


def test_a_joiner_does_not_stop_the_others() -> None:
    device = Device()
    old = [device.add(f"old-{n}", fraction(0.25), Saturated(2 * MS)) for n in range(3)]
    device.add("joiner", fraction(0.25), Saturated(2 * MS), at=60 * SECOND)
    device.run(64 * SECOND)
    assert max(longest_gap(worker, 60 * SECOND) for worker in old) <= 54 * MS
    for worker in device.workers.values():
        assert share_error(worker, 0.25, 61 * SECOND, 64 * SECOND, SECOND) <= 1


def test_a_sleeper_is_not_lost_when_hand_overs_cost_a_tenth() -> None:
    params = TokenParams(slice_base_ns=2 * MS, slice_min_ns=2 * MS, slice_max_ns=2 * MS)
    device = Device(params, Costs(handover=200 * US, overlap=False))
    load = Saturated(2 * MS, [(29 * SECOND, 29 * SECOND + 500 * MS)])
    sleeper = device.add("sleeper", fraction(0.2), load)
    for n in range(2):
        device.add(f"busy-{n}", fraction(0.4), Saturated(2 * MS))
    device.run(40 * SECOND)
    assert utilisation(device.workers.values(), SECOND, 29 * SECOND) <= 0.93
    assert sleeper.waits[-1] <= 6 * MS
    assert used(sleeper, 30 * SECOND, 40 * SECOND) / (10 * SECOND) >= 0.175


def test_on_and_off_at_random_never_falls_below_the_request() -> None:
    import random

    for seed in range(6):
        rng = random.Random(seed)
        device = Device()
        steady = device.add("steady", fraction(0.3), Saturated(2 * MS))
        for n, share in enumerate((0.3, 0.4)):
            pauses, time = [], 0
            while time < 6 * SECOND:
                start = time + rng.randrange(5 * MS, 300 * MS)
                time = start + rng.randrange(5 * MS, 300 * MS)
                pauses.append((start, time))
            device.add(f"other-{n}", fraction(share), Saturated(rng.choice([MS, 8 * MS]), pauses))
        device.run(6 * SECOND)
        # W(T) >= r T - (1 - r) Tc - sum of the others' L - own L, over every second.
        slack = 0.7 * 100 * MS + 3 * 15 * MS
        for start in range(5 * SECOND // (100 * MS)):
            begin = start * 100 * MS
            assert used(steady, begin, begin + SECOND) >= 0.3 * SECOND - slack
