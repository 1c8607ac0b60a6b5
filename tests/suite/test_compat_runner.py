"""`make compat`: what the reports of a suite mean, the table, the rows, and a whole small suite."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from compat.runner import execute, page, prepare
from compat.runner.judge import judge, matches
from compat.runner.rows import Program, Reason, load_all

# Of what tests use, not of rgpu.
pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
RESULTS = Path(__file__).parents[1] / "compat" / "results.json"
END = {"finished": 0}


def program(*reasons: Reason) -> Program:
    return Program("some", "1.2", "its tests", ("some==1.2",), (), reasons=reasons)


def report(case: str, outcome: str, message: str = "") -> dict[str, Any]:
    return {"case": case, "outcome": outcome, "message": message, "seconds": 0.1}


def test_failures_are_counted_by_reason() -> None:
    reasons = (Reason(("t.py::sass*",), "needs SASS", outside=True), Reason(("t.py::b",), "slow"))
    found = judge(
        program(*reasons),
        [
            report("t.py::a", "passed"),
            report("t.py::b", "failed"),
            report("t.py::sass[1]", "failed"),
            report("t.py::sass[2]", "failed"),
            report("t.py::c", "skipped"),
            END,
        ],
    )
    assert found.problems == ()
    assert (found.passed, found.failed, found.skipped) == (1, 3, 1)
    assert [(c.why, c.failed, c.outside) for c in found.causes] == [
        ("needs SASS", 2, True),
        ("slow", 1, False),
    ]
    summary = page.summary(program(*reasons), found)
    assert page.share(summary) == 0.5


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ([END], "no case ran"),
        ([report("t.py::a", "passed")], "the suite did not come to its end"),
        ([report("t.py::b", "failed", "it broke"), END], "t.py::b fails: it broke"),
        ([report("t.py::a", "passed"), END], "t.py::a passes, but t.py::a* has a reason: because"),
        (
            [report("t.py::a1", "failed"), report("t.py::a2", "passed"), END],
            "t.py::a2 passes, but t.py::a* has a reason: because",
        ),
        (
            [report("t.py::c", "passed"), END],
            "no case fails for t.py::a*, which has a reason: because",
        ),
    ],
)
def test_problems(reports: list[dict[str, Any]], problem: str) -> None:
    assert problem in judge(program(Reason(("t.py::a*",), "because")), reports).problems


def test_the_worst_report_of_a_case_counts() -> None:
    reports = [
        report("t.py::a", "passed"),
        report("t.py::a", "failed"),
        report("t.py::a", "passed"),
    ]
    assert judge(program(), [*reports, END]).failed == 1


@pytest.mark.parametrize(
    ("pattern", "name", "same"),
    [
        ("t.py::a[1-x]", "t.py::a[1-x]", True),
        ("t.py::a[*]", "t.py::a[1-x]", True),
        ("t.py::a[1]", "t.py::a1", False),
        ("t.py::a", "t.py::ab", False),
        ("*::a", "x/t.py::a", True),
    ],
)
def test_patterns(pattern: str, name: str, same: bool) -> None:
    assert matches(pattern, name) is same


def test_the_table_is_replaced_and_nothing_else() -> None:
    result = {
        "version": "1.2",
        "suite": "its tests",
        "passed": 8,
        "failed": 2,
        "skipped": 1,
        "causes": [{"why": "needs SASS", "failed": 2, "outside": True}],
    }
    before = f"# Page\n\n{page.BEGIN}\nold\n{page.END}\n\nrest\n"
    after = page.replaced(before, {"some": result})
    assert "| some: its tests | 1.2 | 10 | 8 | 2 | 1 | 2: needs SASS |" in after.splitlines()
    assert "old" not in after
    assert after.startswith("# Page\n")
    assert after.endswith("\n\nrest\n")
    assert page.replaced(after, {"some": result}) == after
    with pytest.raises(ValueError, match="lacks the lines"):
        page.replaced("# Page\n", {})


def test_the_rows() -> None:
    programs = load_all([])
    assert len(programs) >= 11
    for row in programs:
        assert row.source is not None or row.own.is_dir()
        assert all(reason.cases and reason.why for reason in row.reasons)
        assert len(row.requires) == len(set(row.requires))
    with pytest.raises(ValueError, match="no such program: nothing"):
        load_all(["nothing"])


def test_the_page_has_the_kept_results() -> None:
    """So that nobody writes the table by hand."""
    text = PAGE.read_text()
    assert page.replaced(text, json.loads(RESULTS.read_text())) == text


SUITE = """
import ctypes, os, unittest
import pytest

def test_the_driver_is_there():
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0

def test_it_fails():
    assert 1 == 2

def test_it_ends_its_process():
    os._exit(3)

def test_after_it():
    pass

@pytest.mark.skip(reason="not here")
def test_left_out():
    pass

@pytest.mark.xfail
def test_known():
    assert False
"""


def test_a_whole_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs over the wire; a case that ends its process does not hide the cases after it."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_it.py").write_text(SUITE)
    monkeypatch.setattr(prepare, "python", lambda _: Path(sys.executable))
    monkeypatch.setattr(prepare, "tests", lambda _: tmp_path / "suite")
    row = program(Reason(("test_it.py::test_it_*",), "made to"))
    execute.run(row, "emulated:8GiB", tmp_path / "out")
    text = (tmp_path / "out" / "reports.jsonl").read_text()
    found = judge(row, map(json.loads, text.splitlines()))
    assert found.problems == (), (tmp_path / "out" / "output").read_text()
    assert (found.passed, found.failed, found.skipped) == (2, 2, 2)
