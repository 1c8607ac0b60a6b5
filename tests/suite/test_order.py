"""Which files start first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import order


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


def test_a_word_decides_an_order_that_keeps_files_together() -> None:
    items = [item(f"tests/{file}.py") for file in "abcdefgh" for _ in range(3)]
    for number, one in enumerate(items):
        one.nodeid += str(number)
    items.append(item("tests/last.py", "alone"))

    def files(word: str) -> list[str]:
        ordered = sorted(items, key=lambda one: order.shuffled(one, word))
        return [one.nodeid.partition("::")[0] for one in ordered]

    first, second = files("one"), files("another")
    assert first != second
    assert sorted(first) == sorted(second)
    for found in (first, second):
        assert found[-1] == "tests/last.py"
        assert len([1 for a, b in pairwise(found) if a != b]) == 8


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


def test_each_process_begins_with_its_own_part_of_the_folders() -> None:
    found = [Path(name) for name in "abcdefgh"]
    orders = ["".join(order.in_turn(found, process, 3)) for process in range(3)]
    assert orders == ["abcdefgh", "cdefghab", "fghabcde"]
    assert Path(__file__).parent in order.folders(order.ROOT / "tests")
