"""The threads that are together at an `activemask`, in the reference runner."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import Kernel
from ptx.meeting import DATA, SCENES, THREADS, WORDS, expected
from ptx.program import source

from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.ptx.link import link


@pytest.mark.parametrize("name", SCENES)
def test_the_mask_belongs_to_the_place_and_those_who_come_together(name: str) -> None:
    scene = SCENES[name]
    kernel = Kernel(scene.ptx(), "k")
    out = np.zeros((THREADS, WORDS), np.uint32)
    place = kernel.arena.put(out)
    data = np.uint64(kernel.arena.put(np.array(DATA, np.uint32)))
    kernel.launch((1,), (THREADS,), data, np.uint64(place))
    assert kernel.arena.get(place, out).tolist() == expected(scene)


def test_where_a_thread_is_takes_one_store() -> None:
    """LLVM makes a memset of stores of zero side by side, in time that grows with the square of their number: 2,000
    `activemask` took it 13 s."""
    text = source("activemask.b32 %r1; add.u32 %r2, %r2, %r1;" * 7 + "st.u32 [%out], %r2;")
    ir = emit_ir(link([text]), "k")[1]
    assert ir.count("store <4 x i64>") == 7
    assert "store i64 0, ptr %t" not in ir
