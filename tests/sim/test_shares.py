"""Shares, caps and surplus over ten seconds, against the bounds of the scheduler's DESIGN.md."""

from __future__ import annotations

import random

import pytest

from sim.device import Costs
from sim.loads import Saturated, mixed
from sim.measures import (
    jain,
    longest_gap,
    share_bound,
    share_error,
    split_errors,
    used,
    utilisation,
)
from sim.runs import MS, SECOND, US, fraction, saturated, solo

TEN = 10 * SECOND
WARM = 2 * SECOND


@pytest.mark.parametrize(
    ("shares", "kernel", "seconds", "ten", "one"),
    [
        # The last two: what may be seen, in percentage points, over 10 s and over 1 s.
        ([0.5, 0.5], 2 * MS, 14, 0.1, 0.3),
        ([0.3, 0.7], 2 * MS, 14, 0.1, 0.3),
        ([0.1, 0.9], 2 * MS, 14, 0.1, 0.5),
        ([0.25, 0.25, 0.5], 2 * MS, 14, 0.1, 0.3),
        ([0.3, 0.7], 50 * US, 13, 0.1, 1.0),
        ([0.3, 0.7], 250 * MS, 34, 2.5, 20.0),
        ([0.1, 0.9], 250 * MS, 34, 2.5, 15.1),
    ],
)
def test_saturated_leases_get_their_shares(
    shares: list[float], kernel: int, seconds: int, ten: float, one: float
) -> None:
    workers = saturated(shares, [kernel] * len(shares), seconds)
    others = [kernel] * (len(shares) - 1)
    errors = split_errors(workers, shares, WARM, seconds * SECOND, TEN)
    for error, share in zip(errors, shares, strict=True):
        assert error <= min(ten, share_bound(share, kernel, others, TEN))
    assert max(split_errors(workers, shares, WARM, seconds * SECOND, SECOND)) <= one
    ratios = [used(w, WARM, WARM + TEN) / s for w, s in zip(workers, shares, strict=True)]
    assert jain(ratios) >= (0.99 if kernel < 100 * MS else 0.98)
    assert utilisation(workers, WARM, WARM + TEN) >= 0.98


def test_long_kernels_beside_short_ones_do_not_distort_shares() -> None:
    long, short = saturated([0.1, 0.9], [250 * MS, 2 * MS], 34)
    assert share_error(long, 0.1, WARM, 34 * SECOND, TEN) <= 2
    assert share_error(short, 0.9, WARM, 34 * SECOND, TEN) <= 2


def test_unpredictable_kernels_are_charged_as_they_are() -> None:
    kernels = [mixed(1, 50 * US, 200 * MS), 2 * MS]
    for worker in saturated([0.5, 0.5], kernels, 34):
        assert share_error(worker, 0.5, WARM, 34 * SECOND, TEN) <= 2


def test_two_hundred_leases_each_get_their_half_percent() -> None:
    workers = saturated([0.005] * 200, [2 * MS] * 200, 14)
    got = [used(w, WARM, WARM + TEN) / (0.005 * TEN) for w in workers]
    assert jain(got) >= 0.99
    assert max(abs(ratio - 1) for ratio in got) <= 0.10
    assert utilisation(workers, WARM, WARM + TEN) >= 0.98


@pytest.mark.parametrize("seed", range(40))
def test_random_pairs_stay_within_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    kernels = [int(200 * US * 1500 ** rng.random()) for _ in range(2)]
    first = rng.uniform(0.1, 0.7)
    shares = [first, 1 - first]
    workers = saturated(shares, kernels, 17)
    for n, error in enumerate(split_errors(workers, shares, WARM, 17 * SECOND, TEN)):
        assert error <= share_bound(shares[n], kernels[n], [kernels[1 - n]], TEN)


@pytest.mark.parametrize("limit", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("kernel", [50 * US, 2 * MS, 250 * MS])
def test_a_lone_cap_holds(limit: float, kernel: int) -> None:
    seconds = 24 if kernel > MS else 13
    worker = solo(fraction(0.05, limit), Saturated(kernel), seconds)
    bound = max(2.0, 100 * (25 * MS + kernel * (1 - limit)) / TEN)
    assert share_error(worker, limit, WARM, seconds * SECOND, TEN) <= bound
    stall = (4 * MS + kernel) / limit + MS
    assert longest_gap(worker, WARM) <= stall


def test_a_fixed_share_is_exact_alone_and_beside_a_borrower() -> None:
    fixed = fraction(0.3, 0.3)
    assert share_error(solo(fixed, Saturated(2 * MS), 13), 0.3, WARM, 13 * SECOND, TEN) <= 0.3
    a, b, borrower = saturated([fixed, fixed, fraction(0.1)], [2 * MS] * 3, 13)
    for worker, share in ((a, 0.3), (b, 0.3), (borrower, 0.4)):
        assert share_error(worker, share, WARM, 13 * SECOND, TEN) <= 0.5


def test_surplus_is_shared_by_weight_not_by_request() -> None:
    a, b = saturated([0.2, 0.6], [2 * MS] * 2, 13)
    assert used(a, WARM, WARM + TEN) / TEN == pytest.approx(0.3, abs=0.01)
    assert used(b, WARM, WARM + TEN) / TEN == pytest.approx(0.7, abs=0.01)
    a, b = saturated([fraction(0.2, 1, 3), fraction(0.2, 1, 1)], [2 * MS] * 2, 13)
    assert used(a, WARM, WARM + TEN) / TEN == pytest.approx(0.65, abs=0.01)
    assert used(b, WARM, WARM + TEN) / TEN == pytest.approx(0.35, abs=0.01)


def test_priority_takes_surplus_and_never_a_request() -> None:
    shares = [fraction(0.2, 0.4), fraction(0.2, 1, 1, 1), fraction(0.2)]
    got = [used(w, WARM, WARM + TEN) / TEN for w in saturated(shares, [2 * MS] * 3, 13)]
    assert got == pytest.approx([0.2, 0.6, 0.2], abs=0.01)
    shares[1] = fraction(0.2, 0.5, 1, 1)
    shares[0] = fraction(0.2)
    got = [used(w, WARM, WARM + TEN) / TEN for w in saturated(shares, [2 * MS] * 3, 13)]
    assert got == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_best_effort_moves_even_when_the_requests_fill_the_device() -> None:
    a, b, poor = saturated([0.6, 0.4, 0], [2 * MS] * 3, 22)
    assert used(poor, WARM, 22 * SECOND) / (20 * SECOND) == pytest.approx(0.005, abs=0.001)
    assert longest_gap(poor, WARM) <= 3 * SECOND
    assert share_error(a, 0.6, WARM, 22 * SECOND, TEN) <= 1
    assert share_error(b, 0.4, WARM, 22 * SECOND, TEN) <= 1


def test_the_hand_over_hides_behind_the_last_kernel() -> None:
    plain = saturated([0.5, 0.5], [2 * MS] * 2, 13, costs=Costs(overlap=False))
    hidden = saturated([0.5, 0.5], [2 * MS] * 2, 13)
    assert utilisation(plain, WARM, WARM + TEN) == pytest.approx(0.99, abs=0.003)
    assert utilisation(hidden, WARM, WARM + TEN) >= 0.998


def test_a_lone_lease_runs_without_a_message() -> None:
    worker = solo(fraction(0.1), Saturated(2 * MS), 13)
    assert utilisation([worker], WARM, WARM + TEN) >= 0.999
    assert worker.device.counts == {"Grant": 1}
