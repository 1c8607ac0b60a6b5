"""Repeats a test whose figures are off while others took the processors away: other tests of the
run, other programs, or the host of the machine.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest
from _pytest.runner import runtestprotocol

from helpers.figures import OffFigure
from helpers.stolen import Stolen

TRIES = 5
# A fiftieth of the processors' time is some milliseconds in each of the windows that tests measure.
# The kernel's own threads take up to three quarters of that on a quiet machine.
ENOUGH = 0.02
# With so much taken in every try, the figure says nothing about rgpu: the test counts as skipped.
HOPELESS = 0.05
# How long a test waits for others before it is repeated, and how long they are watched.
CALM_SECONDS = 15.0
MOMENT_SECONDS = 0.5
BUSY = f"import time\nend = time.monotonic() + {MOMENT_SECONDS}\nwhile time.monotonic() < end: pass"
_REPEATED = "repeated"
_ERRORS = pytest.StashKey[list[BaseException]]()
_OFF_BESIDE_OTHERS = pytest.StashKey[bool]()


def measures(item: pytest.Item) -> bool:
    """Whether the test asserts figures, which are judged beside other tests first."""
    return item.get_closest_marker("measures") is not None


def must_be_alone(item: pytest.Item) -> bool:
    """Whether no other test may run beside the next run of this one."""
    if item.get_closest_marker("alone") is not None:
        return True
    beside_others = "turns" in getattr(item.config, "workerinput", {})
    return measures(item) and (not beside_others or item.stash.get(_OFF_BESIDE_OTHERS, False))


def remember_error(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Keeps what ended a phase of a test, because reports have only its text."""
    if call.excinfo is not None:
        item.stash.setdefault(_ERRORS, []).append(call.excinfo.value)


def run_beside_others(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs a test that measures. If figures are off, and nothing else, the run counts for nothing:
    then the test must be alone, and runs again.
    """
    item.stash[_ERRORS] = []
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if only_figures(item.stash[_ERRORS]):
        item.stash[_OFF_BESIDE_OTHERS] = True
        sentence = f"{item.nodeid}: a figure was off beside other tests: repeated"
        item.user_properties.append((_REPEATED, sentence))
        _end_fixtures(item)
        return True
    _tell(item, reports)
    return True


def run_undisturbed(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs a test; again if a figure was off while others took more than a fiftieth of the time.

    Every other failure is final at the first try, and so is every failure on a machine where others
    take nothing. A figure is not judged if they took a twentieth of the time even in the last
    try. The reports of the last try count, and say how often the test was repeated.
    """
    for left in reversed(range(TRIES)):
        item.stash[_ERRORS] = []
        stolen = Stolen()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        part = stolen.part()
        if not left or part < ENOUGH or not only_figures(item.stash[_ERRORS]):
            break
        sentence = (
            f"{item.nodeid}: a figure was off while others took {part:.0%} of the processors: "
            "repeated"
        )
        item.user_properties.append((_REPEATED, sentence))
        wait_for_calm()
        _end_fixtures(item)
    for report in reports:
        if report.failed and part >= HOPELESS and only_figures(item.stash[_ERRORS]):
            reason = f"not judged: others took {part:.0%} of the processors in the last try"
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, reason)
    _tell(item, reports)
    return True


def _end_fixtures(item: pytest.Item) -> None:
    """A fixture that failed is kept until it is torn down. What its end finds was disturbed too."""
    with contextlib.suppress(Exception):
        item.session._setupstate.teardown_exact(None)


def _tell(item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
    """Reports the run of a test that counts."""
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def only_figures(errors: Sequence[BaseException]) -> bool:
    """Whether something failed, and nothing but figures did."""
    return bool(errors) and all(isinstance(error, OffFigure) for error in errors)


def wait_for_calm() -> None:
    """Waits until processors that all work for a moment keep it, or until the patience is over."""
    end = time.monotonic() + CALM_SECONDS
    while time.monotonic() < end:
        stolen = Stolen()
        for process in [
            subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in os.sched_getaffinity(0)
        ]:
            process.wait()
        if stolen.part() < ENOUGH:
            return


def repetitions(stats: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """A sentence for each repetition of a test, from the reports of a whole run."""
    for reports in stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:  # type: ignore[attr-defined]
                    if name == _REPEATED:
                        yield str(value)
