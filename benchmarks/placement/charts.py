"""Draws curves of allocation against load as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.placement.saturation import Curve

COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700", "#0a7a83", "#24292f")
GREY, DARK = "#57606a", "#24292f"
# Curves that lie on each other are told apart by their dashes; the first ones are the widest.
DASHES = ("", "7 4", "2 3", "12 4", "4 6", "1 5", "9 3 2 3", "")
WIDTH, HEIGHT, LEGEND = 460, 300, 350
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 36, 44


class Panel:
    """A chart of what is taken against what was asked for, both in percent of the cluster."""

    def __init__(self, title: str, curves: Sequence[Curve], first: float, last: float) -> None:
        self._title = title
        self._curves = curves
        self._first, self._last = first, last

    def draw(self) -> str:
        """Returns the panel as a group of SVG."""
        title = f'<text x="16" y="20" font-size="14" font-weight="bold" fill="{DARK}">'
        lines = [self._line(curve, n) for n, curve in enumerate(self._curves)]
        return "".join([title, escape(self._title), "</text>", self._axes(), *lines])

    def _x(self, asked: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (asked - self._first) / (self._last - self._first)

    def _y(self, taken: float) -> float:
        scale = (taken - self._first) / (1.02 - self._first)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(scale, 0)

    def _axes(self) -> str:
        bottom, parts = HEIGHT - BOTTOM, []
        steps = [n / 10 for n in range(14)]
        for part in (s for s in steps if self._first <= s <= 1):
            y = self._y(part)
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" ')
            parts.append(f'stroke="#d0d7de"/><text x="{LEFT - 6}" y="{y + 4:.1f}" ')
            parts.append(f'text-anchor="end" fill="{GREY}">{100 * part:.0f} %</text>')
        for part in (s for s in steps if self._first <= s <= self._last):
            parts.append(f'<text x="{self._x(part):.1f}" y="{bottom + 16}" text-anchor="middle" ')
            parts.append(f'fill="{GREY}">{100 * part:.0f} %</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle" fill="{GREY}">')
        parts.append("asked for, of all cards (left: taken)</text>")
        return "".join(parts)

    def _line(self, curve: Curve, number: int) -> str:
        colour = COLOURS[number % len(COLOURS)]
        stroke = (
            f'stroke="{colour}" stroke-width="{max(4.5 - 0.6 * number, 1.6):.1f}" '
            f'stroke-dasharray="{DASHES[number % len(DASHES)]}"'
        )
        points = " ".join(
            f"{self._x(a):.1f},{self._y(t):.1f}"
            for a, t in zip(curve.asked, curve.taken, strict=True)
            if a >= self._first
        )
        y = TOP + 20 + 22 * number
        return (
            f'<polyline points="{points}" fill="none" {stroke}/>'
            f'<line x1="{WIDTH + 8}" x2="{WIDTH + 36}" y1="{y - 4}" y2="{y - 4}" {stroke}/>'
            f'<text x="{WIDTH + 44}" y="{y}" fill="{DARK}">{escape(curve.name)}'
            f'<tspan dx="6" fill="{GREY}">{curve.unallocated:.1f} % free</tspan></text>'
        )


def page(title: str, curves: Sequence[Curve], first: float = 0.6, last: float = 1.3) -> str:
    """Returns a picture with one panel, from `first` to `last` of the cluster."""
    width = WIDTH + LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="11">'
        f'<rect width="{width}" height="{HEIGHT}" fill="#ffffff"/>'
        f"{Panel(title, curves, first, last).draw()}</svg>\n"
    )
