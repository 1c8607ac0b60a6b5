"""Seconds of the record become steps of a picture."""

from __future__ import annotations

import pytest

from rgpu_server.observe import steps
from rgpu_server.observe.record import Ring, Sample, Series
from rgpu_server.observe.seam_bits import bits_of, words_of
from rgpu_server.observe.steps import Span, lines_of, span_of

ALICE, OTHER, BOB = (
    Series("lease-1", "alice", "a", 0),
    Series("lease-2", "alice", "b", 0),
    Series("lease-3", "bob", "c", 0),
)
MS = 1_000_000


def sample(number: int, device_ms: int, request: int = 300_000, limit: int = 700_000) -> Sample:
    return Sample(device_ms * MS, 0, 0, device_ms, 0, 10, 20, request, limit, 0, number)


def ring_of(series: Series, *times: tuple[int, int]) -> Ring:
    ring = Ring(1 << 20)
    for time_ms, device_ms in times:
        ring.add(time_ms, [sample(ring.number(series), device_ms)])
    return ring


def test_each_step_has_what_was_counted_in_it() -> None:
    ring = ring_of(ALICE, (1000, 0), (2000, 400), (3000, 1000), (4000, 1000))
    (line,) = lines_of(ring.seconds, ring.series, Span(500, 1000, 4))
    # The sample at 1 s counts from the middle of the first step on.
    assert line.device_ms == pytest.approx([200, 500, 300, 0])
    assert line.leases == [1, 1, 1, 1]
    assert line.request_ppm == [300_000] * 4
    assert sum(line.launches) == pytest.approx(1000)


def test_a_kernel_that_is_counted_at_its_end_is_shown_when_it_ran() -> None:
    ring = Ring(1 << 20)
    alice, bob = ring.number(ALICE), ring.number(BOB)
    # Alice's kernel runs from 0 to 2.6 s. Bob has the rest of the third second.
    for time_ms, counted in ((0, (0, 0)), (1000, (0, 0)), (2000, (0, 0)), (3000, (2600, 400))):
        samples = [sample(number, ms) for number, ms in zip((alice, bob), counted, strict=True)]
        ring.add(time_ms, samples)
    lines = lines_of(ring.seconds, ring.series, Span(0, 1000, 3))
    assert [line.device_ms for line in lines] == [[1000, 1000, 600], [0, 0, 400]]
    (both,) = lines_of(ring.seconds, ring.series, Span(0, 3000, 1), sees=lambda t: t == "alice")
    assert both.device_ms == [2600]


def test_no_step_has_more_device_time_than_it_lasts() -> None:
    # Without enforcement each session counts for itself, so their sum may be more than the device.
    ring = ring_of(ALICE, (1000, 0), (2000, 1600), (3000, 3200), (4000, 3200))
    (line,) = lines_of(ring.seconds, ring.series, Span(-1000, 1000, 5))
    assert line.device_ms == [0, 0, 1000, 1000, 0]


def test_a_gap_is_bridged_evenly_and_nothing_is_shown_in_it() -> None:
    ring = ring_of(ALICE, (0, 0), (1000, 100), (31_000, 3100))
    (line,) = lines_of(ring.seconds, ring.series, Span(-500, 1000, 32))
    assert line.device_ms[1:31] == pytest.approx([100] * 30)
    assert line.leases[2:30] == [0] * 28
    assert sum(line.device_ms) == pytest.approx(3100)


def test_a_missing_second_is_no_gap() -> None:
    ring = ring_of(ALICE, (0, 0), (1000, 100), (3000, 300))
    (line,) = lines_of(ring.seconds, ring.series, Span(-500, 1000, 4))
    assert line.leases == [1, 1, 1, 1]


def test_only_the_tenant_that_is_asked_for() -> None:
    ring = Ring(1 << 20)
    numbers = [ring.number(one) for one in (ALICE, BOB)]
    for t in range(3):
        ring.add(t * 1000, [sample(number, t * 100) for number in numbers])
    lines = lines_of(ring.seconds, ring.series, Span(-500, 1000, 3), sees=lambda t: t == "bob")
    assert [line.series for line in lines] == [BOB]


def test_leases_of_a_tenant_are_added_up() -> None:
    ring = Ring(1 << 20)
    numbers = [ring.number(one) for one in (ALICE, OTHER, BOB)]
    for t in range(3):
        ring.add(t * 1000, [sample(number, t * 100) for number in numbers])
    alice, bob = lines_of(ring.seconds, ring.series, Span(-500, 1000, 3), by_lease=False)
    assert (alice.series.tenant, alice.series.lease) == ("alice", "")
    assert alice.device_ms == pytest.approx([2 * ms for ms in bob.device_ms])
    assert alice.leases == [2, 2, 2]
    assert alice.request_ppm == [600_000] * 3
    assert alice.limit_ppm == [1_000_000] * 3  # 70 % and 70 % are not more than the device


def test_a_tenants_sum_has_each_lease_once_in_a_step() -> None:
    ring = Ring(1 << 20)
    numbers = [ring.number(one) for one in (ALICE, OTHER)]
    for t in range(1, 5):
        ring.add(t * 1000, [sample(number, t * 100) for number in numbers])
    (line,) = lines_of(ring.seconds, ring.series, Span(500, 2000, 2), by_lease=False)
    assert line.leases == [2, 2]
    assert line.memory_limit == [40, 40]


def test_a_line_has_the_seams_of_all_its_leases() -> None:
    ring = Ring(1 << 20)
    driver, arrays = (ring.number(one) for one in (ALICE, OTHER))
    ring.add(1000, [sample(driver, 0)._replace(seams=1), sample(arrays, 0)])
    ring.add(2000, [sample(driver, 10)._replace(seams=1), sample(arrays, 10)._replace(seams=4)])
    (line,) = lines_of(ring.seconds, ring.series, Span(500, 1000, 2), by_lease=False)
    assert words_of(line.seams) == ["driver", "torch"]
    first, second = lines_of(ring.seconds, ring.series, Span(500, 1000, 1))
    assert (words_of(first.seams), words_of(second.seams)) == (["driver"], [])


def test_seams_are_bits_and_what_has_no_word_is_left_out() -> None:
    words = ["driver", "cupy", "torch"]
    assert words_of(bits_of(reversed(words))) == words
    assert bits_of([]) == 0
    assert words_of(1 << 31 | bits_of(["cupy"])) == ["cupy"]


def test_only_what_is_shown_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = steps._empty

    def counted(series: Series, count: int) -> steps.Line:
        made.append(series)
        return real(series, count)

    monkeypatch.setattr(steps, "_empty", counted)
    ring = Ring(1 << 20)
    ring.add(1000, [sample(ring.number(OTHER), 0)])  # before the span
    for n in range(100):
        many = Series(f"lease-{n + 10}", "alice", "short", 0)
        ring.add(20_000 + n, [sample(ring.number(one), n) for one in (many, BOB)])
    span = Span(19_500, 1000, 1)
    lines = lines_of(ring.seconds, ring.series, span, sees=lambda t: t == "alice", most=3)
    assert [line.series.lease for line in lines] == ["lease-10", "lease-11", "lease-12"]
    assert [series.lease for series in made] == ["lease-10", "lease-11", "lease-12"]
    # Sums need room for tenants alone, and have all their leases.
    (alice, bob) = lines_of(ring.seconds, ring.series, span, by_lease=False, most=3)
    assert (alice.leases, bob.leases) == ([100], [1])


@pytest.mark.parametrize(
    ("since", "most", "step", "count"),
    [(600_000, 0, 1000, 600), (3_600_000, 0, 6000, 600), (10_000, 0, 1000, 10), (1, 0, 1000, 1),
     (600_000, 100, 6000, 100), (601_000, 600, 2000, 300)],
)  # fmt: skip
def test_steps_are_whole_seconds_and_not_too_many(
    since: int, most: int, step: int, count: int
) -> None:
    span = span_of(1_000_000_250, since, most)
    assert (span.step_ms, span.steps) == (step, count)
    assert span.start_ms % 1000 == 500
    assert span.start_ms + span.step_ms * span.steps <= 1_000_000_250


def test_a_clock_that_goes_back_is_survived() -> None:
    ring = ring_of(ALICE, (5000, 0), (3000, 100), (4000, 200))
    (line,) = lines_of(ring.seconds, ring.series, Span(500, 1000, 6))
    assert min(line.device_ms) >= 0
