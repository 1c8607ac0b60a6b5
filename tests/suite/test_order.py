"""Which files start first, and that their assertions are rewritten once for all processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.assertion import rewrite
from helpers import order
from helpers.rewriting import rewrite_together


def item(path: str, *markers: str) -> Any:
    """Stands in for a test of a file."""
    return SimpleNamespace(
        nodeid=f"{path}::test",
        config=SimpleNamespace(workerinput={"turns": ""}),
        get_closest_marker=lambda name: name in markers or None,
        stash={},
    )


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A table of its own in place of tests/longest.txt."""
    path = tmp_path / "longest.txt"
    path.write_text("90 tests/a.py\n80 tests/suite/test_figures.py\n70 tests/suite/test_order.py\n")
    monkeypatch.setattr(order, "LONGEST", path)
    order.longest.cache_clear()
    yield path
    order.longest.cache_clear()


@pytest.mark.usefixtures("table")
def test_files_that_take_long_start_first_and_those_alone_last() -> None:
    items = [
        item("tests/unknown.py"),
        item("tests/suite/test_figures.py", "alone"),
        item("tests/suite/test_order.py"),
        item("tests/a.py", "measures"),
    ]
    ordered = sorted(items, key=lambda one: order.place(one, longest_first=True))
    assert [items.index(one) for one in ordered] == [3, 2, 0, 1]
    ordered = sorted(items, key=lambda one: order.place(one, longest_first=False))
    assert [items.index(one) for one in ordered] == [0, 2, 3, 1]


def test_the_table_is_written_from_a_run(table: Path) -> None:
    durations = order.Durations()
    for path, seconds in (
        ("tests/suite/test_order.py", 60.0),
        ("tests/suite/test_order.py", 35.4),
        ("tests/suite/__init__.py", 4.9),
    ):
        report: Any = SimpleNamespace(nodeid=f"{path}::test", duration=seconds)
        durations.pytest_runtest_logreport(report)
    durations.pytest_sessionfinish()
    # Without what is short, and a file that is gone.
    assert table.read_text() == "95 tests/suite/test_order.py\n80 tests/suite/test_figures.py\n"


def test_every_file_of_the_table_is_there() -> None:
    assert all((order.ROOT / path).is_file() for path in order.longest())


@pytest.mark.parametrize("bytecode", [True, False])
def test_assertions_are_rewritten_once_for_all_processes(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bytecode: bool
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not bytecode)
    monkeypatch.setattr(rewrite, "get_cache_dir", lambda path: path.parent / "__pycache__")
    seen: list[Path] = []
    rewritten = rewrite._rewrite_test

    def counting(path: Path, config: pytest.Config) -> Any:
        seen.append(path)
        return rewritten(path, config)

    monkeypatch.setattr(rewrite, "_rewrite_test", counting)
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("assert True\n")
    bad.write_text("(\n")
    for name in ("one run", "one run", "the next run"):
        (tmp_path / name).mkdir(exist_ok=True)
        rewrite_together(pytestconfig, [good, bad, tmp_path / "missing.py"], tmp_path / name)
    assert seen.count(good) == (1 if bytecode else 2)
    assert rewrite._read_pyc(good, rewrite.get_cache_dir(good) / f"test_good{rewrite.PYC_TAIL}")
    assert (tmp_path / "__pycache__").exists() is bytecode
