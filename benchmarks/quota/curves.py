"""Draws who had how much of the device over time, as SVG, from the JSON of one or more runs.

python -m benchmarks.quota.curves FOLDER JSON...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")
GREY = "#57606a"
WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 34, 26
COLUMNS = 3
# Steps of a run that are drawn as one: several slices of everybody.
TOGETHER = {"lending": 4}
LENGTHS = ("short", "medium", "long")
# A step in which a long piece ended may count more than its own length.
HIGHEST = 1.08

Run = Mapping[str, Any]


def draw(runs: Sequence[Run], folder: Path) -> None:
    """Writes quotas-KIND.svg for each kind of scenario that has been run."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("shares", "mixtures", "lending", "caps"):
        members = [run for run in runs if run["kind"] == kind]
        if members:
            (folder / f"quotas-{kind}.svg").write_text(page(sorted(members, key=_place)))


def _place(run: Run) -> tuple[str, int]:
    """A row for each split, a column for each length of kernel; those that differ come last."""
    split, _, work = run["scenario"].rpartition(" ")
    if run["kind"] in ("mixtures", "lending"):
        split = ""
    return (split, LENGTHS.index(work) if work in LENGTHS else len(LENGTHS))


def page(runs: Sequence[Run]) -> str:
    """One picture with a panel for each run."""
    columns = min(COLUMNS, len(runs))
    rows = -(-len(runs) // columns)
    width, height = columns * WIDTH, rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for n, run in enumerate(runs):
        x, y = n % columns * WIDTH, n // columns * HEIGHT
        parts.append(f'<g transform="translate({x} {y})">{panel(run)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def panel(run: Run) -> str:
    """Shares over time: what each tenant got, and dashed what it was granted."""
    seconds = (run["end"] - run["start"]) / SECOND
    parts = [_title(run), _axes(seconds)]
    for moment, _ in run["wakes"]:
        x = f"{_x((moment - run['start']) / SECOND, seconds):.1f}"
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#8c959f" '
            'stroke-dasharray="2 2"/>'
        )
    for index, values in enumerate(run["curves"]):
        share, limit = run["granted"][index]
        colour, y = COLOURS[index], f"{_y(limit if run['kind'] == 'caps' else share):.1f}"
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{colour}" '
            'stroke-dasharray="5 3" stroke-opacity="0.6"/>'
        )
        drawn, step = _averaged(values, run["step_ns"] / SECOND, TOGETHER.get(run["kind"], 5))
        parts.append(_line(drawn, step, seconds, colour))
    return "".join(parts)


def _title(run: Run) -> str:
    got = "".join(
        f'<tspan dx="7" fill="{COLOURS[i]}">{100 * share:.1f} %</tspan>'
        for i, share in enumerate(run["shares"])
    )
    if run["kind"] == "lending":
        got = f'<tspan dx="7" fill="{GREY}">dotted: the lender wakes</tspan>'
    return (
        f'<text x="{LEFT}" y="22" font-size="13" font-weight="bold" fill="#24292f">'
        f"{escape(run['scenario'])}"
        f'<tspan font-weight="normal" font-size="11">{got}</tspan></text>'
    )


def _axes(seconds: float) -> str:
    parts = []
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{GREY}">'
            f"{percent} %</text>"
        )
    step = next((s for s in (1, 2, 5, 10, 20, 60) if seconds / s <= 7), 120)
    for n in range(int(seconds / step) + 1):
        x, y = _x(n * step, seconds), HEIGHT - BOTTOM + 15
        parts.append(
            f'<text x="{x:.1f}" y="{y}" text-anchor="middle" fill="{GREY}">{n * step} s</text>'
        )
    return "".join(parts)


def _averaged(values: Sequence[float], step: float, count: int) -> tuple[list[float], float]:
    groups = [values[n : n + count] for n in range(0, len(values), count)]
    return [sum(group) / len(group) for group in groups], step * count


def _line(values: Sequence[float], step: float, seconds: float, colour: str) -> str:
    """Steps: each value is what was got in its part of time."""
    points = []
    for n, value in enumerate(values):
        y = _y(min(value, HIGHEST))
        points.append(f"{_x(n * step, seconds):.1f},{y:.1f}")
        points.append(f"{_x((n + 1) * step, seconds):.1f},{y:.1f}")
    joined = " ".join(points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.4"/>'


def _x(second: float, seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(second / seconds, 1)


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share / HIGHEST)


def main() -> int:
    folder, *files = map(Path, sys.argv[1:])
    draw([run for file in files for run in json.loads(file.read_text())["runs"]], folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
