"""The threads that are together at an `activemask`, in the reference runner."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import Kernel
from ptx.meeting import DATA, SCENES, THREADS, WORDS, expected


@pytest.mark.parametrize("name", SCENES)
def test_the_mask_belongs_to_the_place_and_those_who_come_together(name: str) -> None:
    scene = SCENES[name]
    kernel = Kernel(scene.ptx(), "k")
    out = np.zeros((THREADS, WORDS), np.uint32)
    place = kernel.arena.put(out)
    data = np.uint64(kernel.arena.put(np.array(DATA, np.uint32)))
    kernel.launch((1,), (THREADS,), data, np.uint64(place))
    assert kernel.arena.get(place, out).tolist() == expected(scene)
