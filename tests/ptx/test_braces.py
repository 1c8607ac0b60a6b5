"""Braces around one register, and the operands of loads, stores and copies that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import kernel, run

from rgpu_emu.ptx.errors import PtxError

WORDS = np.arange(1, 65, dtype=np.uint32) * 0x01020304


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cp.async.cg.shared.global [%r1], [%in], 8;", "copies 16 bytes"),
        ("cp.async.ca.shared.global.L2::cache_hint [%r1], [%in], 8;", "needs a cache policy"),
        ("cp.async.ca.shared.global [%r1], [%in], 8, %r2, %rd1;", "takes no cache policy"),
        ("ld.global.v2.b32 {%r1}, [%in];", "needs 2 registers"),
        ("ld.global.b32 {%r1, %r2}, [%in];", "vector operand without"),
        ("st.global.b32 [%out], {%r1, %r2};", "vector operand without"),
        ("atom.global.add.u32 {%r1, %r2}, [%out], %r3;", "not a register"),
        ("atom.global.add.u32 %r1, [%out], {%r2, %r3};", "cannot be read"),
        ("mov.b64 {%r1}, %rd1;", "does not fit"),
        ("ld.global.b32 {}, [%in];", "not an operand"),
        ("ld.global.b32 {{%r1}}, [%in];", "not an operand|vector"),
        ("add.u32 {%r1}, %r2, %r3;", "no destination register"),
        ("ld.global.b32 {%r1}, [%in], %rd1, %rd2;", "takes 3 operands"),
    ],
)
def test_wrong_operands_are_refused(line: str, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        kernel(line)
    assert caught.value.result == 218


def test_braces_around_one_register() -> None:
    """Compilers write one register as a vector of one element."""
    body = """
    ld.global.b32 { %r1 }, [ %in + 4 ]; st.global.b32 [ %out + 0 ], { %r1 };
    @%p1 ld.global.b32 {%r1}, [%in]; @!%p1 ld.global.nc.b32 {%r2}, [%in+8]; st.b32 [%out+4], {%r2};
    mov.b32 {%r3}, %r2; mov.u32 %r4, {%r3}; mov.b32 {%r5}, {5}; st.v2.b32 [%out+8], {%r4, %r5};
    ld.global.b64 {%rd1}, [%in+16]; st.global.b64 [%out+16], {%rd1};
    ld.global.b16 {%h1}, [%in+24]; st.global.b16 [%out+24], {%h1}; ld.global.b8 {_}, [%in];
    atom.global.gpu.acq_rel.add.u32 {%r6}, [%out+28], {%r5}; st.global.b32 [%out+32], {%r6};
    atom.global.cas.b32 {%r7}, [%out+36], {%r9}, {%r5}; red.global.add.u32 [%out+36], {%r5};
    ldu.global.f32 {%f1}, [%in+28]; st.f32 [%out+40], {%f1}; st.global.b32 [%out+44], {7};
    ld.param.b64 {%rd2}, [in]; ld.global.b32 {%r8}, [%rd2]; st.b32 [%out+48], {%r8};
    """
    start = np.zeros(13, np.uint32)
    start[7] = 100
    out = run(body, WORDS, start, threads=1)
    expected = [WORDS[1], WORDS[2], WORDS[2], 5, *WORDS[4:6], WORDS[6] & 0xFFFF, 105, 100, 10]
    assert out.tolist() == [*expected, WORDS[7], 7, WORDS[0]]
