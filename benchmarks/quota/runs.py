"""Carries a scenario out and says what its tenants got of the device."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.quota.logs import MS, SECOND, Log, curve, held, together
from benchmarks.quota.scenarios import LONG, Scenario
from benchmarks.quota.tenants import Grant, Tenant, Work
from benchmarks.server import Server

WARM_SECONDS = 1.0
NAP_SECONDS = 2.0
# A machine on which a tenant alone does this much more or less afterwards shows only itself.
STEADY = 0.02
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where tenants run: their program, the server, a folder for the device's logs."""

    program: Path
    server: Server
    folder: Path
    solo_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Result:
    """What happened between start and end.

    shares: of each tenant, its work in relation to what one alone does in the same time.
    held: of each, the part of the time in which it had the device.
    drift: how much that changed from before to after.  wakes: moments at which the lender was
    told to go on, and how long until its first piece began, in ns.  attempts: runs until the
    machine was steady (the steadiest one is kept).
    """

    scenario: Scenario
    start: int
    end: int
    shares: tuple[float, ...]
    held: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]
    step_ns: int
    drift: float
    overlap_ns: float
    wakes: tuple[tuple[int, int], ...]
    piece_ns: tuple[float, ...]
    load: float
    attempts: int = 1


def measure(place: Place, scenario: Scenario) -> Result:
    """Runs a scenario until the machine was steady meanwhile, at most ATTEMPTS times."""
    best: Result | None = None
    for attempt in range(1, ATTEMPTS + 1):
        result = _once(place, scenario)
        if best is None or result.drift < best.drift:
            best = result
        if best.drift <= STEADY or place.solo_seconds < 2:
            return replace(best, attempts=attempt)
    assert best is not None
    return replace(best, attempts=ATTEMPTS)


def _once(place: Place, scenario: Scenario) -> Result:
    works = list(dict.fromkeys(work for _, work in scenario.tenants))
    with ExitStack() as stack:

        def start(name: str, work: Work, grant: Grant) -> Tenant:
            made = Tenant(place.program, place.server, place.folder, name, work, grant)
            return stack.enter_context(made)

        solo = [start(f"solo-{i}", work, Grant(0)) for i, work in enumerate(works)]
        tenants = [
            start(f"tenant-{i}", work, grant) for i, (grant, work) in enumerate(scenario.tenants)
        ]
        before = [_alone(place, tenant) for tenant in solo]
        begin, end, woken = _lend(tenants, scenario) if scenario.lender else _all(tenants, scenario)
        load = os.getloadavg()[0]
        after = [_alone(place, tenant) for tenant in solo]
        alone = [tenant.finish() for tenant in solo]
        logs = [tenant.finish() for tenant in tenants]
    rates, drifts = {}, []
    for work, log, first, second in zip(works, alone, before, after, strict=True):
        one, two = (log.work(*w) / (w[1] - w[0]) for w in (first, second))
        rates[work] = (one + two) / 2
        drifts.append(abs(one - two) / rates[work])
    return _result(scenario, (begin, end), logs, rates, max(drifts), woken, load)


def _alone(place: Place, tenant: Tenant) -> tuple[int, int]:
    long = tenant.work.kernel_ns >= LONG.kernel_ns
    return tenant.alone(place.solo_seconds * (2 if long else 1))


def _all(tenants: list[Tenant], scenario: Scenario) -> tuple[int, int, list[int]]:
    begin = max(tenant.tell("go") for tenant in tenants) + int(WARM_SECONDS * SECOND)
    time.sleep(WARM_SECONDS + scenario.seconds)
    for tenant in tenants:
        tenant.tell("pause")
    for tenant in tenants:
        tenant.wait()
    return begin, begin + int(scenario.seconds * SECOND), []


def _lend(tenants: list[Tenant], scenario: Scenario) -> tuple[int, int, list[int]]:
    """The first tenant sleeps and wakes; the others work all the time."""
    begin = max(tenant.tell("go") for tenant in tenants[1:]) + int(WARM_SECONDS * SECOND)
    time.sleep(WARM_SECONDS)
    end, woken = begin + int(scenario.seconds * SECOND), []
    nap = NAP_SECONDS / 2 if scenario.seconds < 8 else NAP_SECONDS
    while time.time_ns() + nap * SECOND < end:
        # Not in step with anybody's kernels.
        time.sleep(nap * (1 + 0.037 * len(woken)))
        woken.append(tenants[0].tell("go"))
        time.sleep(nap)
        tenants[0].tell("pause")
        tenants[0].wait()
    end = time.time_ns()
    for tenant in tenants[1:]:
        tenant.tell("pause")
        tenant.wait()
    return begin, end, woken


def _result(
    scenario: Scenario, window: tuple[int, int], logs: list[Log], rates: dict[Work, float],
    drift: float, woken: list[int], load: float,
) -> Result:  # fmt: skip
    begin, end = window
    scale = [(end - begin) * rates[work] for _, work in scenario.tenants]
    longest = max(work.kernel_ns for _, work in scenario.tenants)
    step = 100 * MS if longest < 100 * MS else 2 * SECOND
    if scenario.lender:
        step = 50 * MS if longest < 100 * MS else 250 * MS
    curves = tuple(
        tuple(value / rates[work] for value in curve(log, begin, end, step))
        for log, (_, work) in zip(logs, scenario.tenants, strict=True)
    )
    wakes = []
    for moment in woken:
        first = logs[0].first_begin(moment)
        wakes.append((moment, end - moment if first is None else first - moment))
    return Result(
        scenario=scenario,
        start=begin,
        end=end,
        shares=tuple(log.work(*window) / s for log, s in zip(logs, scale, strict=True)),
        held=tuple(ns / (end - begin) for ns in held(logs, begin, end)),
        curves=curves,
        step_ns=step,
        drift=drift,
        overlap_ns=together(logs, begin, end) if len(logs) > 1 else 0.0,
        wakes=tuple(wakes),
        piece_ns=tuple(log.median_piece() for log in logs),
        load=load,
    )
