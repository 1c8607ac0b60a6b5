"""Draws a survey: the round trip and bandwidth of each path, and which one was chosen."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from netprobe.cost import cost
from netprobe.show import bandwidth_words, legend, why_not
from rgpu_common.svg import Svg
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    from netprobe.cost import Workload
    from netprobe.prober import Measurement
    from netprobe.survey import Survey

WIDTH = 980.0
_LEFT = 28.0
_NAME = 260.0
_PANEL = 196.0
_GAP = 34.0
_TOP = 118.0
_ROW = 62.0
_BAR = 13.0
_INK, _SOFT, _GRID, _CHOSEN = "#1f2933", "#616e7c", "#e4e7eb", "#e7f3ea"
_TRIP, _UP, _DOWN, _STEP, _MARK = "#3b6fb6", "#e8862e", "#7e62b3", "#17a2a8", "#3f9b57"
_COLUMNS = ("round trip", "bandwidth", "expected time of a step")
# Bars are logarithmic: the smallest drawn value is 10 ^ -_DECADES of its column's largest.
_DECADES = 4.0


def draw(survey: Survey, workload: Workload) -> str:
    """Returns the picture as SVG."""
    lines = _reason_lines(survey)
    height = _TOP + _ROW * max(len(survey.paths), 1) + 24 + 18 * len(lines) + 24
    picture = Svg(WIDTH, height, f"Paths to {survey.found.uri}")
    _styles(picture)
    picture.rectangle(0, 0, WIDTH, height, fill="#ffffff")
    _heading(picture, survey, workload)
    most = _greatest(survey, workload)
    for i, path in enumerate(survey.paths):
        is_chosen = survey.choice is not None and survey.choice.uri == path.uri
        _row(picture, path, workload, _TOP + i * _ROW, (is_chosen, most))
    y = _TOP + _ROW * max(len(survey.paths), 1) + 24
    for i, line in enumerate(lines):
        picture.text(_LEFT, y + 18 * i, line, kind="fact" if i == 0 else "soft")
    return picture.render()


def _styles(picture: Svg) -> None:
    font = "font-family:'Inter','Helvetica Neue',Arial,'DejaVu Sans',sans-serif"
    picture.rule("title", f"{font};font-size:20px;font-weight:600;fill:{_INK}")
    picture.rule("head", f"{font};font-size:13px;font-weight:600;fill:{_INK}")
    picture.rule("name", f"{font};font-size:13px;font-weight:600;fill:{_INK}")
    picture.rule("soft", f"{font};font-size:12px;fill:{_SOFT}")
    picture.rule("fact", f"{font};font-size:13px;fill:{_INK}")


def _heading(picture: Svg, survey: Survey, workload: Workload) -> None:
    picture.text(_LEFT, 36, f"Paths to {survey.found.uri}", kind="title")
    words = f"for a {workload.name} program; bars are logarithmic"
    if survey.found.same_host:
        words += "; client and server are on one machine"
    picture.text(_LEFT, 57, words, kind="soft")
    for i, title in enumerate(_COLUMNS):
        picture.text(_x(i), 88, title, kind="head")
    x = _x(1)
    for words, colour in (("up", _UP), ("down", _DOWN)):
        picture.rectangle(x, 97, 10, 10, fill=colour)
        picture.text(x + 15, 106, words, kind="soft")
        x += 62


def _row(
    picture: Svg,
    path: Measurement,
    workload: Workload,
    top: float,
    shown: tuple[bool, tuple[float, float, float]],
) -> None:
    is_chosen, most = shown
    if is_chosen:
        picture.rectangle(8, top - 2, WIDTH - 16, _ROW - 4, fill=_CHOSEN, rx="6")
        picture.text(_LEFT, top + 44, "chosen", kind="soft", fill=_MARK)
    picture.line((8, top - 4), (WIDTH - 8, top - 4), stroke=_GRID, stroke_width="1")
    picture.text(_LEFT, top + 24, _shortened(path.uri), kind="name")
    if path.round_trip is None:
        picture.text(
            _x(0), top + 24, _shortened(why_not(path) or "it does not work", 100), kind="soft"
        )
        return
    trip = path.round_trip.median
    _bar(picture, (0, top + 10), (trip, most[0]), _TRIP, format_seconds(trip))
    if path.up is not None:
        words = bandwidth_words(path.up)
        _bar(picture, (1, top + 2), (path.up.bytes_per_second, most[1]), _UP, words)
    if path.down is not None:
        words = bandwidth_words(path.down)
        _bar(picture, (1, top + 26), (path.down.bytes_per_second, most[1]), _DOWN, words)
    step = cost(path, workload).total
    _bar(picture, (2, top + 10), (step, most[2]), _STEP, format_seconds(step))


def _bar(
    picture: Svg, at: tuple[int, float], value: tuple[float, float], colour: str, words: str
) -> None:
    column, top = at
    length = max(_PANEL * 0.55 * _part(*value), 2.0)
    picture.rectangle(_x(column), top + 4, length, _BAR, fill=colour, rx="2")
    picture.text(_x(column) + length + 6, top + 15, words, kind="soft")


def _part(value: float, most: float) -> float:
    """Returns a value's place between 10 ^ -_DECADES of the largest and the largest,
    logarithmically.
    """
    if value <= 0 or most <= 0:
        return 0.0
    return min(max(1 + math.log10(value / most) / _DECADES, 0.02), 1.0)


def _greatest(survey: Survey, workload: Workload) -> tuple[float, float, float]:
    works = [path for path in survey.paths if path.works]
    trips = [path.round_trip.median for path in works if path.round_trip is not None]
    rates = [b.bytes_per_second for p in works for b in (p.up, p.down) if b is not None]
    steps = [cost(path, workload).total for path in works]
    return max(trips, default=0.0), max(rates, default=0.0), max(steps, default=0.0)


def _reason_lines(survey: Survey) -> list[str]:
    choice = survey.choice
    if choice is None:
        return ["No path works."]
    return [*textwrap.wrap(f"{choice.uri} is chosen: {choice.reason}.", 130), *legend(survey.paths)]


def _x(column: int) -> float:
    return _LEFT + _NAME + column * (_PANEL + _GAP)


def _shortened(text: str, most: int = 36) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
