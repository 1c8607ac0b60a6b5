"""Which trains are sent over links whose truth is known, and what comes out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprobe.estimate import MIB, Confidence, Train, bandwidth, settled
from netprobe.plan import Budget, next_train
from probe.trains import Opening, link

PIECE = 256 << 10
TRIP = 0.02
# The budget of a path of 20 ms for one direction.
BUDGET = Budget(0.37, 64 * MIB)


def run(rate: float, trip: float, budget: Budget, **shape: float) -> tuple[list[Train], float]:
    """Returns the trains that a prober sends over such a link, and the seconds that they took."""
    trains: list[Train] = []
    spent = 0.0
    while (order := next_train(trains, trip, budget, spent)) is not None:
        # The tokens in the bucket pass at once.
        size = min(order.bytes, int(order.seconds * rate + shape.get("burst", 0)) + PIECE)
        trains.append(link(size, rate, trip, **shape))  # type: ignore[arg-type]
        spent += trains[-1].seconds
    return trains, spent


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


def test_trains_grow_faster_where_the_path_takes_longer_than_they() -> None:
    def after(size: int, trip: float) -> int:
        order = next_train([link(size, 125e6, trip)], trip, Budget(1.0, 64 * MIB), 0.0)
        assert order is not None
        return order.bytes

    assert after(MIB, 0.02) == 4 * MIB
    assert after(MIB, 0.0005) == 2 * MIB


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
    while (order := next_train(trains, 0.001, budget, spent)) is not None:
        trains.append(link(order.bytes, 125e6 * (1 + len(trains) % 2), 0.001))
        spent += trains[-1].seconds
    assert len(trains) < 20
    assert bandwidth(trains, 0.001).confidence is Confidence.LOW


@pytest.mark.parametrize(
    ("rate", "trip"),
    [(6e6, 0.02), (12.5e6, 0.02), (118e6, 0.02), (1.18e9, 0.015), (1.18e9, 0.02), (118e6, 0.15)],
)
def test_a_long_path_on_which_a_connection_opens_slowly_is_measured(
    rate: float, trip: float
) -> None:
    """10 Gbit/s over 20 ms: 24 MB are under way, and a connection begins with 14 KB."""
    budget = Budget(18.5 * trip, 64 * MIB)
    trains, spent = Opening(rate, trip).probe(budget)
    assert bandwidth(trains, trip).bytes_per_second == pytest.approx(rate, rel=0.05)
    assert spent <= budget.seconds
    assert sum(train.bytes for train in trains) <= budget.bytes


def test_over_a_long_path_all_that_is_left_is_one_train() -> None:
    path = Opening(1.18e9, TRIP)
    trains, spent = [], 0.0
    for size in (64 << 10, 256 << 10):
        order = next_train(trains, TRIP, BUDGET, spent)
        assert order is not None
        assert order.bytes == size
        trains.append(path.send(order))
        spent += trains[-1].seconds
    order = next_train(trains, TRIP, BUDGET, spent)
    assert order is not None
    assert order.bytes == 64 * MIB - (320 << 10)
    # Three round trips: the order, what a queue holds back, the answer.
    assert order.seconds == pytest.approx(BUDGET.seconds - spent - 3 * TRIP)


def test_a_slow_long_path_gets_no_train_of_which_only_the_time_is_known() -> None:
    """The bytes that are on the way when the sender stops could take as long as the whole
    measurement.
    """
    trains, spent = run(1.2e6, TRIP, BUDGET)
    assert [train.bytes for train in trains] == [64 << 10, 256 << 10]
    assert spent <= BUDGET.seconds


def test_a_short_path_gets_trains_that_grow() -> None:
    trains, _ = Opening(1.18e9, 0.002).probe(Budget(0.044, 64 * MIB))
    sizes = [train.bytes for train in trains]
    assert sizes[:4] == [64 << 10, 256 << 10, MIB, 4 * MIB]


def test_too_little_time_for_a_long_train_is_used_as_on_any_path() -> None:
    """At the start of a program: the time of a few round trips."""
    path = Opening(1.18e9, TRIP)
    first = path.send(next_train([], TRIP, BUDGET, 0.0) or pytest.fail("no train"))
    second = path.send(next_train([first], TRIP, BUDGET, 0.0) or pytest.fail("no train"))
    left = 5 * TRIP
    order = next_train([first, second], TRIP, BUDGET, BUDGET.seconds - left)
    assert order is not None
    assert order.bytes <= left * 1e8
