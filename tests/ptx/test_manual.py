"""Every instruction of the PTX manual runs on the device or is refused for a stated reason (`manual.py`)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from ptx.manual import REFUSED, RUNS, RUNS_TOO
from ptx.program import source

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.link import link

MOST = 2000  # forms of a line; of more forms this many are drawn


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def choices(line: str) -> list[list[str]]:
    """The choices for each part of a name; '' is none."""
    return [["", *word[1:].split("|")] if word[0] == "?" else word.split("|") for word in line.split()]


def names(line: str) -> Iterator[str]:
    """The full names that a line of the manual stands for, or some of them."""
    parts = choices(line)
    count = 1
    for part in parts:
        count *= len(part)
    if count <= MOST:
        found: Iterator[tuple[str, ...]] = itertools.product(*parts)
    else:
        rng = random.Random(line)
        found = (tuple(map(rng.choice, parts)) for _ in range(MOST))
    for words in found:
        yield ".".join(word for word in words if word)


@pytest.mark.parametrize("line", lines(RUNS + RUNS_TOO))
def test_runs(line: str) -> None:
    for name in names(line):
        assert TABLE.form(name).name == name


@pytest.mark.parametrize(("reason", "line"), [(r, line) for r, text in REFUSED.items() for line in lines(text)])
def test_is_refused_for_its_reason(reason: str, line: str) -> None:
    for name in names(line):
        with pytest.raises(PtxError) as caught:
            TABLE.form(name)
        assert caught.value.result == 801
        assert str(caught.value) == f"instruction '{name}' {reason}"


def test_every_row_and_every_refusal_stands_in_the_list() -> None:
    """An opcode of the table is one of the manual's, and each refusal has a line that it is for."""
    listed = {op for line in lines(RUNS + RUNS_TOO) for op in choices(line)[0]}
    assert {row.op for row in TABLE.rows} == listed
    used = set()
    for text in REFUSED.values():
        for name in (name for line in lines(text) for name in names(line)):
            op, *parts = name.split(".")
            used.add(next(r for r in TABLE.refusals if r.fits(op, parts)))
    assert [r for r in TABLE.refusals if r not in used] == []


def test_the_reason_reaches_the_program() -> None:
    text = source("wgmma.fence.sync.aligned;") + ".visible .entry other() { ret; }"
    error = link([text]).refusals["k"]
    assert "'wgmma.fence.sync.aligned' needs sm_90a, and the emulated device is sm_80" in str(error)
    assert error.line > 4
