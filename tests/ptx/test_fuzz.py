"""A short, seeded run of the kernel fuzzer (fuzz/kernels): no difference and no dead worker."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest
from helpers.builder import ROOT

sys.path.append(str(ROOT / "fuzz"))
from kernels.check import DifferenceError, check_damaged, check_valid, unoptimised
from kernels.device import Device
from kernels.draw import Drawing
from kernels.program import Writer

from rgpu_emu.lower.codegen import OPTIMISE_BELOW

VALID = 20
DAMAGED = 12


@pytest.mark.slow
def test_random_kernels_do_what_the_interpreter_says() -> None:
    seen: Counter[str] = Counter()
    with Device() as device:
        for seed in range(VALID):
            seen[check_valid(device, seed)] += 1
        for seed in range(DAMAGED):
            seen[check_damaged(device, seed)] += 1
    assert seen["ran"] > VALID // 2
    assert seen["illegal address"] > 0
    assert seen["damaged, ran"] > DAMAGED // 4
    assert seen["damaged, refused"] > 0


def test_programs_are_drawn_for_both_shapes_with_calls_and_atomics() -> None:
    texts = [Writer(Drawing(random.Random(seed)).program()).text() for seed in range(VALID)]
    alone = [text for text in texts if "bar.sync" not in text and "activemask" not in text]
    assert len(alone) > VALID // 10
    for what in ("call (r), f", "call (r), %x", "atom.global."):
        assert any(what in text for text in texts), what


@pytest.mark.parametrize("altered_byte", [0, 9])
def test_lowerings_that_do_not_agree_are_a_difference(altered_byte: int) -> None:
    text = Writer(Drawing(random.Random(1)).program()).text()
    device = Disagreeing(altered_byte)
    seed = next(s for s in range(100) if device.reaches(s))
    with pytest.raises(DifferenceError, match="without optimisation"):
        check_damaged(device, seed)  # type: ignore[arg-type]
    assert unoptimised(text).count("mov.u32 %idle, %idle;") == OPTIMISE_BELOW


class Disagreeing:
    """A device whose second lowering writes another byte."""

    def __init__(self, at: int) -> None:
        self._at = at

    def reaches(self, seed: int) -> bool:
        """Whether the case is compared."""
        try:
            check_damaged(self, seed)  # type: ignore[arg-type]
        except DifferenceError:
            return True
        return False

    def run(self, ptx: str, given: bytes, out: int, grid: int, block: int) -> dict[str, object]:
        wrong = bytearray(out)
        wrong[self._at] = int("%idle" in ptx)
        return {"result": 0, "call": "", "out": wrong.hex()}
