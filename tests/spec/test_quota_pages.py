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
    "docs/explanation/quotas-memory.md": 24,
    "docs/explanation/quotas-tenants.md": 22,
    "docs/explanation/quotas.md": 19,
    "docs/how-to/small-cluster.md": 12,
}
# A file below tests/, and a function or a test of C++ in it.
NAMED = re.compile(r"`([a-z0-9_/]+\.(?:py|cc))::([a-z0-9_]+)`")
CC_TEST = re.compile(r"^TEST\(\w+, (\w+)\)", re.MULTILINE)
# The paths on which memory is charged name files. What names none is listed as not promised.
MEMORY = "docs/explanation/quotas-memory.md"
MEMORY_FILES = "`tests/worker/`"
NONE = "[none](#what-is-not-promised)"


def rows(page: str, column: str = "tests") -> list[tuple[str, str]]:
    """The first and the last cell of each row of the tables whose last column is `column`."""
    found: list[tuple[str, str]] = []
    in_table = False
    for line in (ROOT / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            in_table = False
        elif cells[-1] == column:
            in_table = True
        elif in_table and not set(line) <= set("|- "):
            found.append((cells[0], cells[-1]))
    return found


@cache
def functions(file: str) -> frozenset[str]:
    path = ROOT / "tests" / file
    if path.suffix == ".cc":
        return frozenset(CC_TEST.findall(path.read_text()) if path.is_file() else ())
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
    text = (ROOT / page).read_text()
    assert len(named) == text.count(".py::") + text.count(".cc::")


def test_each_path_on_which_memory_is_charged_names_files_that_are_there() -> None:
    paths = rows(MEMORY, MEMORY_FILES)
    assert len(paths) >= 20
    for path, cell in paths:
        files = re.findall(r"`([a-z_/]+\.(?:py|cc))`", cell)
        assert files or cell == NONE, path
        for file in files:
            folders = (ROOT / "tests/worker", ROOT / "tests/native", ROOT / "tests/shim", ROOT)
            assert any((folder / file).is_file() for folder in folders), (path, file)
