"""docs/explanation/security.md names a test for each promise, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text()
# A path with a folder in it that ends like a test, or a whole folder of tests. A function of the
# file may follow.
NAMED = re.compile(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.(?:py|cc))?)(?:::(test_[a-z0-9_]+))?`")


def rows() -> list[list[str]]:
    """The rows of the tables whose last column is called `tests`."""
    found: list[list[str]] = []
    in_table = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            in_table = False
        elif cells[-1] == "tests":
            in_table = True
        elif in_table and not set(line) <= set("|- "):
            found.append(cells)
    return found


def exists(path: str) -> bool:
    folders = (ROOT / "tests", ROOT)
    return any((folder / path).is_file() or any((folder / path).glob("*")) for folder in folders)


def test_each_promise_of_the_security_page_names_its_test() -> None:
    assert len(rows()) >= 70
    assert [cells[0] for cells in rows() if not NAMED.findall(cells[-1])] == []


@pytest.mark.parametrize(("path", "function"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_the_security_page_names_is_there(path: str, function: str) -> None:
    assert exists(path)
    assert not function or f"def {function}(" in (ROOT / "tests" / path).read_text()


def test_no_function_that_the_page_names_escapes_the_pattern() -> None:
    named = [function for _, function in NAMED.findall(PAGE) if function]
    assert len(named) == PAGE.count("::")


def test_the_prose_of_the_page_is_wrapped() -> None:
    long = [line for line in PAGE.splitlines() if len(line) > 100 and not line.startswith("|")]
    assert long == []
