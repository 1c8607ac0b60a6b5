"""Whether shares, caps and memory limits hold, how exactly, and what that costs.

Tenants are processes of `native/tenant.c`, over the wire, against a real server with an emulated
device; what they got is what the device itself counted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import Row, compiled, idle, machine, say, table
from benchmarks.quota import costs, curves, figures, memory
from benchmarks.quota.runs import Place, Result, measure
from benchmarks.quota.scenarios import FULL, LONG, MEDIUM, QUICK, SHORT, Scenario
from benchmarks.server import Server

OTHERS = ("cost", "memory")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.quota", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="NAME",
        help="scenarios whose name contains this, 'cost' or 'memory'; without any: all",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a few of them, within 40 seconds")
    parser.add_argument("--json", metavar="FILE", help="write figures and curves there")
    parser.add_argument("--pictures", metavar="FOLDER", help="draw the curves there, as SVG")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    return parser.parse_args()


def chosen(parts: Sequence[str], quick: bool) -> list[Scenario]:
    """The scenarios that a command line names."""
    every = QUICK if quick else FULL
    words = [part for part in parts if part not in OTHERS]
    if not parts:
        return list(every)
    return [s for s in every if any(word in s.name for word in words)]


def run_scenarios(program: Path, scenarios: Sequence[Scenario], quick: bool) -> list[Result]:
    results = []
    with Server() as server, tempfile.TemporaryDirectory(prefix="rgpu-quota-") as folder:
        place = Place(program, server, Path(folder), 1.0 if quick else 2.0)
        for scenario in scenarios:
            result = measure(place, scenario)
            got = " ".join(f"{100 * share:.2f}" for share in result.shares)
            say(f"{scenario.name}: {got} %; load {result.load:.1f}, "
                f"drift {100 * result.drift:.1f} %, run {result.attempts}")  # fmt: skip
            results.append(result)
    return results


def described(result: Result) -> dict[str, object]:
    """A result as JSON."""
    scenario = result.scenario
    works = {work for _, work in scenario.tenants}
    plain = len(works) == 1 and works <= {SHORT, MEDIUM, LONG}
    kind = (
        "storm"
        if scenario.storm
        else "caps"
        if scenario.lone
        else "shares"
        if plain
        else "mixtures"
    )
    body = asdict(result)
    body["scenario"] = result.scenario.name
    body["kind"] = "lending" if scenario.lender else kind
    body["granted"] = [[grant.share, grant.limit] for grant, _ in result.scenario.tenants]
    return body


def main() -> int:
    options = arguments()
    scenarios = chosen(options.parts, options.quick)
    if options.list:
        print("\n".join([*(s.name for s in scenarios), *OTHERS]))
        return 0
    rows: list[Row] = []
    results: list[Result] = []
    with compiled("tenant.c") as program:
        if scenarios:
            results = run_scenarios(program, scenarios, options.quick)
            rows += [row for result in results for row in figures.rows(result)]
        if not options.parts or "memory" in options.parts:
            rows += memory.rows()
        if "cost" in options.parts or not (options.parts or options.quick):
            rows += costs.rows(program)
    print(table(rows))
    load = os.getloadavg()[0]
    print(f"load of this machine now: {load:.1f}, {os.cpu_count()} processors; {idle()}")
    if options.pictures:
        curves.draw([described(result) for result in results], Path(options.pictures))
    if options.json:
        body = {
            "benchmark": "quota",
            "machine": {**machine(), "load": [r.load for r in results]},
            "rows": [asdict(row) for row in rows],
            "runs": [described(result) for result in results],
        }
        Path(options.json).write_text(json.dumps(body, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
