"""What the toy specification of five calls generates, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudaspec import check, generate, rows


@pytest.mark.parametrize(
    "name",
    [
        "codec.gen.h",
        "opcodes.gen.h",
        "work.gen.cc",
        "dispatch.gen.h",
        "dispatch.gen.cc",
        "driver_table.gen.h",
        "shim_calls.gen.h",
        "shim_exports.gen.cc",
        "shim_procaddr.gen.cc",
        "shim.map",
        "emu_exports.gen.cc",
        "cuda_abi.gen.h",
        "coverage.md",
        "opcodes.dict",
    ],
)
def test_toy_generates_its_golden(
    toy: Callable[..., rows.Spec], golden: Callable[[str, str], None], name: str
) -> None:
    golden(name, generate.ARTEFACTS[name](toy()))


def test_toy_keeps_every_rule(toy: Callable[..., rows.Spec]) -> None:
    check.check(toy())


@pytest.mark.parametrize("library", ["shim", "emu"])
def test_generated_calls_are_short(spec: rows.Spec, library: str) -> None:
    """A generated call has no ideas: its wrapper is five lines and at most two for the checks of
    its arguments, or one that refuses.
    """
    text = generate.ARTEFACTS[f"{library}_exports.gen.cc"](spec).partition("\nnamespace")[0]
    bodies = text.split("RGPU_EXPORT CUresult ")[1:]
    assert len(bodies) == len(spec.exported)
    assert max(body.rstrip().count("\n") for body in bodies) <= 6


def test_unchanged_files_keep_their_time(tmp_path: Path, toy: Callable[..., rows.Spec]) -> None:
    generate.write(toy(), tmp_path)
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    generate.write(toy(), tmp_path)
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before
    assert set(before) == set(generate.ARTEFACTS)
