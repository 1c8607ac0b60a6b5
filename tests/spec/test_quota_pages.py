"""The pages of quotas name a test for each promise in their tables, and these tests are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each page, and how many promises it has at least.
PAGES = {
    "docs/explanation/quotas-tenants.md": 22,
    "docs/explanation/quotas.md": 14,
    "docs/how-to/small-cluster.md": 12,
}
# A file below tests/, and a function in it.
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def rows(page: str) -> list[tuple[str, str]]:
    """The first and the last cell of each row of the tables whose last column is `tests`."""
    found: list[tuple[str, str]] = []
    in_table = False
    for line in (ROOT / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            in_table = False
        elif cells[-1] == "tests":
            in_table = True
        elif in_table and not set(line) <= set("|- "):
            found.append((cells[0], cells[-1]))
    return found


@cache
def functions(file: str) -> frozenset[str]:
    path = ROOT / "tests" / file
    parsed = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(one.name for one in parsed.body if isinstance(one, kinds))


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_of_a_quota_page_names_its_test(page: str) -> None:
    assert len(rows(page)) >= PAGES[page]
    assert [promise for promise, tests in rows(page) if not NAMED.findall(tests)] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_a_quota_page_names_are_there(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text())
    assert [f"{file}::{name}" for file, name in named if name not in functions(file)] == []
    # Nothing that looks like a test escapes the pattern.
    assert len(named) == (ROOT / page).read_text().count("::test_")
