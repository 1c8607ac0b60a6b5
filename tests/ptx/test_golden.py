"""The IR of small entries, word for word: a change of the emitter shows itself in review.

To renew a file, delete it and run the test: it is written, and the test fails once so that nobody misses it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ptx.program import source

from rgpu_emu.lower.shape import emit_entry
from rgpu_emu.lower.unit import Unit
from rgpu_emu.ptx.link import link

FOLDER = Path(__file__).parent / "golden"
BODIES = {
    "loop": "ld.global.u32 %r1, [%in]; add.u32 %r2, %r1, 1; st.global.u32 [%out], %r2;",
    "barrier": ".shared .b32 box; st.shared.u32 [box], %tid; bar.sync 0; ld.shared.u32 %r1, [box]; st.u32 [%out], %r1;",
    "back_edge": "again: sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra again;",
    "directed": "fma.rm.f32 %f1, %f2, %f3, %f4; fma.rz.f64 %fd1, %fd2, %fd3, %fd4;",
}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_golden(name: str) -> None:
    program = link([source(BODIES[name])])
    unit = Unit(program, program.entry("k"))
    emit_entry(unit, llvm_major=22)
    path = FOLDER / f"{name}.ll"
    if not path.exists():
        path.write_text(unit.text())
        pytest.fail(f"{path} was missing and has been written")
    assert unit.text() == path.read_text()
