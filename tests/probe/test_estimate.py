"""Rates out of trains over links whose truth is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprobe.estimate import (
    MIB,
    Arrival,
    Confidence,
    Train,
    agree,
    bandwidth,
    is_late,
    is_shaped,
    is_stalled,
    last_rate,
    settled,
    steady_rate,
    stretch_rate,
    summarise,
    whole_rate,
)
from netprobe.plan import Budget, next_train
from probe.trains import curve, link


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
    assert steady_rate(slow, 0.002) == pytest.approx(rate)


def test_how_a_connection_begins_is_not_what_the_link_carries() -> None:
    """Over long round trips two short trains agree on the connection's first window, not on the
    rate.
    """
    trip, rate = 0.02, 7.5e6
    trains = [link(64 << 10, rate, trip), link(256 << 10, rate, trip)]
    assert agree(*(whole_rate(train, trip) for train in trains))
    assert not settled(trains, trip)
    assert next_train(trains, trip, Budget(1.0, 64 * MIB), 0.08) == (1 << 20, 2.0)


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
    """A packet was lost before the middle, so all later bytes wait for it."""
    size, rate, trip = MIB, 125e6, 0.002
    step = size // 64
    times = [
        0.001 + n * step / rate if not 28 <= n <= 50 else 0.001 + 51 * step / rate
        for n in range(1, 65)
    ]
    arrivals = tuple(Arrival(n * step, time) for n, time in enumerate(times, 1))
    train = Train(size, times[-1] + 0.001, arrivals)
    assert bandwidth([train], trip).bytes_per_second == pytest.approx(rate, rel=0.15)


def test_the_slowest_count_may_begin_once_a_connection_has_opened() -> None:
    """The receiver slept. The bytes that it then reads at once do not show the rate of the link."""
    size, rate, trip = 14 * MIB, 0.9e9, 0.0002
    awake, slept = 3 * MIB / rate, 9 * MIB / rate
    points = [
        (3 * MIB, awake),
        (3 * MIB + 1, slept),
        (9 * MIB, slept + 0.0005),
        (size, size / rate),
    ]
    train = Train(size, size / rate + trip, curve(points))
    quarter = next(a for a in train.arrivals if a.bytes >= size // 4)
    assert (size - quarter.bytes) / (size / rate - quarter.seconds) > 1.5 * rate
    assert steady_rate(train, trip) == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("down", [False, True])
def test_what_waits_for_its_receiver_comes_out_of_no_bucket(down: bool) -> None:
    """The receiver slept for the first 2 ms, and then reads at once the bytes that have arrived."""
    size, rate, trip = 8 * MIB, 1.25e9, 0.0001
    there = int(rate * 0.002)
    points = [(1, 0.002), (there, 0.00205), (size, size / rate)]
    arrivals = tuple(Arrival(n, t + trip * down) for n, t in curve(points))
    assert not is_shaped(Train(size, arrivals[-1].seconds, arrivals, down), trip)
    early = tuple(Arrival(n, max(t - 0.002, trip * down)) for n, t in arrivals)
    assert is_shaped(Train(size, early[-1].seconds, early, down), trip)


def test_a_train_that_came_while_its_receiver_slept_is_not_believed() -> None:
    size, drained, trip = 4 * MIB, 4e9, 0.0001
    arrivals = tuple(Arrival(n, t + 0.006) for n, t in curve([(size, size / drained)]))
    trains = [Train(size, 0.008, arrivals)] * 2
    on_time = Train(size, size / 1e9, curve([(size, size / 1e9)]))
    assert is_late(trains[0], trip)
    assert not is_late(on_time, trip)
    assert not settled(trains, trip)
    found = bandwidth([trains[0], on_time], trip)
    assert found.bytes_per_second == pytest.approx(1e9, rel=0.05)


def test_a_train_that_waited_for_lost_bytes_is_sent_again_once() -> None:
    """The sender waits for 0.2 s: longer than all that a measurement may take."""
    rate, trip, budget = 125e6, 0.0005, Budget(0.044, 64 * MIB)
    good = [link(size << 10, rate, trip) for size in (64, 256, 512)]
    points = [(MIB // 2, 0.004), (MIB // 2 + 1, 0.21), (MIB, 0.215)]
    stalled = Train(MIB, 0.2155, curve(points))
    assert is_stalled(stalled, trip)
    spent = sum(train.seconds for train in good) + stalled.seconds
    assert next_train([*good, stalled], trip, budget, spent) == (MIB, 2 * budget.seconds)
    again = next_train([*good, stalled, stalled], trip, budget, spent + stalled.seconds)
    assert again is None
    found = bandwidth([*good, stalled], trip)
    assert found.bytes_per_second == pytest.approx(rate, rel=0.05)
    assert (found.trains, found.bytes) == (4, sum(t.bytes for t in good) + MIB)
    assert bandwidth([stalled], trip).bytes_per_second < rate / 10


def test_pauses_of_long_round_trips_are_no_losses() -> None:
    trip = 0.3
    points = [(64 << 10, trip), (256 << 10, 1.95 * trip), (512 << 10, 2.9 * trip)]
    assert not is_stalled(Train(512 << 10, 3 * trip, curve(points), down=True), trip)


def test_a_connection_that_opens_is_judged_by_how_its_train_ends() -> None:
    """10 Gbit/s over 20 ms: 25 MB are under way before the first of them is acknowledged."""
    size, rate, trip = 38 * MIB, 1.2e9, 0.02
    points = [(17 * MIB, trip), (20 * MIB, 0.031), (size, 0.031 + 18 * MIB / rate)]
    train = Train(size, points[-1][1] + trip, curve(points))
    assert whole_rate(train, trip) < 0.75 * rate
    assert bandwidth([train], trip).bytes_per_second == pytest.approx(rate, rel=0.05)


def test_what_a_short_queue_lost_hides_no_rate() -> None:
    """On a link of 20 ms and 1 Gbit/s, a train has run at its rate for eight round trips when it
    loses much at once. All later bytes arrive together, three round trips later.
    """
    rate, trip = 118e6, 0.02
    open_at, lost_at = 0.1, 0.26
    straight = int(2 * MIB + (lost_at - open_at) * rate)
    points = [(2 * MIB, open_at), (straight, lost_at), (straight + 1, lost_at + 3 * trip)]
    size = straight + int(2.5 * trip * rate)
    points.append((size, lost_at + 3 * trip + 0.002))
    train = Train(size, points[-1][1] + trip, curve(points))
    assert (steady_rate(train, trip) or 0) < 0.85 * rate
    assert last_rate(train, trip) is None
    assert stretch_rate(train, trip) == pytest.approx(rate, rel=0.05)
    assert bandwidth([train], trip).bytes_per_second == pytest.approx(rate, rel=0.05)


def test_a_stretch_is_counted_from_before_what_was_lost() -> None:
    """Counted from bytes that arrived together, a stretch would look too fast."""
    rate, trip = 118e6, 0.02
    points = [(int(0.1 * rate), 0.1), (int(0.1 * rate) + 1, 0.16)]
    points += [(int(0.16 * rate), 0.162), (int(0.26 * rate), 0.26)]
    train = Train(points[-1][0], 0.28, curve(points))
    assert stretch_rate(train, trip) == pytest.approx(rate, rel=0.05)


def test_of_a_long_train_that_waited_counts_what_it_carried_before() -> None:
    rate, trip = 118e6, 0.02
    tries = [link(64 << 10, rate, trip), link(256 << 10, rate, trip)]
    half = int(0.15 * rate)
    points = [(half, 0.15), (half + 1, 0.4), (2 * half, 0.45)]
    stalled = Train(2 * half, 0.47, curve(points))
    assert is_stalled(stalled, trip)
    found = bandwidth([*tries, stalled], trip)
    assert found.bytes_per_second == pytest.approx(rate, rel=0.05)


def test_short_round_trips_have_no_stretches() -> None:
    """Some arrivals show when the system woke the receiver, not when the path carried the bytes."""
    assert stretch_rate(link(4 * MIB, 125e6, 0.002), 0.002) is None
    assert stretch_rate(link(32 * MIB, 125e6, 0.02), 0.02) == pytest.approx(125e6)


def test_trains_that_agree_are_not_outdone_by_a_slower_one_before_them() -> None:
    """Both trains were too short to end the measurement, but a path carries at least their rate."""
    rate, trip = 1.2e9, 0.002
    opening = [(MIB, 0.0009), (MIB + 1, 0.0029), (4 * MIB, 0.0065)]
    slow = Train(4 * MIB, 0.0085, curve(opening))
    trains = [slow, link(6 * MIB, rate, trip), link(6 * MIB, rate, trip)]
    found = bandwidth(trains, trip)
    assert found.confidence is Confidence.FAIR
    assert found.bytes_per_second == pytest.approx(rate, rel=0.05)


def test_of_trains_that_do_not_agree_the_middle_counts() -> None:
    """One train was sent at a moment when the machine was busy with other work."""
    rates = (125e6, 125e6, 700e6)
    sizes = (MIB, MIB + (512 << 10), MIB + (768 << 10))
    trains = [link(size, rate, 0.0005) for size, rate in zip(sizes, rates, strict=True)]
    found = bandwidth(trains, 0.0005)
    assert found.bytes_per_second == pytest.approx(125e6, rel=0.1)
    assert found.confidence is Confidence.LOW


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
