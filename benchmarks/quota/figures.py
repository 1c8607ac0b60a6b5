"""Bars of the quota benchmark (docs/explanation/quotas.md), and which figures meet them.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness import Row
from benchmarks.quota.logs import MS, jain
from benchmarks.quota.runs import STEADY, Result
from benchmarks.quota.tenants import Work

LEAST_BOUND_PP = 2.0
SLICE_NS = 25 * MS
IN_FLIGHT_NS = 5 * MS
BUCKET_NS = 25 * MS
BACK_NS = 100 * MS


def longest_hold(work: Work) -> float:
    """L: one kernel, or a slice and half of what is in flight."""
    return max(work.kernel_ns, SLICE_NS + max(work.kernel_ns, IN_FLIGHT_NS) / 2)


def share_bound(result: Result, index: int) -> float:
    """What the share of a tenant may be off by, in percentage points."""
    share = result.scenario.tenants[index][0].share
    holds = [longest_hold(work) for _, work in result.scenario.tenants]
    others = sum(holds) - holds[index]
    off = ((1 - share) * holds[index] + share * others) / (result.end - result.start)
    return max(LEAST_BOUND_PP, 100 * off)


def cap_bound(result: Result) -> float:
    """What a lone tenant may be off its limit by, in percentage points."""
    ((grant, work),) = result.scenario.tenants
    off = (BUCKET_NS + work.kernel_ns * (1 - grant.limit)) / (result.end - result.start)
    return max(LEAST_BOUND_PP, 100 * off)


def rows(result: Result) -> list[Row]:
    """The figures of a scenario."""
    if result.scenario.lender:
        return _lending(result)
    if result.scenario.storm:
        return [_storm(result)]
    if result.scenario.lone:
        off = 100 * abs(result.shares[0] - result.scenario.tenants[0][0].limit)
        return [_judged(result, "off its limit", off, cap_bound(result))]
    return _shares(result)


def _storm(result: Result) -> Row:
    """What the first tenant is short of, with one kernel of the other tenant in the window that has
    not been made up for: its leases count as one.
    """
    (grant, own), (_, other) = result.scenario.tenants[:2]
    short = 100 * max(grant.share - result.held[0], 0.0)
    slack = (1 - grant.share) * longest_hold(own) + grant.share * longest_hold(other)
    bound = max(LEAST_BOUND_PP, 100 * slack / (result.end - result.start))
    return _judged(result, "the other's share is short by", short, bound)


def _shares(result: Result) -> list[Row]:
    grants = [grant.share for grant, _ in result.scenario.tenants]
    bounds = [share_bound(result, n) for n in range(len(grants))]
    name, total = result.scenario.name, 100 * sum(result.shares)
    index = jain([got / asked for got, asked in zip(result.shares, grants, strict=True)])
    done, bound = _worst(result.shares, grants, bounds)
    time, time_bound = _worst(result.held, grants, bounds)
    kept = True if total >= 98 else (None if _unsteady(result) else False)
    fair = True if index >= 0.99 else (None if _unsteady(result) else False)
    off = _pp(f"{name}: share error, time", time, time_bound)
    # A copy is stamped by two kernels, and its neighbours' turns may lie between them.
    whole = all(work.atomic for _, work in result.scenario.tenants)
    return [
        _judged(result, "share error, work", done, bound),
        *([off] if whole else []),
        Row(f"{name}: Jain", "", index, None, None, "at least 0.99" + _note(fair), fair),
        Row(f"{name}: conserved", "%", total, None, None, "at least 98 %" + _note(kept), kept),
    ]


def _worst(
    got: Sequence[float], asked: Sequence[float], bounds: Sequence[float]
) -> tuple[float, float]:
    """The error that is nearest to its bound, or furthest beyond, and that bound."""
    errors = [100 * abs(a - b) for a, b in zip(got, asked, strict=True)]
    return max(zip(errors, bounds, strict=True), key=lambda pair: pair[0] - pair[1])


def _unsteady(result: Result) -> bool:
    """A tenant alone was slower or faster afterwards than before: others used the machine."""
    return result.drift > STEADY


def _judged(result: Result, what: str, value: float, bound: float) -> Row:
    met = True if value <= bound else (None if _unsteady(result) else False)
    name = f"{result.scenario.name}: {what}"
    return Row(name, "pp", value, None, None, f"at most {bound:.1f} pp" + _note(met), met)


def _note(met: bool | None) -> str:
    return ", undecided" if met is None else ""


def _pp(name: str, value: float, bound: float) -> Row:
    return Row(name, "pp", value, None, None, f"at most {bound:.1f} pp", value <= bound)


def _lending(result: Result) -> list[Row]:
    name = result.scenario.name
    limit = (BACK_NS + max(work.kernel_ns for _, work in result.scenario.tenants)) / MS
    worst = max(delay for _, delay in result.wakes) / MS
    lent = 100 * lent_share(result)
    kept = True if lent >= 98 else (None if _unsteady(result) else False)
    target = f"at most {limit:.0f} ms"
    return [
        Row(f"{name}: back after", "ms", worst, None, None, target, worst <= limit),
        Row(f"{name}: lent", "%", lent, None, None, "at least 98 %" + _note(kept), kept),
    ]


def lent_share(result: Result) -> float:
    """What the borrower got while the lender slept, up to its first wake."""
    until = (result.wakes[0][0] - result.start) // result.step_ns
    values = result.curves[1][: max(int(until), 1)]
    return sum(values) / len(values)
