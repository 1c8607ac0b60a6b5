"""How well and how fast requests are placed. Only `grants` starts a manager and servers.

`saturation`: what stays free when 130 % of a cluster is asked for, beside our own implementation of
fragmentation gradient descent.  `decisions`: how long one takes over 8,000 cards.  `line`: what a
request costs that comes while 1,000 wait.  `paths`: how often the chosen path is close to the best
when a fifth of them is not measured.  `jobs`: jobs in an hour beside exclusive cards.  `grants`:
grants in a second, through a real manager and its nodes.
"""

from __future__ import annotations

import random
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Row, above, arguments, below, report, say
from benchmarks.placement import (
    bars,
    charts,
    chosen_paths,
    decisions,
    jobs,
    line,
    saturation,
    weighing,
)

if TYPE_CHECKING:
    import argparse

PARTS = ("saturation", "decisions", "line", "paths", "jobs", "grants")
SEEDS = 5


def saturation_rows(quick: bool, pictures: str | None) -> list[Row]:
    """Medians over clusters of the cards that stay free."""
    nodes, seeds = (60, 1) if quick else (200, SEEDS)
    runs = []
    for seed in range(seeds):
        say(f"cluster {seed + 1} of {seeds}")
        runs.append(saturation.curves(nodes, seed))
    free = {
        curves[0].name: statistics.median(c.unallocated for c in curves)
        for curves in zip(*runs, strict=True)
    }
    if pictures:
        draw(Path(pictures), runs[0], nodes)
    rows = [
        below("fgd, cards alone, over the reference", "pp", free["fgd"] - free[saturation.CARDS], 1)
    ]
    remote, local = free[saturation.REMOTE], free[saturation.LOCAL]
    rows.append(
        Row("free, remote", "%", remote, local, remote / local, "below FGD", remote < local)
    )
    return rows + [Row(f"free, {name}", "%", value) for name, value in free.items()]


def draw(folder: Path, curves: list[saturation.Curve], nodes: int) -> None:
    """Writes the pictures of docs/explanation/placement.md."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {curve.name: curve for curve in curves}
    remote = [named[name] for name in (saturation.CARDS, saturation.LOCAL, saturation.REMOTE)]
    presets = [named[name] for name in saturation.ORDERS]
    for name, title, some in (
        ("remote", "Processors of one node, and of any node", remote),
        ("orders", "Presets, and the orders of earlier systems", presets),
    ):
        (folder / f"placement-{name}.svg").write_text(charts.page(title, some))
    title = "What each weight does when 70 % of the cards are asked for"
    (folder / "placement-weights.svg").write_text(bars.page(title, weighing.effects(nodes, 0)))


def decision_rows(quick: bool) -> list[Row]:
    """Times over 1,000 nodes."""
    rows = []
    for mixed, borrow, which in (
        (False, False, "8,000 cards"),
        (True, False, "8,000 mixed cards"),
        (False, True, "8,000 cards, idle time wanted"),
    ):
        say(f"decisions over {which}")
        figures = decisions.measure(200 if quick else 3000, mixed=mixed, borrow=borrow)
        rows += [
            below(f"decision, {which}, median", "ms", figures.p50_ms, 1),
            below(f"decision, {which}, p99", "ms", figures.p99_ms, 5),
            Row(f"decision, {which}, p99 of processor time", "ms", figures.processor_ms),
            above(f"placements, {which}", "1/s", figures.per_second, 250),
            Row(f"classes, {which}", "", figures.classes),
        ]
    return rows


def line_rows(quick: bool) -> list[Row]:
    """Events while 1,000 requests wait for 8,000 cards that are taken."""
    rows = []
    for elastic, which in ((False, ""), (True, ", elastic leases")):
        say(f"events while {line.WAITING} requests wait{which}")
        figures = line.measure(50 if quick else 500, elastic=elastic)
        rows += [
            below(f"arrival, 1,000 wait{which}, median", "ms", figures.came_p50, 1),
            below(f"arrival, 1,000 wait{which}, p99", "ms", figures.came_p99, 5),
            Row(f"arrival, 1,000 wait{which}, median of processor time", "ms", figures.cpu_p50),
            Row(f"arrival, 1,000 wait{which}, p99 of processor time", "ms", figures.cpu_p99),
            Row(f"departure, 1,000 wait{which}, median", "ms", figures.left_p50),
            Row(f"departure, 1,000 wait{which}, p99", "ms", figures.left_p99),
        ]
    return rows


def path_rows(quick: bool) -> list[Row]:
    """The part of placements whose path is close to the best."""
    say("chosen paths")
    count, seeds = (100, 2) if quick else (400, 10)
    parts = [chosen_paths.close_to_the_best(count, seed) for seed in range(seeds)]
    return [above("placements within 5 % of the best path", "%", 100 * statistics.mean(parts), 95)]


def job_rows(quick: bool) -> list[Row]:
    """Jobs in an hour."""
    say("jobs in an hour")
    drawn = jobs.jobs(600 if quick else 3000, random.Random(1))
    shared = jobs.per_hour(drawn, exclusive=False)
    alone = jobs.per_hour(drawn, exclusive=True)
    row = Row(
        "jobs in an hour", "", shared, alone, shared / alone, "at least 2 x", shared >= 2 * alone
    )
    return [row]


def grant_rows(quick: bool) -> list[Row]:
    """Grants through a manager and three servers."""
    from benchmarks.placement import grants

    say("grants through a manager and its nodes")
    figures = grants.measure(2 if quick else 10)
    return [
        above("grants, 16 clients", "1/s", figures.per_second, 64),
        Row("request to answer, one client, median", "ms", figures.p50_ms),
        Row("request to answer, one client, p99", "ms", figures.p99_ms),
    ]


def main() -> int:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pictures", metavar="FOLDER", help="draw the curves there, as SVG")

    asked = arguments(__doc__ or "", PARTS, more)
    rows: list[Row] = []
    if "saturation" in asked.parts:
        rows += saturation_rows(asked.quick, asked.pictures)
    parts = (
        ("decisions", decision_rows), ("line", line_rows), ("paths", path_rows), ("jobs", job_rows),
        ("grants", grant_rows),
    )  # fmt: skip
    for name, measure in parts:
        if name in asked.parts:
            rows += measure(asked.quick)
    report("placement", rows, asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
