"""Draws the picture of `rgpu quota report`: each device's use, and a panel for each tenant."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_client.observe.colours import COLOURS, colours_of
from rgpu_client.observe.usage import fewer
from rgpu_common.svg import Svg

if TYPE_CHECKING:
    from rgpu_client.observe.usage import Line, Usage
    from rgpu_common.svg import Point

WIDTH = 980
# The most panels of one device. The tenants with the least device time share the last panel.
MOST_LINES = 8
_LEFT, _RIGHT = 64.0, 196.0
_TOP, _BOTTOM = 92.0, 22.0
_STACK, _PANEL, _GAP = 190.0, 92.0, 34.0
_DEVICE_TITLE = 30.0
_AXIS = 26.0
_INK, _SOFT, _GRID = "#1f2933", "#616e7c", "#e4e7eb"
# Steps between the labels of the time axis, in seconds.
_TICKS = (
    5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800,
    604800,
)  # fmt: skip
_MOST_TICKS = 9


class Plot(Struct, frozen=True):
    """The place of a panel, and its mapping from a step and a share to pixels."""

    usage: Usage
    top: float
    height: float

    @property
    def width(self) -> float:
        return WIDTH - _LEFT - _RIGHT

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, step: float) -> float:
        return _LEFT + self.width * step / max(self.usage.steps, 1)

    def y(self, share: float) -> float:
        return self.top + self.height * (1 - min(max(share, 0.0), 1.0))


class Shown(Struct, frozen=True):
    """The content of the picture.

    by_lease: one line for each lease, and else one for each tenant. tenant: only this tenant; "":
    all tenants.
    """

    server: str
    by_lease: bool = False
    tenant: str = ""

    @property
    def title(self) -> str:
        what = "by lease" if self.by_lease else "by tenant"
        whose = f" of tenant {_shortened(self.tenant, 40)}" if self.tenant else ""
        return f"Share of device time{whose}, {what}"


def draw(usage: Usage, shown: Shown, names: dict[int, str]) -> str:
    """Returns the picture as SVG. names: the devices' names by ordinal."""
    devices = usage.devices
    lines = {device: fewer(usage.on(device), MOST_LINES) for device in devices}
    panels = sum(len(some) for some in lines.values())
    height = _TOP + _BOTTOM + panels * (_PANEL + _GAP)
    height += len(devices) * (_DEVICE_TITLE + _STACK + _AXIS + _GAP)
    picture = Svg(WIDTH, max(height, _TOP + 60), f"{shown.title}, on {shown.server}")
    _styles(picture)
    picture.rectangle(0, 0, WIDTH, max(height, _TOP + 60), fill="#ffffff")
    _heading(picture, usage, shown)
    top = _TOP
    for device in devices:
        top = _device(picture, usage, lines[device], (device, names.get(device, "")), top)
    if not devices:
        picture.text(_LEFT, _TOP + 20, "no lease in this time", kind="soft")
    return picture.render()


def _styles(picture: Svg) -> None:
    font = "font-family:'Inter','Helvetica Neue',Arial,'DejaVu Sans',sans-serif"
    picture.rule("title", f"{font};font-size:20px;font-weight:600;fill:{_INK}")
    picture.rule("head", f"{font};font-size:15px;font-weight:600;fill:{_INK}")
    picture.rule("name", f"{font};font-size:13px;font-weight:600")
    picture.rule("soft", f"{font};font-size:12px;fill:{_SOFT}")
    picture.rule("tick", f"{font};font-size:11px;fill:{_SOFT}")
    picture.rule("fact", f"{font};font-size:12px;fill:{_INK}")


def _heading(picture: Svg, usage: Usage, shown: Shown) -> None:
    begin, end = usage.start, usage.start + usage.step * usage.steps
    picture.text(_LEFT, 34, shown.title, kind="title")
    day = time.strftime("%Y-%m-%d", time.localtime(begin))
    zone = time.strftime("%Z", time.localtime(begin))
    steps = f"a value every {_duration(usage.step)}"
    span = f"{_clock(begin, True)} to {_clock(end, True)} {zone}"
    words = " · ".join((shown.server, f"{day} {span}", steps))
    picture.text(_LEFT, 55, words, kind="soft")
    x = _LEFT
    for words, style in (
        ("used", None),
        ("guaranteed (request)", _REQUEST),
        ("limit", _LIMIT),
    ):
        if style is None:
            picture.rectangle(x, 68, 22, 9, fill=COLOURS[0], fill_opacity="0.35")
            picture.line((x, 68), (x + 22, 68), stroke=COLOURS[0], stroke_width="1.6")
        else:
            picture.line((x, 73), (x + 22, 73), **style)
        picture.text(x + 28, 77, words, kind="soft")
        x += 28 + 7 * len(words) + 26


_REQUEST = {"stroke": _INK, "stroke_width": "1.4", "stroke_dasharray": "6 3"}
_LIMIT = {"stroke": "#b91c1c", "stroke_width": "1.2", "stroke_dasharray": "1.5 3"}


def _device(
    picture: Svg, usage: Usage, lines: list[Line], device: tuple[int, str], top: float
) -> float:
    """Draws a device from `top` on. Returns the place where the next device begins."""
    ordinal, name = device
    picture.text(_LEFT, top + 18, f"Device {ordinal}: {name}", kind="head")
    plot = Plot(usage, top + _DEVICE_TITLE, _STACK)
    colours = colours_of(lines)
    _axes(picture, plot, (0.0, 0.25, 0.5, 0.75, 1.0))
    _stack(picture, plot, lines, colours)
    _time_axis(picture, plot)
    top = plot.bottom + _AXIS + _GAP
    for line, colour in zip(lines, colours, strict=True):
        plot = Plot(usage, top, _PANEL)
        _axes(picture, plot, (0.0, 0.5, 1.0))
        _panel(picture, plot, line, colour)
        top = plot.bottom + _GAP
    if lines:
        _time_axis(picture, plot)
    return top + _AXIS


def _axes(picture: Svg, plot: Plot, shares: tuple[float, ...]) -> None:
    for share in shares:
        y = plot.y(share)
        picture.line((_LEFT, y), (_LEFT + plot.width, y), stroke=_GRID, stroke_width="1")
        picture.text(_LEFT - 8, y + 4, f"{share * 100:.0f} %", kind="tick", text_anchor="end")


def _time_axis(picture: Svg, plot: Plot) -> None:
    usage = plot.usage
    length = usage.step * usage.steps
    tick = next((t for t in _TICKS if length / t <= _MOST_TICKS), _TICKS[-1])
    offset = time.localtime(usage.start).tm_gmtoff
    first = -(-(usage.start + offset) // tick) * tick - offset
    y = plot.bottom
    picture.line((_LEFT, y), (_LEFT + plot.width, y), stroke=_SOFT, stroke_width="1")
    at = first
    while at <= usage.start + length:
        x = plot.x((at - usage.start) / usage.step)
        picture.line((x, y), (x, y + 4), stroke=_SOFT, stroke_width="1")
        words = _clock(at, tick < 60)
        if tick >= 86400:
            words = time.strftime("%m-%d", time.localtime(at))
        picture.text(x, y + 17, words, kind="tick", text_anchor="middle")
        at += tick


def _stack(picture: Svg, plot: Plot, lines: list[Line], colours: list[str]) -> None:
    """Draws the lines as areas on top of each other. Their sum shows how busy the device was."""
    base = [0.0] * plot.usage.steps
    for i, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        above = [b + share for b, share in zip(base, line.share, strict=True)]
        shape = [*_curve(plot, above), *reversed(_curve(plot, base))]
        picture.polygon(shape, fill=colour, fill_opacity="0.85")
        # A white border, because the leases of one tenant have similar colours.
        picture.polyline(_curve(plot, above), stroke="#ffffff", stroke_width="1")
        y = plot.top + 12 + 20 * (len(lines) - 1 - i)  # the uppermost area first
        x = _LEFT + plot.width + 18
        picture.rectangle(x, y - 10, 11, 11, fill=colour, fill_opacity="0.85")
        picture.text(x + 18, y, _shortened(line.name), kind="fact")
        base = above
    middle = plot.top + plot.height / 2
    words = "share of the device"
    turn = f"rotate(-90 16 {middle:.0f})"
    picture.text(16, middle, words, kind="tick", text_anchor="middle", transform=turn)
    busy = sum(min(share, 1.0) for share in base) / max(len(base), 1)
    y = plot.top + 12 + 20 * len(lines) + 6
    picture.text(_LEFT + plot.width + 18, y, f"busy {busy * 100:.0f} % of the time", kind="soft")


def _panel(picture: Svg, plot: Plot, line: Line, colour: str) -> None:
    for begin, end in _runs(line.present):
        curve = _curve(plot, line.share, begin, end)
        floor = [(curve[-1][0], plot.bottom), (curve[0][0], plot.bottom)]
        picture.polygon([*curve, *floor], fill=colour, fill_opacity="0.3")
        picture.polyline(curve, stroke=colour, stroke_width="1.6", stroke_linejoin="round")
        picture.polyline(_stairs(plot, line.limit, begin, end), **_LIMIT)
        picture.polyline(_stairs(plot, line.request, begin, end), **_REQUEST)
    x = _LEFT + plot.width + 18
    picture.rectangle(_LEFT, plot.top - 18, 11, 11, fill=colour)
    picture.text(_LEFT + 18, plot.top - 8, _shortened(line.name, 60), kind="name", fill=_INK)
    facts = (
        f"mean {line.mean(line.share) * 100:.1f} %",
        f"guaranteed {_range(line, line.request)}",
        f"limit {_range(line, line.limit)}",
        f"waited {line.mean(line.waiting) * 100:.0f} %",
        f"at its limit {line.mean(line.throttled) * 100:.0f} %",
        *([f"seams {', '.join(line.seams)}"] if set(line.seams) - {"driver"} else []),
    )
    for i, fact in enumerate(facts):
        picture.text(x, plot.top + 10 + 17 * i, fact, kind="fact" if i == 0 else "soft")


def _range(line: Line, values: tuple[float, ...]) -> str:
    """Returns the value, or the smallest and the largest, over the steps with a lease."""
    there = [v for v, p in zip(values, line.present, strict=True) if p]
    low, high = f"{min(there) * 100:.0f}", f"{max(there) * 100:.0f}"
    return f"{high} %" if low == high else f"{low} to {high} %"


def _runs(present: tuple[bool, ...]) -> list[tuple[int, int]]:
    """Returns the runs of steps with a lease, as (first, last + 1)."""
    runs, begin = [], None
    for i, there in enumerate((*present, False)):
        if there and begin is None:
            begin = i
        elif not there and begin is not None:
            runs.append((begin, i))
            begin = None
    return runs


def _curve(
    plot: Plot, values: tuple[float, ...] | list[float], begin: int = 0, end: int | None = None
) -> list[Point]:
    """Returns points in the middle of each step, and one at each edge of the run."""
    end = len(values) if end is None else end
    middle = [(plot.x(i + 0.5), plot.y(values[i])) for i in range(begin, end)]
    return [(plot.x(begin), middle[0][1]), *middle, (plot.x(end), middle[-1][1])]


def _stairs(plot: Plot, values: tuple[float, ...], begin: int, end: int) -> list[Point]:
    points = [(plot.x(begin), plot.y(values[begin]))]
    for i in range(begin + 1, end):
        if values[i] != values[i - 1]:
            points += [(plot.x(i), plot.y(values[i - 1])), (plot.x(i), plot.y(values[i]))]
    return [*points, (plot.x(end), plot.y(values[end - 1]))]


def _clock(at: float, seconds: bool) -> str:
    return time.strftime("%H:%M:%S" if seconds else "%H:%M", time.localtime(at))


def _duration(seconds: float) -> str:
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size and seconds % size == 0:
            count = round(seconds / size)
            return name if count == 1 else f"{count} {name}s"
    return f"{seconds:g} seconds"


def _shortened(name: str, most: int = 22) -> str:
    """Shortens a name in its middle, because names often differ at their end."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"
