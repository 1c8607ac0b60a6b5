"""Functions that hold barriers, warp operations and sleeps, called by name and by pointer."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import run

from rgpu_emu.ptx.errors import PtxError

STORE = "\nmul.wide.u32 %rd30, %tid, 4; add.u64 %rd30, %out, %rd30; st.u32 [%rd30], %r9;"
DATA = ZEROS = np.zeros(64, np.uint32)


def test_a_function_called_by_pointer_may_sleep() -> None:
    """It does not sleep, because it is not emitted where it is called. Called by name it lets other
    threads run.
    """
    before = """
    .func (.param .b32 r) doze(.param .b32 x)
    { .reg .b32 %r<3>; ld.param.b32 %r1, [x]; nanosleep.u32 %r1; add.u32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }
    .global .u64 table[1] = { doze };
    """
    body = """
    ld.global.u64 %rd1, [table];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (b), %rd1, (a), proto; ld.param.b32 %r9, [b]; }
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r9; call (b), doze, (a); ld.param.b32 %r9, [b]; }
    nanosleep.u32 5;
    """
    assert run(body + STORE, DATA, ZEROS, threads=64, before=before).tolist() == [
        t + 2 for t in range(64)
    ]


# Adds up the value among the threads that are together, in three ways.
GATHERED = """
    .func (.param .b32 r) {name}(.param .b32 x)
    {{
        .reg .pred %p; .reg .b32 %r<9>;
        ld.param.b32 %r1, [x]; activemask.b32 %r2; popc.b32 %r3, %r2;
        redux.sync.add.u32 %r4, %r1, %r2;
        vote.sync.any.pred %p, 1, %r2; bar.warp.sync %r2;
        mad.lo.u32 %r5, %r4, 100, %r3; add.u32 %r5, %r5, {more}; st.param.b32 [r], %r5; ret;
    }}
"""
BY_POINTER = """
    and.b32 %r2, %tid, 3; mul.wide.u32 %rd1, %r2, 8; mov.u64 %rd2, table; add.u64 %rd1, %rd1, %rd2;
    ld.global.u64 %rd1, [%rd1];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (b), %rd1, (a), proto; ld.param.b32 %r9, [b]; }
"""


def test_functions_called_by_pointer_hold_warp_operations() -> None:
    """Threads of one warp that call different functions are not together in them."""
    first, second = (
        GATHERED.format(name=name, more=more) for name, more in (("one", 0), ("two", 7))
    )
    plain = """.func (.param .b32 r) plain(.param .b32 x)
    { .reg .b32 %r<2>; ld.param.b32 %r1, [x]; st.param.b32 [r], %r1; ret; }"""
    exits = ".func (.param .b32 r) leaves(.param .b32 x) { exit; }"
    table = ".global .u64 table[4] = { one, two, plain, leaves };"
    before = first + second + plain + exits + table
    result = run(BY_POINTER + STORE, DATA, ZEROS, threads=64, before=before).tolist()
    for base in (0, 32):
        own = [sum(range(base + k, base + 32, 4)) * 100 + 8 for k in range(2)]
        assert [result[base + t] for t in range(32)] == [
            (own[0], own[1] + 7, base + t, 0)[t % 4] for t in range(32)
        ]


def test_a_function_that_may_call_itself_by_pointer_holds_none() -> None:
    inner = GATHERED.format(name="inner", more=0)
    outer = """.func (.param .b32 r) outer(.param .b32 x)
    { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.b32 %r1, [x]; mov.u64 %rd2, inner;
      { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;
        proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (b), %rd2, (a), proto; ld.param.b32 %r2, [b]; }
      st.param.b32 [r], %r2; ret; }"""
    before = inner + outer + ".global .u64 table[4] = { outer, inner, outer, inner };"
    with pytest.raises(PtxError, match="'outer' is called by pointer and holds a barrier"):
        run(BY_POINTER + STORE, DATA, ZEROS, threads=64, before=before)


def test_a_function_that_calls_itself_may_sleep() -> None:
    before = """
    .func (.param .b32 r) down(.param .b32 x)
    {
        .reg .pred %p; .reg .b32 %r<4>; ld.param.b32 %r1, [x]; mov.u32 %r3, 0; nanosleep.u32 1;
        setp.eq.u32 %p, %r1, 0; @%p bra done; sub.u32 %r2, %r1, 1;
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), down, (a); ld.param.b32 %r3, [b]; }
        add.u32 %r3, %r3, 1;
        done: st.param.b32 [r], %r3; ret;
    }
    """
    body = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; call (b), down, (a); ld.param.b32 %r9, [b]; }"
    assert run(body + STORE, DATA, ZEROS, threads=64, before=before).tolist() == list(range(64))
