"""The results as JSON, and the table of docs/reference/compatibility.md.  Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from compat.runner.judge import Verdict
from compat.runner.rows import Program

BEGIN = "<!-- suites of programs: written by make compat -->"
END = "<!-- end -->"
HEADER = (
    "| program | version | cases | passed | failed | skipped | why cases fail |",
    "| -- | -- | -- | -- | -- | -- | -- |",
)


def summary(program: Program, verdict: Verdict) -> dict[str, Any]:
    """Returns what the JSON file keeps of a program's run."""
    return {
        "version": program.version,
        "suite": program.suite,
        "passed": verdict.passed,
        "failed": verdict.failed,
        "skipped": verdict.skipped,
        "causes": [asdict(cause) for cause in verdict.causes if cause.failed],
    }


def share(result: dict[str, Any]) -> float:
    """Returns the share that passed of the cases that need nothing outside the driver API."""
    outside = sum(cause["failed"] for cause in result["causes"] if cause["outside"])
    ran = result["passed"] + result["failed"] - outside
    return result["passed"] / ran if ran else 0.0


def replaced(page: str, results: dict[str, dict[str, Any]]) -> str:
    """Returns the page with the table of these results.  ValueError: it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN!r} and {END!r}")
    rows = [_row(name, results[name]) for name in sorted(results)]
    return "\n".join([before + begin, "", *HEADER, *rows, "", END + after])


def _row(name: str, result: dict[str, Any]) -> str:
    program = f"{name}: {result['suite']}"
    cases = result["passed"] + result["failed"]
    why = "; ".join(f"{cause['failed']}: {cause['why']}" for cause in result["causes"]) or "-"
    counts = (cases, result["passed"], result["failed"], result["skipped"])
    return "| " + " | ".join([program, result["version"], *map(str, counts), why]) + " |"
