"""What quotas cost: pairs of runs, one with quotas and one without, in turn."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import Row, say
from benchmarks.quota.logs import SECOND
from benchmarks.quota.scenarios import COMPUTE, MEDIUM, SHORT
from benchmarks.quota.tenants import Grant, Tenant, Work
from benchmarks.server import Server

PAIRS = 32
RUN_SECONDS = 0.8
WARM_NS = 150_000_000
# Two-sided, 95 %, for the degrees of freedom of PAIRS.
STUDENT = 2.040


def run(tenants: list[Tenant]) -> tuple[int, int]:
    """All of them at once; the window in which all queues were full."""
    begin = max(tenant.tell("go") for tenant in tenants) + WARM_NS
    time.sleep(RUN_SECONDS)
    end = time.time_ns()
    for tenant in tenants:
        tenant.tell("pause")
    for tenant in tenants:
        tenant.wait()
    return begin, end


def paired(program: Path, work: Work, shares: list[float], twin: list[float]) -> list[float]:
    """Of each pair what quotas took, as a part of what was done without them.

    shares: of the tenants with quotas; twin: of those without.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rgpu-quota-")))
        config = folder / "off.toml"
        config.write_text("[quota]\nenforce = false\n")
        sides = []
        for name, options, given in (("on", (), shares), ("off", ("--config", str(config)), twin)):
            server = stack.enter_context(Server(*options))
            sides.append([
                stack.enter_context(
                    Tenant(program, server, folder, f"{name}-{i}", work, Grant(share))
                )
                for i, share in enumerate(given)
            ])  # fmt: skip
        windows = []
        for pair in range(PAIRS):
            order = (0, 1) if pair % 2 == 0 else (1, 0)
            windows.append({side: run(sides[side]) for side in order})
        logs = [[tenant.finish() for tenant in side] for side in sides]
    costs = []
    for window in windows:
        on, off = (
            sum(log.pieces(*window[side]) for log in logs[side])
            * SECOND
            / (window[side][1] - window[side][0])
            for side in (0, 1)
        )
        costs.append(1 - on / off)
    return costs


def verdict(name: str, costs: list[float], at_most: float) -> Row:
    """Met if the 95 % interval lies under the bar, missed if it lies above, else undecided."""
    mean = 100 * statistics.fmean(costs)
    half = STUDENT * 100 * statistics.stdev(costs) / math.sqrt(len(costs))
    met = True if mean + half <= at_most else (False if mean - half > at_most else None)
    said = "" if met is not None else ", undecided"
    return Row(
        f"cost {name}", "%", mean, None, None,
        f"at most {at_most:g} % ({mean - half:.1f}..{mean + half:.1f}{said})", met,
    )  # fmt: skip


def rows(program: Path) -> list[Row]:
    """Alone and contended; without quotas a device of its own size is kept busy by one tenant."""
    half = [0.5, 0.5]
    plan: list[tuple[str, Callable[[], list[float]], float]] = [
        ("alone, short", lambda: paired(program, SHORT, [0.0], [0.0]), 1),
        ("alone, medium", lambda: paired(program, MEDIUM, [0.0], [0.0]), 1),
        ("contended, medium", lambda: paired(program, MEDIUM, half, [0.0]), 3),
        ("contended, short", lambda: paired(program, SHORT, half, [0.0]), 3),
        ("contended, compute", lambda: paired(program, COMPUTE, half, [0.0]), 3),
    ]
    found = []
    for name, measured, at_most in plan:
        row = verdict(name, measured(), at_most)
        say(f"{row.name}: {row.value:.2f} %, {row.target}")
        found.append(row)
    return found
