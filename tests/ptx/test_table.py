"""The instruction table: each row has its section of the manual, and each is executed by some test."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rgpu_emu.lower import entry
from rgpu_emu.lower.registry import LOWERINGS
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.table import MANUAL, Row

assert entry.lower_entry is not None  # importing it registers the lowerings


def executed() -> set[Row]:
    """The rows that the FORMS and CASES of the other test files touch."""
    rows = set()
    for path in sorted(Path(__file__).parent.glob("test_*_forms.py")):
        module = importlib.import_module(f"ptx.{path.stem}")
        names = list(getattr(module, "FORMS", ()))
        for case in getattr(module, "CASES", ()):
            names += [part.split()[0] for part in case.text.split("; ")]
        rows |= {TABLE.form(name).row for name in names}
    return rows


def test_every_row_is_executed_by_a_test() -> None:
    rows = executed()
    missing = [f"{row.op} {row.pattern}" for row in TABLE.rows if row not in rows]
    assert not missing, missing


def test_every_row_names_its_section_and_a_lowering() -> None:
    for row in TABLE.rows:
        assert row.url.startswith(MANUAL)
        assert len(row.section) > 8
        assert row.lower in LOWERINGS, row


def test_no_row_names_two_slots_alike() -> None:
    for row in TABLE.rows:
        assert len({slot.name for slot in row.slots}) == len(row.slots), row


def test_no_two_rows_are_the_same() -> None:
    assert len({(row.op, row.pattern) for row in TABLE.rows}) == len(TABLE.rows)


@pytest.mark.parametrize(
    "name",
    [
        "add.s32",
        "ld.volatile.global.v2.f32",
        "setp.lt.and.ftz.f32",
        "cvt.rzi.ftz.s32.f32",
        "vote.ballot.sync.b32",
    ],
)
def test_forms_are_remembered(name: str) -> None:
    assert TABLE.form(name) is TABLE.form(name)


def test_a_form_is_no_prefix_of_another() -> None:
    for name in ("add", "ld.global", "setp.lt", "cvt.rn", "mul.lo."):
        with pytest.raises(PtxError):
            TABLE.form(name)
