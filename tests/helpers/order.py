"""Which tests start first, so that the run ends soon: files that take long, and those that must be
alone last.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.undisturbed import must_be_alone

ROOT = Path(__file__).resolve().parents[2]
# Written by `pytest --write-longest`: seconds and file, one pair a line.
LONGEST = ROOT / "tests" / "longest.txt"
_LONG_SECONDS = 5


def folders(tests: Path) -> list[Path]:
    """Returns all folders of a folder of tests, in order."""
    return sorted(path for path in tests.glob("[a-z]*") if path.is_dir())


def in_turn(found: Sequence[Path], process: int, of: int) -> list[str]:
    """Returns the folders that one process of several reads, beginning with its own part of them.

    pytest compiles a file of tests once and keeps the result. Processes that all begin with the same
    file compile every file at the same time, each for itself: 12 s of a processor each.
    """
    first = process * len(found) // of
    return [str(path) for path in (*found[first:], *found[:first])]


def place(item: pytest.Item, *, longest_first: bool) -> tuple[bool, int, str]:
    """Returns a key to sort tests by. Tests of one file stay in their order. Where the longest are
    first, it is the same in whatever order the files were found.

    Few others have to wait for a test that must be alone if it is among the last. A file's tests
    stay in one process. If a long file began late, its process would work on while the others have
    nothing left to do.
    """
    path = item.nodeid.partition("::")[0]
    seconds = longest().get(path, 0) if longest_first else 0
    return must_be_alone(item), -seconds, path if longest_first else ""


def shuffled(item: pytest.Item, word: str) -> tuple[bool, bytes, bytes]:
    """Returns a key to sort tests by that puts files, and the tests of a file, in an order that
    only the word decides: all processes of a run have the same.
    """
    path = item.nodeid.partition("::")[0]
    return must_be_alone(item), _drawn(word, path), _drawn(word, item.nodeid)


def _drawn(*words: str) -> bytes:
    return hashlib.sha256("\0".join(words).encode()).digest()


@functools.cache
def longest() -> dict[str, int]:
    """Returns the files that take long, and for how many seconds."""
    rows = (line.split() for line in LONGEST.read_text().splitlines())
    return {path: int(seconds) for seconds, path in rows}


class Durations:
    """A plugin of the process that hands out the tests: writes the table of the files that took
    longest, at the end of a run.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a test's set-up, call or end to its file."""
        path = report.nodeid.partition("::")[0]
        self._seconds[path] = self._seconds.get(path, 0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes the table. Files that did not run keep their line."""
        known = {path: float(seconds) for path, seconds in longest().items()}
        rows = sorted({**known, **self._seconds}.items(), key=lambda row: (-round(row[1]), row[0]))
        lines = [
            f"{round(seconds)} {path}\n"
            for path, seconds in rows
            if seconds >= _LONG_SECONDS and (ROOT / path).exists()
        ]
        LONGEST.write_text("".join(lines))
