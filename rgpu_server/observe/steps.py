"""The record, added up to steps of equal length: what a picture is drawn from.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rgpu_server.observe.record import Sample, Second, Series

MAX_STEPS = 600
# Between samples further apart than this nothing is known: there was no daemon.
_GAP_MS = 600_000
# Between closer ones the lease was there all the time.
_CLOSE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Span:
    """Steps from start_ms on, each of step_ms."""

    start_ms: int
    step_ms: int
    steps: int


@dataclass(slots=True)
class Line:
    """A series; one value per step.

    device_ms, waiting_ms, throttled_ms, launches: within the step.  leases, request_ppm, limit_ppm,
    memory_used, memory_limit: at its end, where leases is not 0.
    """

    series: Series
    device_ms: list[float]
    waiting_ms: list[float]
    throttled_ms: list[float]
    launches: list[float]
    leases: list[int]
    request_ppm: list[int]
    limit_ppm: list[int]
    memory_used: list[int]
    memory_limit: list[int]


def span_of(now_ms: int, since_ms: int, max_steps: int) -> Span:
    """The steps that cover the last since_ms: whole seconds, at most max_steps of them."""
    steps = min(max_steps or MAX_STEPS, MAX_STEPS)
    step_ms = max(-(-since_ms // steps), 1000)
    step_ms = -(-step_ms // 1000) * 1000
    count = max(since_ms // step_ms, 1)
    # Samples are taken at whole seconds: an edge is between two of them, and the last before one.
    end_ms = now_ms // 1000 * 1000 - 500
    return Span(end_ms - count * step_ms, step_ms, count)


@dataclass(slots=True)
class _Track:
    """A series while the samples go by."""

    line: Line
    time_ms: int
    last: Sample


def lines_of(
    seconds: Iterable[Second], names: Mapping[int, Series], span: Span, tenant: str = ""
) -> list[Line]:
    """Returns a line for each lease that was there, in the order in which they appeared."""
    tracks: dict[int, _Track] = {}
    for second in seconds:
        if second.time_ms < span.start_ms - _GAP_MS:
            continue
        step = (second.time_ms - span.start_ms - 1) // span.step_ms
        for sample in second.samples():
            series = names.get(sample.number)
            if series is None or (tenant and series.tenant != tenant):
                continue
            track = tracks.get(sample.number)
            if track is None:
                line = _empty(series, span.steps)
                track = tracks[sample.number] = _Track(line, second.time_ms, sample)
            else:
                _spread(track, second.time_ms, sample, span)
            track.time_ms, track.last = second.time_ms, sample
            if 0 <= step < span.steps:
                _note(track.line, step, sample)
    return [track.line for track in tracks.values() if any(track.line.leases)]


def by_tenant(lines: Iterable[Line]) -> list[Line]:
    """Adds up the lines of each tenant on each device; a limit is at most the device."""
    sums: dict[tuple[str, int], Line] = {}
    for line in lines:
        whose = (line.series.tenant, line.series.device)
        total = sums.get(whose)
        if total is None:
            series = line.series._replace(lease="", key="")
            total = sums[whose] = _empty(series, len(line.leases))
        for name in _COLUMNS:
            column, more = getattr(total, name), getattr(line, name)
            for i, value in enumerate(more):
                if value:
                    column[i] += value
    for total in sums.values():
        total.limit_ppm = [min(limit, PPM) for limit in total.limit_ppm]
    return list(sums.values())


_COLUMNS = tuple(name for name in Line.__slots__ if name != "series")


def _empty(series: Series, steps: int) -> Line:
    floats = [[0.0] * steps for _ in range(4)]
    wholes: list[list[int]] = [[0] * steps for _ in range(5)]
    return Line(series, floats[0], floats[1], floats[2], floats[3], *wholes)


def _note(line: Line, step: int, sample: Sample) -> None:
    line.leases[step] = 1
    line.request_ppm[step] = sample.request_ppm
    line.limit_ppm[step] = sample.limit_ppm
    line.memory_used[step] = sample.memory_used
    line.memory_limit[step] = sample.memory_limit


def _spread(track: _Track, time_ms: int, now: Sample, span: Span) -> None:
    """Gives what was counted since the sample before to the steps in between, evenly."""
    last, begin = track.last, track.time_ms
    lasted = time_ms - begin
    if lasted <= 0 or lasted > _GAP_MS:
        return
    line = track.line
    grown = (
        (line.device_ms, (now.device_ns - last.device_ns) / 1e6),
        (line.waiting_ms, (now.waiting_ns - last.waiting_ns) / 1e6),
        (line.throttled_ms, (now.throttled_ns - last.throttled_ns) / 1e6),
        (line.launches, float(now.launches - last.launches)),
    )
    first = max((begin - span.start_ms) // span.step_ms, 0)
    for step in range(first, min((time_ms - span.start_ms - 1) // span.step_ms + 1, span.steps)):
        from_ms = span.start_ms + step * span.step_ms
        part = (min(time_ms, from_ms + span.step_ms) - max(begin, from_ms)) / lasted
        for column, amount in grown:
            if amount > 0:
                column[step] += amount * part
        if lasted <= _CLOSE_MS and not line.leases[step]:
            _note(line, step, now)
