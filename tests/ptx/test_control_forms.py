"""Branches, tables, calls in all their kinds, ends of threads, special registers."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import HEADER, Kernel
from ptx.program import PROLOGUE, kernel, result_of, run

from rgpu_emu.lower.abi import FUNCTION_TOKEN

STORE = "\nmul.wide.u32 %rd30, %tid, 4; add.u64 %rd30, %out, %rd30; st.u32 [%rd30], %r9;"
ZEROS = np.zeros(32, np.uint32)


def test_loops_guards_and_nested_scopes() -> None:
    body = """
    mov.u32 %r9, 0; mov.u32 %r1, 0;
    again:
    { .reg .b32 %r1x; .reg .b32 mine; mov.u32 mine, 3; mov.u32 %r1x, mine; add.u32 %r9, %r9, %r1x; }
    add.u32 %r1, %r1, 1;
    setp.le.u32 %p1, %r1, %tid;
    @%p1 bra.uni again;
    { skip: add.u32 %r9, %r9, 100; setp.gt.u32 %p2, %r9, 150; @!%p2 bra over; bra skip2; skip2: add.u32 %r9, %r9, 1000; }
    over:
    { .reg .pred q; setp.eq.u32 q, %tid, 5; @q add.u32 %r9, %r9, 7; @!q sub.u32 %r9, %r9, 1; bra skip; skip: }
    """
    out = run(body + STORE, ZEROS, ZEROS)
    expected = []
    for t in range(32):
        v = 3 * (t + 1) + 100
        v += 1000 if v > 150 else 0
        expected.append(v + 7 if t == 5 else v - 1)
    assert out.tolist() == expected


def test_indexed_branches() -> None:
    body = """
    targets: .branchtargets one, two, three;
    rem.u32 %r1, %tid, 3;
    brx.idx %r1, targets;
    one: mov.u32 %r9, 10; bra done;
    two: mov.u32 %r9, 20; bra done;
    three: mov.u32 %r9, 30;
    done:
    """
    assert run(body + STORE, ZEROS, ZEROS).tolist() == [(10, 20, 30)[t % 3] for t in range(32)]
    assert result_of("t: .branchtargets a; mov.u32 %r1, 5; brx.idx.uni %r1, t; a:") == 719


def test_exit_ends_one_thread_even_inside_a_function() -> None:
    before = """
    .func leave(.param .b32 x) { .reg .b32 %r; .reg .pred %p; ld.param.b32 %r, [x]; setp.eq.u32 %p, %r, 3; @%p exit; ret; }
    """
    body = """
    { .param .b32 a; st.param.b32 [a], %tid; call leave, (a); }
    setp.gt.u32 %p1, %tid, 20; @%p1 exit;
    mov.u32 %r9, 1;
    """
    out = run(body + STORE, ZEROS, ZEROS, before=before)
    assert out.tolist() == [int(t != 3 and t <= 20) for t in range(32)]


def test_trap_ends_the_launch() -> None:
    assert result_of("trap;") == 719
    assert result_of("brkpt;") == 719
    assert result_of("setp.eq.u64 %p1, %in, 0; @%p1 trap;") == 0


def test_an_endless_loop_sees_the_stop_word() -> None:
    made = kernel("forever: bra forever;")
    assert made.launch_in_child((1,), (1,), np.uint64(0), np.uint64(0), stop=1) == 702


FUNCTIONS = """
.func (.param .b32 result) square(.param .b32 x)
{
    .reg .b32 %r<3>; ld.param.b32 %r1, [x]; mul.lo.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret;
}
.func (.param .align 8 .b8 result[16]) swap(.param .align 8 .b8 pair[16], .param .u64 extra)
{
    .reg .b64 %rd<4>; ld.param.v2.b64 {%rd1, %rd2}, [pair]; ld.param.u64 %rd3, [extra]; add.u64 %rd1, %rd1, %rd3;
    st.param.b64 [result], %rd2; st.param.b64 [result+8], %rd1; ret;
}
.func (.param .b32 result) fibonacci(.param .b32 n)
{
    .local .b32 keep; .reg .b32 %r<6>; .reg .pred %p;
    ld.param.b32 %r1, [n]; setp.lt.u32 %p, %r1, 2; @%p bra small;
    st.local.b32 [keep], %r1;
    { .param .b32 a; .param .b32 b; sub.u32 %r2, %r1, 1; st.param.b32 [a], %r2; call.uni (b), fibonacci, (a); ld.param.b32 %r3, [b]; }
    ld.local.b32 %r1, [keep];
    { .param .b32 a; .param .b32 b; sub.u32 %r2, %r1, 2; st.param.b32 [a], %r2; call.uni (b), fibonacci, (a); ld.param.b32 %r4, [b]; }
    add.u32 %r5, %r3, %r4; st.param.b32 [result], %r5; ret;
    small: st.param.b32 [result], %r1; ret;
}
"""


def test_calls_with_scalars_and_structures() -> None:
    body = """
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; call (b), square, (a); ld.param.b32 %r9, [b]; }
    { .param .align 8 .b8 p[16]; .param .u64 e; .param .align 8 .b8 q[16];
      cvt.u64.u32 %rd1, %tid; mov.u64 %rd2, 1000; st.param.v2.b64 [p], {%rd1, %rd2}; st.param.u64 [e], 5;
      call.uni (q), swap, (p, e); ld.param.b64 %rd3, [q]; ld.param.b64 %rd4, [q+8]; }
    cvt.u32.u64 %r1, %rd3; cvt.u32.u64 %r2, %rd4; add.u32 %r9, %r9, %r1; add.u32 %r9, %r9, %r2;
    """
    out = run(body + STORE, ZEROS, ZEROS, before=FUNCTIONS)
    assert out.tolist() == [t * t + 1000 + t + 5 for t in range(32)]


def test_recursion_with_locals() -> None:
    body = """{ .param .b32 a; .param .b32 b; and.b32 %r1, %tid, 15; st.param.b32 [a], %r1; call (b), fibonacci, (a); ld.param.b32 %r9, [b]; }"""
    fibonacci = [0, 1]
    while len(fibonacci) < 16:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert run(body + STORE, ZEROS, ZEROS, before=FUNCTIONS).tolist() == fibonacci * 2


def test_endless_recursion_ends_the_launch() -> None:
    before = ".func deeper(.param .b32 n) { .param .b32 m; .reg .b32 %r; ld.param.b32 %r, [n]; add.u32 %r, %r, 1; st.param.b32 [m], %r; call deeper, (m); ret; }"
    assert (
        result_of("{ .param .b32 m; st.param.b32 [m], 0; call deeper, (m); }", before=before) == 719
    )


INDIRECT = """
.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r; ld.param.b32 %r, [x]; add.u32 %r, %r, %r; st.param.b32 [r], %r; ret; }
.func (.param .b32 r) negate(.param .b32 x) { .reg .b32 %r; ld.param.b32 %r, [x]; neg.s32 %r, %r; st.param.b32 [r], %r; ret; }
.func nothing() { ret; }
.global .u64 table[3] = {twice, negate, nothing};
"""
POINTER_CALL = """
    mul.wide.u32 %rd1, %r1, 8; mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1; ld.global.u64 %rd3, [%rd2];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (b), %rd3, (a), prototype; ld.param.b32 %r9, [b]; }
"""


def test_calls_by_pointer() -> None:
    out = run("and.b32 %r1, %tid, 1;" + POINTER_CALL + STORE, ZEROS, ZEROS, before=INDIRECT).view(
        np.int32
    )
    assert out.tolist() == [-t if t & 1 else 2 * t for t in range(32)]


def test_a_pointer_of_another_signature_or_none_is_refused() -> None:
    assert result_of("mov.u32 %r1, 2;" + POINTER_CALL, before=INDIRECT) == 719
    forged = POINTER_CALL.replace(
        "ld.global.u64 %rd3, [%rd2];", f"mov.u64 %rd3, {FUNCTION_TOKEN | 3};"
    )
    assert result_of("mov.u32 %r1, 0;" + forged, before=INDIRECT) == 700


def test_function_address_in_a_register() -> None:
    body = """
    mov.u64 %rd3, negate; setp.lt.u32 %p1, %tid, 8; @%p1 mov.u64 %rd3, twice;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; targets: .calltargets twice, negate;
      call (b), %rd3, (a), targets; ld.param.b32 %r9, [b]; }
    """
    out = run(body + STORE, ZEROS, ZEROS, before=INDIRECT).view(np.int32)
    assert out.tolist() == [2 * t if t < 8 else -t for t in range(32)]


def test_the_runtime_functions() -> None:
    before = """
    .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
    .extern .func (.param .b64 r) malloc(.param .b64 n);
    .extern .func free(.param .b64 p);
    .global .align 1 .b8 text[4] = {37, 100, 10, 0};
    """
    body = """
    .local .align 8 .b8 arguments[8];
    mov.u64 %rd1, arguments; cvta.local.u64 %rd1, %rd1; st.u32 [%rd1], 42; mov.u64 %rd2, text; cvta.global.u64 %rd2, %rd2;
    { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd2; st.param.b64 [a], %rd1;
      call.uni (r), vprintf, (f, a); ld.param.b32 %r1, [r]; }
    { .param .b64 n; .param .b64 r; st.param.b64 [n], 16; call (r), malloc, (n); ld.param.b64 %rd3, [r]; }
    st.u32 [%rd3], 6; ld.u32 %r2, [%rd3]; add.u32 %r9, %r1, %r2;
    { .param .b64 p; st.param.b64 [p], %rd3; call free, (p); }
    """
    made = kernel(body + STORE, before=before)
    place = made.arena.put(ZEROS)
    made.launch((1,), (1,), np.uint64(0), np.uint64(place))
    assert made.arena.get(place, ZEROS)[0] == 7
    ((text, arguments),) = made.output
    assert made.arena.get(text, np.zeros(4, np.uint8)).tobytes() == b"%d\n\0"
    assert made.arena.get(arguments, np.zeros(1, np.int32))[0] == 42


def test_assertfail_ends_the_launch() -> None:
    before = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c) .noreturn;"
    scratch = " ".join(
        f".param .b{b} a{n}; st.param.b{b} [a{n}], 0;" for n, b in enumerate((64, 64, 32, 64, 64))
    )
    assert (
        result_of(f"{{ {scratch} call.uni __assertfail, (a0, a1, a2, a3, a4); }}", before=before)
        == 710
    )


def test_linked_modules_share_functions_and_variables() -> None:
    first = (
        HEADER
        + """
    .extern .func (.param .b32 r) helper(.param .b32 x);
    .extern .global .u32 shared_value;
    .func (.param .b32 r) own(.param .b32 x) { st.param.b32 [r], 1; ret; }
    .visible .entry k(.param .u64 in, .param .u64 out) {"""
        + PROLOGUE
        + """
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; call (b), helper, (a); ld.param.b32 %r9, [b]; }
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; call (b), own, (a); ld.param.b32 %r1, [b]; }
    ld.global.u32 %r2, [shared_value]; add.u32 %r9, %r9, %r2; add.u32 %r9, %r9, %r1;
    """
        + STORE
        + "ret; }"
    )
    second = (
        HEADER
        + """
    .visible .global .u32 shared_value = 1000;
    .func (.param .b32 r) own(.param .b32 x) { .reg .b32 %r; ld.param.b32 %r, [x]; mul.lo.u32 %r, %r, 10; st.param.b32 [r], %r; ret; }
    .visible .func (.param .b32 r) helper(.param .b32 x)
    { .param .b32 a; .param .b32 b; .reg .b32 %r; ld.param.b32 %r, [x]; st.param.b32 [a], %r; call (b), own, (a);
      ld.param.b32 %r, [b]; st.param.b32 [r], %r; ret; }
    """
    )
    made = Kernel([first, second])
    place = made.arena.put(ZEROS)
    made.launch((1,), (32,), np.uint64(0), np.uint64(place))
    assert made.arena.get(place, ZEROS).tolist() == [10 * t + 1001 for t in range(32)]


REGISTERS = {
    "%tid.x": lambda t, b: t % 8,
    "%tid.y": lambda t, b: t // 8 % 3,
    "%tid.z": lambda t, b: t // 24,
    "%ntid.x": lambda t, b: 8,
    "%ntid.y": lambda t, b: 3,
    "%ntid.z": lambda t, b: 2,
    "%ctaid.x": lambda t, b: b % 2,
    "%ctaid.y": lambda t, b: b // 2,
    "%ctaid.z": lambda t, b: 0,
    "%nctaid.x": lambda t, b: 2,
    "%nctaid.y": lambda t, b: 2,
    "%nctaid.z": lambda t, b: 1,
    "%laneid": lambda t, b: t % 32,
    "%warpid": lambda t, b: t // 32,
    "%nwarpid": lambda t, b: 2,
    "%smid": lambda t, b: 0,
    "%nsmid": lambda t, b: 1,
    "%gridid": lambda t, b: 7,
    "%lanemask_eq": lambda t, b: 1 << t % 32,
    "%lanemask_lt": lambda t, b: (1 << t % 32) - 1,
    "%lanemask_le": lambda t, b: (2 << t % 32) - 1,
    "%lanemask_gt": lambda t, b: ~((2 << t % 32) - 1) & 0xFFFFFFFF,
    "%lanemask_ge": lambda t, b: ~((1 << t % 32) - 1) & 0xFFFFFFFF,
    "%total_smem_size": lambda t, b: 24,
    "%dynamic_smem_size": lambda t, b: 8,
    "%ntid.w": lambda t, b: 1,
    "%tid.w": lambda t, b: 0,
    "%globaltimer_lo": lambda t, b: 123456789,
    "%is_explicit_cluster": lambda t, b: 0,
}


@pytest.mark.parametrize("coroutine", [False, True])
def test_special_registers(coroutine: bool) -> None:
    lines = [
        ".shared .b32 used[4]; st.shared.u32 [used], 1;",
        "mov.u32 %r1, %tid.z; mad.lo.u32 %r1, %r1, 3, %tid.y; mad.lo.u32 %r1, %r1, 8, %tid.x;",
        "mov.u32 %r2, %ctaid.y; mad.lo.u32 %r2, %r2, 2, %ctaid.x; mad.lo.u32 %r1, %r2, 48, %r1;",
        f"mul.wide.u32 %rd1, %r1, {4 * len(REGISTERS)}; add.u64 %rd1, %out, %rd1;",
    ]
    if coroutine:
        lines.append("bar.sync 0;")
    lines += [
        f"mov.u32 %r3, {name}; st.u32 [%rd1+{4 * n}], %r3;" for n, name in enumerate(REGISTERS)
    ]
    lines.append("mov.u64 %rd2, %clock64; mov.u64 %rd3, %globaltimer; mov.u32 %r4, %clock;")
    made = kernel("\n".join(lines))
    out = np.zeros((4, 48, len(REGISTERS)), np.uint32)
    place = made.arena.put(out)
    made.launch((2, 2), (8, 3, 2), np.uint64(0), np.uint64(place), dynamic=8)
    got = made.arena.get(place, out)
    for k, (name, expected) in enumerate(REGISTERS.items()):
        for b in range(4):
            assert got[b, :, k].tolist() == [expected(t, b) for t in range(48)], name


def test_instructions_without_effect() -> None:
    body = "griddepcontrol.launch_dependents; griddepcontrol.wait; pmevent 3; pmevent.mask 5; mov.u32 %r9, 4;"
    assert run(body + STORE, ZEROS, ZEROS).tolist() == [4] * 32


FORMS = [
    "bra",
    "bra.uni",
    "brx.idx",
    "call",
    "call.uni",
    "ret",
    "exit",
    "trap",
    "brkpt",
    "pmevent",
    "griddepcontrol.wait",
]
