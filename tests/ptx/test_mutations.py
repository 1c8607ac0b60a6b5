"""Damaged PTX: the outcome is always a module or a PtxError, and an accepted module gives IR that
LLVM accepts.
"""

from __future__ import annotations

import random
import re

import llvmlite.binding as llvm
import pytest
from ptx.program import source

from rgpu_emu.lower.codegen import host
from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

BEFORE = """
.func (.param .b32 result) square(.param .b32 x)
{ .reg .b32 %r<3>; ld.param.b32 %r1, [x]; mul.lo.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret; }
.global .u64 table[1] = {square};
.const .f32 fixed[2] = {1.5, 0f00000000};
"""
BODY = """
    .local .align 8 .b8 mine[16]; .shared .b32 box[8];
    targets: .branchtargets one, two;
    and.b32 %r1, %tid, 1; brx.idx %r1, targets;
    one: mov.u32 %r9, 10; bra done; two: mov.u32 %r9, 20;
    done: { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; call (b), square, (a); ld.param.b32 %r9, [b]; }
    mov.b64 {%r1, %r2}, %rd1; setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3; selp.b32 %r3, %r1, 5, %p1;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+16]; st.shared.v2.u32 [box+8], {%r1, 7};
    atom.shared.cas.b32 %r5, [box], 0, %r1; shfl.sync.bfly.b32 %r2|%p1, %r1, 3, 31, 0xffffffff; bar.sync 0;
    mov.u64 %rd5, mine; cvta.local.u64 %rd4, %rd5; fma.rm.f32 %f1, %f2, %f3, 0f3F800000;
    cvt.rni.s32.f64 %r1, %fd1; lop3.b32 %r1, %r2, %r3, %r4, 0x96; prmt.b32 %r1, %r2, %r3, 0x3210;
    again: add.cc.u32 %r1, %r1, 1; addc.u32 %r2, %r2, 0; @%p1 bra again;
    mov.u64 %rd3, table; ld.global.u64 %rd3, [%rd3];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; pr: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (b), %rd3, (a), pr; }
    cvt.rn.f16.f32 %h1, %f1; fma.rn.f16 %h1, %h2, %h3, %h1; bfe.s32 %r1, %r2, 4, 5; mul.wide.s32 %rd1, %r1, %r2;
"""
SEED = source(BODY, before=BEFORE)
TOKEN = re.compile(r"[%$\w.:]+|[^\s]")
STRANGE = ["0", "-1", "99999999999", "0x", "%r9999", "{", "}", "[", ";", ",", "18446744073709551615", "%p1", "%rd1", "%f1",
           "_", "1.5", "|", "!", "@", ".reg", ".param", ".local .b8 x[-1];", "ret", "\0", "é"]  # fmt: skip


def mutate(rng: random.Random) -> str:
    text = SEED
    for _ in range(rng.choice((1, 1, 2, 3))):
        tokens = list(TOKEN.finditer(text))
        start, end = rng.choice(tokens).span()
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind in (1, 2):
            text = text[:start] + rng.choice(tokens).group() + text[end:]
        elif kind == 3:
            text = text[:start] + text[start:end] + " " + text[start:]
        else:
            text = text[:start] + rng.choice(STRANGE) + text[end:]
    return text


def outcome(text: str) -> int:
    """0 when every entry became IR that LLVM accepts, else the CUresult of the refusal."""
    try:
        program = link([text])
        for name in program.entries:
            unit, ir = emit_ir(program, name)
            unit.local_bytes()
            llvm.parse_assembly(ir).verify()
    except PtxError as error:
        return error.result
    return 0


@pytest.mark.parametrize("seed", range(6))
def test_damaged_text_is_refused_or_lowered(seed: int) -> None:
    host()
    rng = random.Random(seed)
    outcomes = {outcome(mutate(rng)) for _ in range(50)}
    assert {0, 218} <= outcomes <= {0, 218, 222, 801}


@pytest.mark.parametrize("cut", range(100, len(SEED), 97))
def test_every_prefix_is_refused_or_a_module(cut: int) -> None:
    host()
    assert outcome(SEED[:cut]) in (0, 218, 801)
