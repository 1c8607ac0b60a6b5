"""A short, seeded run of the kernel fuzzer (fuzz/kernels): no difference and no dead worker."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from helpers.builder import ROOT

sys.path.append(str(ROOT / "fuzz"))
from kernels.check import check_damaged, check_valid
from kernels.device import Device

VALID = 20
DAMAGED = 6


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
