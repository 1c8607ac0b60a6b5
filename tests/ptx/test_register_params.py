"""Functions with register parameters and register results, as Dr.Jit's virtual calls have."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import HEADER
from ptx.program import kernel, run

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

STORE = "\nmul.wide.u32 %rd30, %tid, 4; add.u64 %rd30, %out, %rd30; st.u32 [%rd30], %r9;"
ZEROS = np.zeros(64, np.uint32)


def each(body: str, before: str) -> list[int]:
    out: list[int] = run(body + STORE, ZEROS, ZEROS[:32], before=before).tolist()
    return out


MIXED = """
.func (.param .align 4 .b8 result[8]) mixed(.reg .u32 self, .reg .u64 wide, .param .align 4 .b8 more[8]) {
    .reg .u32 a, b;
    ld.param.u32 a, [more+4];
    add.u32 a, a, self;
    cvt.u32.u64 b, wide;
    add.u32 self, a, b;  // a parameter is a register like any other
    st.param.u32 [result+4], self;
}
"""


def test_beside_other_parameters() -> None:
    body = """
    .reg .u64 %w; cvt.u64.u32 %w, %tid;
    { .param .align 4 .b8 in[8]; .param .align 4 .b8 out[8];
      st.param.u32 [in+4], 1000;
      call.uni (out), mixed, (%tid, %w, in);
      ld.param.u32 %r9, [out+4]; }
    """
    assert each(body, MIXED) == [1000 + 2 * t for t in range(32)]


RESULT = """
.func (.reg .u32 half) halve(.reg .u32 n) {
    .reg .pred odd;
    .reg .u32 bit;
    and.b32 bit, n, 1;
    setp.eq.u32 odd, bit, 1;
    mov.u32 half, 77;
    @odd ret;
    shr.u32 half, n, 1;
    BACK
}
"""


@pytest.mark.parametrize("back", ["ret;", "", "ret.uni;"], ids=["ret", "the end", "ret.uni"])
def test_results(back: str) -> None:
    before = RESULT.replace("BACK", back)
    assert each("call (%r9), halve, (%tid);", before) == [
        77 if t % 2 else t // 2 for t in range(32)
    ]


def test_a_call_by_pointer() -> None:
    body = """
    .reg .u64 %p;
    mov.u64 %p, halve;
    shape: .callprototype (.reg .u32 _) _ (.reg .u32 _);
    call (%r9), %p, (%tid), shape;
    """
    assert each(body, RESULT.replace("BACK", "ret;")) == [
        77 if t % 2 else t // 2 for t in range(32)
    ]


@pytest.mark.parametrize("kind", ["b16", "u16", "f16", "s32", "f32", "b64", "f64"])
def test_types(kind: str) -> None:
    """The bits pass through, whatever the type says of them."""
    reg = {"16": "%h1", "32": "%r1", "64": "%rd1"}[kind[1:]]
    before = f".func (.reg .{kind} r) same(.reg .{kind} p) {{ mov.b{kind[1:]} r, p; ret; }}"
    widen = {"16": f"cvt.u32.u16 %r9, {reg};", "32": "mov.u32 %r9, %r1;"}
    body = f"cvt.u{kind[1:]}.u32 {reg}, %tid; call ({reg}), same, ({reg});"
    body += widen.get(kind[1:], "cvt.u32.u64 %r9, %rd1;")
    assert each(body, before) == list(range(32))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (".func f(.reg .pred p)", "is not a register parameter"),
        (".func f(.reg .u32 p[2])", "is not a register parameter"),
        (".func f(.reg .v2 .u32 p)", "is not a register parameter"),
        (".func f(.reg .u32 p, .reg .u32 p)", "declared twice"),
    ],
)
def test_what_is_refused(header: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        link([f"{HEADER}{header} {{ ret; }}\n.visible .entry k() {{ ret; }}"])


def test_the_hidden_variable_has_no_name() -> None:
    before = ".func f(.reg .u32 p) { .reg .u32 q; ld.param.u32 q, [p.reg]; ret; }"
    with pytest.raises(PtxError, match=r"'p\.reg' is not an operand"):
        kernel("call f, (%tid);", before=before)


def test_blocks_have_prototypes_of_their_own() -> None:
    """Dr.Jit names the prototype of every call `proto`."""
    functions = """
    .func (.param .b32 out) one(.param .b32 a) {
      .reg .b32 %a<3>; ld.param.b32 %a1, [a]; add.u32 %a1, %a1, 1; st.param.b32 [out], %a1; ret; }
    .func (.param .b64 out) two(.param .b64 a, .param .b32 b) {
      .reg .b64 %a<3>; .reg .b32 %b<2>; ld.param.b64 %a1, [a]; ld.param.b32 %b1, [b];
      cvt.u64.u32 %a2, %b1; add.u64 %a1, %a1, %a2; st.param.b64 [out], %a1; ret; }
    """
    body = """
    mov.u64 %rd1, one; mov.u64 %rd2, two;
    { proto: .callprototype (.param .b32 out) _(.param .b32 a);
      .param .b32 out; .param .b32 a; st.param.b32 [a], 5; call (out), %rd1, (a), proto;
      ld.param.b32 %r1, [out]; }
    { proto: .callprototype (.param .b64 out) _(.param .b64 a, .param .b32 b);
      .param .b64 out; .param .b64 a; .param .b32 b; st.param.b64 [a], 30; st.param.b32 [b], 4;
      call (out), %rd2, (a, b), proto; ld.param.b64 %rd3, [out]; }
    cvt.u32.u64 %r2, %rd3; st.global.v2.u32 [%out], {%r1, %r2};
    """
    out = run(body, np.zeros(1, np.uint32), np.zeros(2, np.uint32), threads=1, before=functions)
    assert out.tolist() == [6, 34]
