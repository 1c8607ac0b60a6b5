"""The record, added up to steps of equal length: what a picture is drawn from.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rgpu_server.observe.record import Sample, Second, Series

MAX_STEPS = 600
# Between samples further apart than this nothing is known: there was no daemon.
_GAP_MS = 600_000
# Between closer ones the lease was there all the time.
_CLOSE_MS = 5_000


class Span(Struct, frozen=True):
    """Steps from start_ms on, each of step_ms."""

    start_ms: int
    step_ms: int
    steps: int


class Line(Struct):
    """A series; one value per step.

    device_ms, waiting_ms, throttled_ms, launches: within the step.  leases, request_ppm, limit_ppm,
    memory_used, memory_limit: at its end, where leases is not 0.  seams: the bits of those that had
    been used by the end of the span.
    """

    series: Series
    seams: int
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


class _Track(Struct):
    """A series while the samples go by.

    since_ms, time_ms: its first and its last sample.  line: once something of it lies within the
    span.  noted, has: the newest step that shows it, and what that shows.
    """

    series: Series
    since_ms: int
    time_ms: int
    last: Sample
    line: Line | None = None
    noted: int = -1
    has: Sample | None = None


class _Lines:
    """The lines so far, at most `most`: so much memory an answer takes, however long the record."""

    def __init__(self, span: Span, by_lease: bool, most: int) -> None:
        self._steps = span.steps
        self._by_lease = by_lease
        self._most = most
        self._lines: dict[Series, Line] = {}
        self._worked: dict[int, list[float]] = {}

    def of(self, track: _Track) -> Line | None:
        """The line of a series, which it gets here; None: there is no room for it."""
        if track.line is None:
            series = track.series
            whose = series if self._by_lease else series._replace(lease="", key="")
            if whose not in self._lines and len(self._lines) < self._most:
                self._lines[whose] = _empty(whose, self._steps)
            track.line = self._lines.get(whose)
        return track.line

    def worked(self, device: int) -> list[float]:
        """Returns for how many ms of each step a device has worked for the lines."""
        return self._worked.setdefault(device, [0.0] * self._steps)

    def done(self) -> list[Line]:
        for line in self._lines.values():
            line.limit_ppm = [min(limit, PPM) for limit in line.limit_ppm]
        return [line for line in self._lines.values() if any(line.leases)]


def lines_of(
    seconds: Iterable[Second],
    names: Mapping[int, Series],
    span: Span,
    *,
    sees: Callable[[str], bool] = lambda _: True,
    by_lease: bool = True,
    most: int = 1000,
) -> list[Line]:
    """Returns a line for each lease that was there, in the order in which they appeared; or one for
    each tenant on each device, of all its leases: their sums, a limit at most the device.

    sees: whether a tenant is asked for.  most: further lines are left out.
    """
    lines = _Lines(span, by_lease, most)
    shown = {number for number, series in names.items() if sees(series.tenant)}
    tracks: dict[int, _Track] = {}
    for second in seconds:
        if second.time_ms < span.start_ms - _GAP_MS:
            continue
        step = (second.time_ms - span.start_ms - 1) // span.step_ms
        samples = [sample for sample in second.samples() if sample.number in shown]
        late = _late(second.time_ms, samples, tracks)
        for sample in samples:
            track = tracks.get(sample.number)
            if track is None:
                track = _Track(names[sample.number], second.time_ms, second.time_ms, sample)
                tracks[sample.number] = track
            else:
                late_ms = late.get(sample.number, 0.0)
                _spread(track, second.time_ms, sample, span, lines, late_ms)
            track.time_ms, track.last = second.time_ms, sample
            if 0 <= step < span.steps:
                _note(track, step, sample, lines)
        for number, late_ms in late.items():
            _spread_back(tracks[number], second.time_ms, late_ms, span, lines)
    return lines.done()


def _empty(series: Series, steps: int) -> Line:
    floats = [[0.0] * steps for _ in range(4)]
    wholes: list[list[int]] = [[0] * steps for _ in range(5)]
    return Line(series, 0, floats[0], floats[1], floats[2], floats[3], *wholes)


def _note(track: _Track, step: int, sample: Sample, lines: _Lines) -> None:
    """Shows a sample at the end of a step, in place of an earlier one of this step."""
    line = lines.of(track)
    if line is None or step < track.noted:  # a clock that went back changes nothing that is shown
        return
    if step == track.noted and track.has is not None:
        _add(line, step, track.has, -1)
    _add(line, step, sample, 1)
    line.seams |= sample.seams
    track.noted, track.has = step, sample


def _add(line: Line, step: int, sample: Sample, sign: int) -> None:
    line.leases[step] += sign
    line.request_ppm[step] += sign * sample.request_ppm
    line.limit_ppm[step] += sign * sample.limit_ppm
    line.memory_used[step] += sign * sample.memory_used
    line.memory_limit[step] += sign * sample.memory_limit


def _late(time_ms: int, samples: list[Sample], tracks: Mapping[int, _Track]) -> dict[int, float]:
    """Returns number of a series -> its device time from before its last sample, in ms.

    The time of a kernel is counted when the kernel ends. A device works for one lease at a time, so
    what all of its leases count beyond the time that has passed was worked before that: by the one
    that counts most, because its kernel was the longest.
    """
    grown: dict[int, list[tuple[float, int]]] = {}
    passed: dict[int, int] = {}
    for sample in samples:
        track = tracks.get(sample.number)
        if track is None or not 0 < time_ms - track.time_ms <= _GAP_MS:
            continue
        if sample.device_ns > track.last.device_ns:
            device = track.series.device
            more = (sample.device_ns - track.last.device_ns) / 1e6
            grown.setdefault(device, []).append((more, sample.number))
            passed[device] = max(passed.get(device, 0), time_ms - track.time_ms)
    late: dict[int, float] = {}
    for device, amounts in grown.items():
        beyond = sum(more for more, _ in amounts) - passed[device]
        for more, number in sorted(amounts, reverse=True):
            if beyond <= 0:
                break
            late[number] = min(more, beyond)
            beyond -= more
    return late


def _spread(
    track: _Track, time_ms: int, now: Sample, span: Span, lines: _Lines, late_ms: float
) -> None:
    """Gives what was counted since the sample before to the steps in between, evenly, without
    late_ms of its device time.
    """
    last, begin = track.last, track.time_ms
    lasted = time_ms - begin
    if lasted <= 0 or lasted > _GAP_MS:
        return
    first = max((begin - span.start_ms) // span.step_ms, 0)
    end = min((time_ms - span.start_ms - 1) // span.step_ms + 1, span.steps)
    line = lines.of(track) if first < end else None
    if line is None:
        return
    grown = (
        (line.device_ms, (now.device_ns - last.device_ns) / 1e6 - late_ms),
        (line.waiting_ms, (now.waiting_ns - last.waiting_ns) / 1e6),
        (line.throttled_ms, (now.throttled_ns - last.throttled_ns) / 1e6),
        (line.launches, float(now.launches - last.launches)),
    )
    for step in range(first, end):
        from_ms = span.start_ms + step * span.step_ms
        part = (min(time_ms, from_ms + span.step_ms) - max(begin, from_ms)) / lasted
        for column, amount in grown:
            if amount > 0:
                column[step] += amount * part
                if column is line.device_ms:
                    lines.worked(track.series.device)[step] += amount * part
        if lasted <= _CLOSE_MS and step > track.noted:
            _note(track, step, now, lines)


def _spread_back(track: _Track, time_ms: int, late_ms: float, span: Span, lines: _Lines) -> None:
    """Gives device time to the steps before time_ms in which the device did not work, the latest
    first. What is left lies before the first step.
    """
    line, worked = lines.of(track), lines.worked(track.series.device)
    step = min((time_ms - span.start_ms - 1) // span.step_ms, span.steps - 1)
    while line is not None and step >= 0 and late_ms > 0:
        from_ms = span.start_ms + step * span.step_ms
        there_ms = min(time_ms, from_ms + span.step_ms) - max(from_ms, track.since_ms)
        given = max(min(there_ms - worked[step], late_ms), 0.0)
        line.device_ms[step] += given
        worked[step] += given
        late_ms -= given
        step -= 1
