"""Draws what each weight does as bars, in SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benchmarks.placement.charts import DARK, GREY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.placement.weighing import Effect

NAMES, PANEL, ROW, TOP, BAR = 190, 190, 24, 62, 110
PANELS: tuple[tuple[str, str, Callable[[Effect], float], str], ...] = (
    ("idle cards, %", "#0969da", lambda e: e.idle, "{:.1f}"),
    ("slower by the network, %", "#bc4c00", lambda e: e.slowdown, "{:.2f}"),
    ("leases on a shared card", "#1a7f37", lambda e: e.leases, "{:.2f}"),
)


def page(title: str, effects: Sequence[Effect]) -> str:
    """Returns a picture with a row for each set of weights and a panel for each figure."""
    width, height = NAMES + PANEL * len(PANELS) + 16, TOP + ROW * len(effects) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        f'<text x="16" y="22" font-size="14" font-weight="bold" fill="{DARK}">'
        f"{escape(title)}</text>"
    ]
    for row, effect in enumerate(effects):
        y = TOP + ROW * row + 13
        parts.append(f'<text x="16" y="{y}" fill="{DARK}">{escape(effect.name)}</text>')
    for column, (name, colour, value, form) in enumerate(PANELS):
        x = NAMES + PANEL * column
        parts.append(f'<text x="{x}" y="{TOP - 12}" fill="{GREY}">{escape(name)}</text>')
        most = max(map(value, effects)) or 1
        for row, effect in enumerate(effects):
            y, length = TOP + ROW * row, BAR * value(effect) / most
            parts.append(
                f'<rect x="{x}" y="{y + 2}" width="{length:.1f}" height="14" fill="{colour}"/>'
                f'<text x="{x + length + 6:.1f}" y="{y + 13}" fill="{DARK}">'
                f"{form.format(value(effect))}</text>"
            )
    return "".join([*parts, "</svg>\n"])
