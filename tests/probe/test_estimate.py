"""Rates out of trains over links whose truth is known."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprobe.estimate import (
    MIB,
    Arrival,
    Budget,
    Confidence,
    Train,
    agree,
    bandwidth,
    is_shaped,
    next_train,
    settled,
    steady_rate,
    summarise,
    whole_rate,
)


def link(size: int, rate: float, trip: float, *, line: float = 0.0, burst: int = 0) -> Train:
    """A train over a link of `rate`, whose bucket lets `burst` bytes through at `line` rate."""
    step = max(size // 60, 1)

    def when(count: int) -> float:
        fast = min(count, burst)
        # While the bucket empties it is filled as well.
        return trip / 2 + (fast / line if line else 0.0) + (count - fast) / rate

    counts = [*range(step, size, step), size]
    arrivals = tuple(Arrival(count, trip / 2 + when(count)) for count in counts)
    return Train(size, when(size) + trip / 2, arrivals)


def run(rate: float, trip: float, budget: Budget, **shape: float) -> tuple[list[Train], float]:
    """What a prober does on such a link: the trains, and the seconds that they took."""
    trains: list[Train] = []
    spent = 0.0
    while (size := next_train(trains, trip, budget, spent)) is not None:
        trains.append(link(size, rate, trip, **shape))  # type: ignore[arg-type]
        spent += trains[-1].seconds
    return trains, spent


def test_round_trips_are_summed_up() -> None:
    times = summarise([0.003, 0.001, 0.002])
    assert (times.count, times.minimum, times.median, times.p99) == (3, 0.001, 0.002, 0.003)
    assert times.jitter == pytest.approx(0.002)
    with pytest.raises(ValueError, match="no round trip"):
        summarise([])


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=200))
def test_a_summary_is_in_order(seconds: list[float]) -> None:
    times = summarise(seconds)
    assert min(seconds) == times.minimum <= times.median <= times.p99 <= max(seconds)
    assert 0 <= times.jitter <= max(seconds) - min(seconds)


@given(
    rate=st.floats(1e6, 5e9),
    trip=st.floats(2e-5, 0.02),
)
def test_a_plain_link_is_measured(rate: float, trip: float) -> None:
    budget = Budget(max(0.1, 16 * trip), 64 * MIB)
    trains, spent = run(rate, trip, budget)
    assert bandwidth(trains, trip).bytes_per_second == pytest.approx(rate, rel=0.05)
    # The first train is sent blindly; the others are planned.
    assert spent <= budget.seconds + trains[0].seconds + 2 * trip
    assert sum(train.bytes for train in trains) <= budget.bytes


@pytest.mark.parametrize("megabits", [100, 1000, 10000])
@pytest.mark.parametrize("trip", [0.0001, 0.0005, 0.002, 0.02])
@pytest.mark.parametrize("burst", [128 << 10, 256 << 10, 1 << 20])
def test_a_token_bucket_does_not_flatter(megabits: int, trip: float, burst: int) -> None:
    rate = megabits * 1e6 / 8
    budget = Budget(max(0.04, 14 * trip, 2.5 * burst / rate), 64 * MIB)
    trains, _ = run(rate, trip, budget, line=5e9, burst=burst)
    found = bandwidth(trains, trip)
    assert found.bytes_per_second == pytest.approx(rate, rel=0.15)


def test_a_short_train_out_of_a_bucket_is_flattered_and_not_believed() -> None:
    fast = link(128 << 10, 125e6, 0.0002, line=5e9, burst=128 << 10)
    assert whole_rate(fast, 0.0002) > 4e9
    assert not settled([fast, fast], 0.0002)
    found = bandwidth([fast, fast], 0.0002)
    assert found.confidence is not Confidence.HIGH


def test_a_bucket_is_noticed() -> None:
    assert is_shaped(link(4 * MIB, 125e6, 0.0002, line=5e9, burst=2 * MIB))
    assert not is_shaped(link(4 * MIB, 125e6, 0.0002))


def test_the_tail_leaves_out_a_slow_start() -> None:
    size, rate = 4 * MIB, 125e6
    steps = [Arrival(n * size // 64, 0.05 + n * size / 64 / rate) for n in range(1, 65)]
    slow = Train(size, steps[-1].seconds + 0.001, tuple(steps))
    assert whole_rate(slow, 0.002) < 0.5 * rate
    assert steady_rate(slow) == pytest.approx(rate)


def test_how_a_connection_begins_is_not_what_the_link_carries() -> None:
    """Over long round trips two short trains agree on what the connection dares to send."""
    trip, rate = 0.02, 7.5e6
    trains = [link(64 << 10, rate, trip), link(256 << 10, rate, trip)]
    assert agree(*(whole_rate(train, trip) for train in trains))
    assert not settled(trains, trip)
    assert next_train(trains, trip, Budget(0.3, 64 * MIB), 0.08) == 512 << 10


def test_heaps_of_the_first_round_trips_are_no_bucket() -> None:
    """16 segments, then 32, 64, ... each as fast as the link carries them, a round trip apart."""
    trip, rate, segment = 0.02, 125e6, 1448
    arrivals, count, round_trips = [], 0, 1
    while count < 512 << 10:
        for n in range(16 * 2 ** (round_trips - 1)):
            count += segment
            arrivals.append(Arrival(count, round_trips * trip + n * segment / rate))
        round_trips += 1
    train = Train(count, arrivals[-1].seconds + trip, tuple(arrivals[::4]))
    assert not is_shaped(train, trip)


def test_what_comes_late_in_a_heap_is_not_fast() -> None:
    """A packet was lost before the middle: all behind it waits for it."""
    size, rate, trip = MIB, 125e6, 0.002
    step = size // 64
    times = [
        0.001 + n * step / rate if not 28 <= n <= 50 else 0.001 + 51 * step / rate
        for n in range(1, 65)
    ]
    arrivals = tuple(Arrival(n * step, time) for n, time in enumerate(times, 1))
    train = Train(size, times[-1] + 0.001, arrivals)
    assert bandwidth([train], trip).bytes_per_second == pytest.approx(rate, rel=0.15)


def test_of_trains_that_do_not_agree_the_middle_counts() -> None:
    """One of them met a moment in which the machine was busy with something else."""
    rates = (125e6, 125e6, 700e6)
    sizes = (MIB, MIB + (512 << 10), MIB + (768 << 10))
    trains = [link(size, rate, 0.0005) for size, rate in zip(sizes, rates, strict=True)]
    found = bandwidth(trains, 0.0005)
    assert found.bytes_per_second == pytest.approx(125e6, rel=0.1)
    assert found.confidence is Confidence.LOW


def test_it_stops_when_two_trains_agree() -> None:
    trains, _ = run(125e6, 0.0005, Budget(1.0, 64 * MIB))
    assert settled(trains, 0.0005)
    assert next_train(trains, 0.0005, Budget(1.0, 64 * MIB), 0.0) is None
    assert bandwidth(trains, 0.0005).confidence is Confidence.HIGH
    sizes = [train.bytes for train in trains]
    assert all(b == 2 * a for a, b in pairwise(sizes[1:]))


def test_trains_that_never_agree_end_with_the_budget() -> None:
    trains: list[Train] = []
    spent = 0.0
    budget = Budget(0.5, 64 * MIB)
    while (size := next_train(trains, 0.001, budget, spent)) is not None:
        trains.append(link(size, 125e6 * (1 + len(trains) % 2), 0.001))
        spent += trains[-1].seconds
    assert len(trains) < 20
    assert bandwidth(trains, 0.001).confidence is Confidence.LOW


@given(st.floats(1, 1e12), st.floats(1, 1e12), st.floats(0, 1))
def test_agreement_has_no_order(first: float, second: float, within: float) -> None:
    assert agree(first, second, within) == agree(second, first, within)
    assert agree(first, first, within)


@given(st.lists(st.tuples(st.integers(1, 1 << 24), st.floats(0, 2)), max_size=60), st.floats(0, 1))
def test_nonsense_from_a_responder_does_no_harm(
    points: list[tuple[int, float]], trip: float
) -> None:
    arrivals = tuple(Arrival(*point) for point in points)
    train = Train(1 << 20, 0.01, arrivals)
    assert bandwidth([train], trip).bytes_per_second > 0
    next_train([train], trip, Budget(), 0.0)
