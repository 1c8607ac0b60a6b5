"""The record has the whole of a lease, however short it was."""

from __future__ import annotations

import pytest

from rgpu_server.observe.edges import Edges
from rgpu_server.observe.record import Ring, Sample, Series
from rgpu_server.observe.steps import Span, lines_of
from rgpu_server.observe.totals import Amounts

MS = 1_000_000
CUPY = 2
SERIES = Series("lease-1", "alice", "a", 0)


def sample(number: int, launches: int = 0) -> Sample:
    return Sample(launches * MS, 0, 0, launches, 0, 10, 20, 300_000, 700_000, 0, number)


def written(ring: Ring, edges: Edges, now_ms: int, *going_on: Sample) -> None:
    """As the recorder does it once a second."""
    for time_ms, there in (
        (edges.since_ms, edges.take_first()),
        (now_ms, [*going_on, *edges.take_last()]),
    ):
        if there:
            ring.add(time_ms, there)


def test_a_lease_between_two_looks_is_there_with_all_it_used() -> None:
    ring, edges = Ring(1 << 20), Edges()
    edges.came("lease-1", sample(ring.number(SERIES)), 2200)
    edges.went("lease-1", Amounts(launches=190, device_ns=190 * MS), CUPY)
    written(ring, edges, 3000)
    (line,) = lines_of(ring.seconds, ring.series, Span(500, 1000, 4))
    assert sum(line.launches) == pytest.approx(190)
    assert sum(line.device_ms) == pytest.approx(190)
    assert line.leases == [0, 1, 1, 0]
    assert line.seams == CUPY


def test_what_comes_before_the_first_look_and_after_the_last_one_counts() -> None:
    ring, edges = Ring(1 << 20), Edges()
    number = ring.number(SERIES)
    edges.came("lease-1", sample(number), 1100)
    for time_ms, launches in ((2000, 30), (3000, 70)):
        edges.seen("lease-1", sample(number, launches))
        written(ring, edges, time_ms, sample(number, launches))
    edges.went("lease-1", Amounts(launches=100, device_ns=100 * MS), 0)
    written(ring, edges, 4000)
    (line,) = lines_of(ring.seconds, ring.series, Span(500, 1000, 4))
    assert sum(line.launches) == pytest.approx(100)
    assert edges.take_first() == edges.take_last() == []


def test_a_lease_that_was_never_seen_leaves_nothing() -> None:
    edges = Edges()
    edges.went("lease-1", Amounts(launches=3), 0)
    assert edges.take_last() == []
