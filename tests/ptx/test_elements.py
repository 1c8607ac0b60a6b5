"""Elements of variables by a number in a register, `variable[%r1 + 2]` (PTX manual, "Arrays as
operands")."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import run

TABLE = ".global .align 8 .u64 table[8] = {10, 11, 12, 13, 14, 15, 16, 17};"


@pytest.mark.parametrize("kind", ["u16", "s32", "u32", "u64"])
@pytest.mark.parametrize(("index", "first"), [("%n", 14), ("%n + 2", 16), ("%n-0x4", 10)])
def test_an_element_is_loaded(kind: str, index: str, first: int) -> None:
    """Threads 0 and 1 ask for elements 4 and 5, and what is added to them."""
    body = f"""
    .reg .{kind} %n; mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 4; cvt.{kind}.u32 %n, %r2;
    ld.global.u64 %rd1, table[{index}];
    mul.wide.u32 %rd2, %r1, 8; add.u64 %rd2, %rd2, %out; st.global.u64 [%rd2], %rd1;
    """
    out = run(body, np.zeros(1, np.uint64), np.zeros(2, np.uint64), threads=2, before=TABLE)
    assert out.tolist() == [first, first + 1]


def test_an_element_is_stored() -> None:
    body = """
    mov.u32 %r1, %tid.x; st.shared.u16 words[%r1 + 1], 7; bar.sync 0;
    ld.shared.u32 %r2, [words]; st.global.u32 [%out], %r2;
    """
    before = ".shared .align 4 .u16 words[4];"
    out = run(body, np.zeros(1, np.uint32), np.zeros(1, np.uint32), threads=1, before=before)
    assert out[0] >> 16 == 7
