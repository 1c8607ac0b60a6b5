"""What the reports of a suite say, against the reasons of its row.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compat.runner.rows import Program, Reason

WORST = ("passed", "skipped", "failed")


@dataclass(frozen=True)
class Cause:
    """A reason and how many cases failed for it."""

    why: str
    failed: int
    outside: bool


@dataclass(frozen=True)
class Verdict:
    """What came of a suite.

    problems: sentences; without any, the suite is as its row says.
    """

    passed: int
    failed: int
    skipped: int
    causes: tuple[Cause, ...]
    problems: tuple[str, ...]


def outcomes(reports: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the worst report of each case.

    A case can have several: for its parts, or for its set-up and clean-up.
    """
    cases: dict[str, dict[str, Any]] = {}
    for report in reports:
        if "case" not in report:
            continue
        known = cases.get(report["case"])
        if known is None or _badness(report) > _badness(known):
            cases[report["case"]] = report
    return cases


def judge(program: Program, reports: Iterable[dict[str, Any]]) -> Verdict:
    """Counts the outcomes.

    A failure without a reason is a problem.  So is a reason that no failure needs any more, or
    one of whose cases passes.
    """
    reports = list(reports)
    cases = outcomes(reports)
    names: dict[str, list[str]] = {outcome: [] for outcome in WORST}
    for name, report in cases.items():
        names[report["outcome"]].append(name)
    problems = [] if cases else ["no case ran"]
    if not any("finished" in report for report in reports):
        problems.append("the suite did not come to its end")
    causes = []
    unexplained = set(names["failed"])
    for reason in program.reasons:
        mine = {name for name in unexplained if _concerns(reason, name)}
        unexplained -= mine
        causes.append(Cause(reason.why, len(mine), reason.outside))
        for pattern in reason.cases:
            problems += _stale(pattern, reason.why, names)
    problems += [f"{name} fails: {cases[name]['message']}" for name in sorted(unexplained)]
    counts = {outcome: len(found) for outcome, found in names.items()}
    return Verdict(**counts, causes=tuple(causes), problems=tuple(problems))


def _stale(pattern: str, why: str, names: dict[str, list[str]]) -> list[str]:
    """Returns a sentence if the failures do not need the pattern."""
    passed = [name for name in names["passed"] if matches(pattern, name)]
    if passed:
        return [f"{passed[0]} passes, but {pattern} has a reason: {why}"]
    if not any(matches(pattern, name) for name in names["failed"]):
        return [f"no case fails for {pattern}, which has a reason: {why}"]
    return []


def _concerns(reason: Reason, name: str) -> bool:
    return any(matches(pattern, name) for pattern in reason.cases)


def matches(pattern: str, name: str) -> bool:
    """True if the pattern is the name; `*` stands for any text.

    (Names of cases have brackets, which `fnmatch` takes for sets of characters.)
    """
    words = (re.escape(word) for word in pattern.split("*"))
    return re.fullmatch(".*".join(words), name, re.DOTALL) is not None


def _badness(report: dict[str, Any]) -> int:
    return WORST.index(report["outcome"])
