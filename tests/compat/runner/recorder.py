"""A pytest plugin in the program's own environment: writes each report to a file as it comes.

So what ran before a time limit or a crash is known.  It needs nothing but pytest.
"""

from __future__ import annotations

import json
import os
from typing import Any

LONGEST_MESSAGE = 400
OUTCOMES = ("passed", "failed", "skipped")  # not "rerun", of pytest-rerunfailures


def pytest_runtest_logreport(report: Any) -> None:
    """Notes the outcome of a case, and of a set-up or a clean-up that did not pass."""
    if report.outcome in OUTCOMES and (report.when == "call" or report.outcome != "passed"):
        _note(report)


def pytest_sessionfinish(exitstatus: int) -> None:
    """Notes that there are no more cases."""
    _write({"finished": int(exitstatus)})


def pytest_collectreport(report: Any) -> None:
    """Notes a file that could not be imported, as a case of its own."""
    if report.outcome == "failed":
        _note(report)


def _note(report: Any) -> None:
    expected = hasattr(report, "wasxfail")
    outcome = "skipped" if expected and report.outcome != "failed" else report.outcome
    _write(
        {
            "case": report.nodeid,
            "outcome": outcome,
            "seconds": round(getattr(report, "duration", 0.0), 2),
            "message": "" if outcome == "passed" else _message(report),
        }
    )


def _write(row: dict[str, Any]) -> None:
    # Processes of pytest-xdist report to the first process, which alone writes.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ["RGPU_COMPAT_RECORD"], "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def _message(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)[:LONGEST_MESSAGE]
    if isinstance(report.longrepr, tuple):  # skipped: file, line, reason
        return str(report.longrepr[2])[:LONGEST_MESSAGE]
    return str(report.longrepr)[-LONGEST_MESSAGE:]
