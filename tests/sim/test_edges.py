"""Edge cases that have bitten a scheduler of this kind, each by name, and the rule that answers."""

from __future__ import annotations

import pytest

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.scheduler import TokenScheduler
from sim.device import Costs, Device
from sim.loads import Bursty, Saturated, Syncing
from sim.measures import longest_gap, percentile, share_error, split_errors, used, utilisation
from sim.runs import MS, SECOND, US, fraction, saturated, solo

END = 5 * SECOND


def beside_a_saturated_half(load: Syncing, costs: Costs | None = None) -> tuple[float, float]:
    """Returns the device time of a lease with half the device, and of its neighbour that is never
    idle.
    """
    device = Device(None, costs)
    own = device.add("own", fraction(0.5), load)
    other = device.add("other", fraction(0.5), Saturated(2 * MS))
    device.run(END)
    span = END - SECOND
    return used(own, SECOND, END) / span, used(other, SECOND, END) / span


@pytest.mark.parametrize(
    ("kernel", "gap"), [(20 * US, 50 * US), (200 * US, 50 * US), (2 * MS, 50 * US)]
)
def test_a_syncing_tenant_gets_half_of_its_solo_rate(kernel: int, gap: int) -> None:
    alone = used(solo(fraction(0.5), Syncing(kernel, gap), 3), SECOND, 3 * SECOND) / (2 * SECOND)
    own, other = beside_a_saturated_half(Syncing(kernel, gap))
    assert own >= 0.47 * alone
    # Its gaps are its own time: the neighbour keeps its half.
    assert other >= 0.49


def test_a_gap_longer_than_the_grace_lends_the_gap_to_others() -> None:
    own, other = beside_a_saturated_half(Syncing(2 * MS, 1 * MS))
    assert own >= 0.31
    assert other >= 0.62
    assert own + other >= 0.94


def test_a_gap_close_to_the_grace_does_not_end_slices_by_an_old_timer() -> None:
    alone = used(solo(fraction(0.5), Syncing(100 * US, 150 * US), 3), SECOND, 3 * SECOND)
    own, other = beside_a_saturated_half(Syncing(100 * US, 150 * US))
    assert own >= 0.45 * alone / (2 * SECOND)
    assert other >= 0.48


def test_a_tenant_at_its_cap_is_not_fed_one_kernel_at_a_time() -> None:
    for limit in (0.1, 0.3, 0.5, 0.9):
        worker = solo(fraction(0.05, limit), Saturated(20 * US), 1)
        counts = worker.device.counts
        assert counts["Grant"] + counts.get("Extend", 0) <= 1100


def test_capped_leases_leave_the_surplus_to_the_others() -> None:
    shares = [fraction(0.1, 0.2, 100), fraction(0.1)]
    capped, elastic = saturated(shares, [2 * MS] * 2, 5)
    assert used(capped, SECOND, END) / (4 * SECOND) == pytest.approx(0.2, abs=0.01)
    assert used(elastic, SECOND, END) / (4 * SECOND) == pytest.approx(0.8, abs=0.01)


def test_all_at_their_caps_leave_the_device_idle() -> None:
    workers = saturated([fraction(0.2, 0.2), fraction(0.3, 0.3)], [2 * MS] * 2, 5)
    assert utilisation(workers, SECOND, END) == pytest.approx(0.5, abs=0.01)


def test_cap_credit_earned_during_a_long_kernel_is_not_clipped() -> None:
    worker = solo(fraction(0.05, 0.5), Saturated(250 * MS), 22)
    assert share_error(worker, 0.5, 2 * SECOND, 22 * SECOND, 10 * SECOND) <= 1.5


def test_credit_of_the_backlogged_is_not_clipped() -> None:
    workers = saturated([0.5, 0.5], [250 * MS, 2 * MS], 22)
    errors = split_errors(workers, [0.5, 0.5], 2 * SECOND, 22 * SECOND, 10 * SECOND)
    assert max(errors) <= 2.6


def test_hand_over_time_does_not_make_the_tags_lag() -> None:
    """Tags in wall time would lag by the hand-over time, and a lease that sleeps for a moment would
    wait for that.
    """
    costs = Costs(handover=200 * US, overlap=False)
    params = TokenParams(slice_base_ns=2 * MS, slice_min_ns=2 * MS, slice_max_ns=2 * MS)
    device = Device(params, costs)
    load = Saturated(2 * MS, [(10 * SECOND, 10 * SECOND + 300 * MS)])
    sleeper = device.add("sleeper", fraction(0.5), load)
    device.add("other", fraction(0.5), Saturated(2 * MS))
    device.run(12 * SECOND)
    assert sleeper.waits[-1] <= 6 * MS


def test_stale_queue_entries_are_bounded() -> None:
    """All picks by request: every grant leaves an old entry in the queue of surplus."""
    tokens = TokenScheduler()
    for lease in ("a", "b"):
        tokens.handle(on.Joined(lease, fraction(0.5)), 0)
        tokens.handle(on.Woke(lease), 0)
    holder, gen = "a", 1
    largest = 0
    for n in range(1, 20_001):
        back = on.Returned(holder, gen, 10 * MS, 10 * MS, False)
        for action in tokens.handle(back, n * 10 * MS):
            if isinstance(action, do.Grant):
                holder, gen = action.lease, action.gen
        largest = max(largest, tokens.queued_entries)
    assert largest <= 2 * (2 * 2 + 65)


def test_equal_deficits_starve_nobody() -> None:
    workers = saturated([0.005] * 200, [2 * MS] * 200, 3)
    assert min(worker.kernels for worker in workers) > 0
    got = [used(worker, 0, 3 * SECOND) for worker in workers]
    assert max(got) <= 2 * min(got) + 10 * MS


def test_an_extension_is_decided_at_the_return_not_before() -> None:
    """With one kernel of 250 ms in flight a waker waits for that one, never for two."""
    device = Device()
    pauses = [(n * SECOND + 300 * MS, n * SECOND + 700 * MS + n * 61 % 200 * MS) for n in range(12)]
    waker = device.add("waker", fraction(0.5), Saturated(2 * MS, pauses))
    device.add("long", fraction(0.4), Saturated(250 * MS))
    device.add("other", fraction(0.1), Saturated(2 * MS))
    device.run(12 * SECOND)
    assert max(waker.waits) <= 256 * MS


@pytest.mark.parametrize("handover", [100 * US, 200 * US])
def test_a_frequent_waker_costs_the_device_little(handover: int) -> None:
    """The lease wakes for a short kernel each millisecond. Its gaps are learned, and the grace is
    skipped.
    """
    device = Device(None, Costs(handover=handover))
    device.add("waker", fraction(0.1), Syncing(20 * US, MS))
    device.add("other", fraction(0.9), Saturated(2 * MS))
    device.run(END)
    loss = 1 - utilisation(device.workers.values(), SECOND, END)
    assert loss <= (2 * handover + 100 * US) / (5 * MS)


def test_surplus_of_a_high_priority_does_not_starve_a_new_low_one() -> None:
    """The surplus clock of each priority is its own."""
    device = Device()
    high = Saturated(2 * MS, [(6 * SECOND, 60 * SECOND)])
    device.add("high", fraction(0.1, 1, 1, 5), high)
    old = device.add("old", fraction(0.1), Saturated(2 * MS))
    new = device.add("new", fraction(0.1), Saturated(2 * MS), at=5 * SECOND)
    device.run(10 * SECOND)
    assert used(new, 7 * SECOND, 10 * SECOND) == pytest.approx(
        used(old, 7 * SECOND, 10 * SECOND), rel=0.02
    )


def test_a_request_above_the_mean_load_serves_bursts_at_once() -> None:
    device = Device()
    load = Bursty(2 * MS, 15, 100 * MS, first=13 * MS)
    device.add("bursty", fraction(0.36), load)
    device.add("background", fraction(0.64), Saturated(2 * MS))
    device.run(12 * SECOND)
    assert percentile(load.times[10:], 0.5) <= 45 * MS


# A run until recall


def test_a_long_solo_run_is_neither_a_debt_nor_a_claim() -> None:
    device = Device()
    runner = device.add("runner", fraction(0.4), Saturated(2 * MS))
    waker = device.add("waker", fraction(0.4), Saturated(2 * MS, [(0, 10 * SECOND)]))
    device.run(20 * SECOND)
    given = ("Extend", "Grant", "Lengthen")
    assert sum(device.counts.get(name, 0) for name in given) <= 1100
    assert waker.waits[0] <= 9 * MS
    # The waker's credit, and no more.
    assert longest_gap(runner, 10 * SECOND) <= 80 * MS
    for worker in (runner, waker):
        assert share_error(worker, 0.5, 10_500 * MS, 20 * SECOND, SECOND) <= 1


def test_a_long_solo_run_at_a_fifth_of_the_device_is_no_claim_either() -> None:
    """Idle time inside the run must not count as time that the runner was kept from working."""
    device = Device()
    runner = device.add("runner", fraction(0.4), Syncing(1 * MS, 4 * MS))
    waker = device.add("waker", fraction(0.6), Saturated(2 * MS, [(0, 10 * SECOND)]))
    device.run(12 * SECOND)
    assert runner.device.counts["Grant"] > 2
    assert waker.waits[0] <= 6 * MS
    assert used(waker, 10 * SECOND, 11 * SECOND) >= 0.6 * SECOND


def test_a_best_effort_waker_ends_a_solo_run() -> None:
    device = Device()
    device.add("runner", fraction(0.5), Saturated(2 * MS))
    poor = device.add("poor", fraction(0), Saturated(2 * MS, [(0, 3 * SECOND)]))
    device.run(6 * SECOND)
    # All that is not requested is shared by weight.
    assert used(poor, 4 * SECOND, 6 * SECOND) / (2 * SECOND) == pytest.approx(0.25, abs=0.02)


# Slices that follow the bursts, and the number of leases


def test_slices_follow_bursts_within_their_clamp() -> None:
    device = Device()
    device.log = []
    device.add("short", fraction(0.3), Bursty(MS, 6, 50 * MS))
    device.add("long", fraction(0.3), Bursty(MS, 40, 200 * MS))
    device.add("rare", fraction(0.2), Bursty(200 * MS, 1, 700 * MS))
    device.add("always", fraction(0.2), Saturated(2 * MS))
    device.run(6 * SECOND)
    last = {a.lease: a.slice_ns for _, a in device.log if isinstance(a, do.Grant)}
    assert 5 * MS <= last["short"] <= 7 * MS
    assert last["long"] == 25 * MS
    assert last["rare"] <= 25 * MS
    assert last["always"] == pytest.approx(10 * MS, rel=0.01)
    assert all(
        5 * MS <= a.slice_ns <= 25 * MS
        for _, a in device.log
        if isinstance(a, do.Grant | do.Extend)
    )


def test_slices_shrink_with_the_crowd() -> None:
    device = Device()
    device.log = []
    for n in range(150):
        device.add(f"lease-{n}", fraction(0.005), Saturated(MS))
    device.run(SECOND)
    slices = [a.slice_ns for _, a in device.log if isinstance(a, do.Grant)]
    assert slices[-1] == pytest.approx(SECOND / 150, rel=0.02)
