"""Memory on the stack: alloca, stacksave and stackrestore."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import kernel, result_of, run, source

from rgpu_emu.lower.stack import STACK_BYTES
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

STORE = "\nmul.wide.u32 %rd30, %tid, 4; add.u64 %rd30, %out, %rd30; st.u32 [%rd30], %r9;"
ZEROS = np.zeros(64, np.uint32)


def each(body: str, threads: int = 40, before: str = "") -> list[int]:
    out: list[int] = run(body + STORE, ZEROS, ZEROS[:threads], threads=threads, before=before).tolist()  # fmt: skip
    return out


@pytest.mark.parametrize("kind", ["u32", "u64"])
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_every_thread_has_memory_of_its_own(kind: str, barrier: str) -> None:
    """Two blocks of memory and a variable, in a loop and in a coroutine."""
    p, q, n = ("%r1", "%r2", "%r3") if kind == "u32" else ("%rd1", "%rd2", "%rd3")
    body = f"""
    .local .align 4 .b8 mine[8];
    st.local.u32 [mine+4], 1000; mov.{kind} {n}, 12; add.{kind} {n}, {n}, 8;
    alloca.{kind} {p}, {n}; alloca.{kind} {q}, {n}, 16; {barrier}
    st.local.u32 [{p}+16], %tid; st.local.u32 [{q}+16], 5; {barrier}
    ld.local.u32 %r4, [{p}+16]; ld.local.u32 %r5, [mine+4]; ld.local.u32 %r6, [{q}+16];
    add.u32 %r9, %r4, %r5; add.u32 %r9, %r9, %r6;
    sub.{kind} {n}, {p}, {q}; setp.lt.{kind} %p1, {n}, 20; @%p1 mov.u32 %r9, 0;
    and.b{kind[1:]} {n}, {q}, 15; setp.ne.{kind} %p1, {n}, 0; @%p1 mov.u32 %r9, 0;
    """
    assert each(body) == [1005 + t for t in range(40)]


def test_generic_addresses_are_aligned_and_reach_the_memory() -> None:
    body = """
    alloca.u64 %rd1, 3, 16; cvta.local.u64 %rd2, %rd1; st.u32 [%rd2], 9; ld.local.u32 %r9, [%rd1];
    and.b64 %rd3, %rd2, 15; cvt.u32.u64 %r1, %rd3; add.u32 %r9, %r9, %r1;
    """
    assert each(body) == [9] * 40


def test_the_stack_pointer_is_saved_and_restored() -> None:
    """A loop that frees what it takes runs for ever so long; the address repeats."""
    body = """
    stacksave.u64 %rd1; mov.u32 %r1, 0; mov.u64 %rd9, 0; mov.u32 %r9, 1;
    again: stacksave.u32 %r2; alloca.u64 %rd2, 1000; st.local.u32 [%rd2+996], %r1;
    setp.ne.u64 %p1, %rd9, 0; setp.ne.and.u64 %p2, %rd9, %rd2, %p1; @%p2 mov.u32 %r9, 0; mov.u64 %rd9, %rd2;
    stackrestore.u32 %r2; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 1000; @%p1 bra again;
    stacksave.u64 %rd3; setp.ne.u64 %p1, %rd3, %rd1; @%p1 mov.u32 %r9, 2;
    alloca.u64 %rd4, 16; stacksave.u64 %rd5; setp.ne.u64 %p1, %rd4, %rd5; @%p1 mov.u32 %r9, 3;
    """
    assert each(body) == [1] * 40


FUNCTION = """
.func (.param .b32 r) {name}(.param .b32 n)
{{
    .reg .b32 %r<6>; .reg .b64 %rd<3>; .local .b32 mine;
    ld.param.b32 %r1, [n]; st.local.u32 [mine], %r1; {barrier}
    alloca.u64 %rd1, 4000; st.local.u32 [%rd1+3996], %r1; {call} ld.local.u32 %r2, [%rd1+3996];
    ld.local.u32 %r3, [mine]; add.u32 %r2, %r2, %r3; st.param.b32 [r], %r2; ret;
}}
"""
CALL = "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], {a}; call (b), {name}, (a); ld.param.b32 {b}, [b]; }}\n"


@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_a_function_frees_its_memory_when_it_returns(barrier: str) -> None:
    """Called and inlined (with a barrier), eight times what the stack would hold at once."""
    inner = FUNCTION.format(name="inner", barrier=barrier, call="")
    call = CALL.format(a="7", b="%r4", name="inner")
    before = inner + FUNCTION.format(name="outer", barrier="", call=call)
    body = "alloca.u64 %rd1, 64; st.local.u32 [%rd1], 3; mov.u32 %r9, 0;\n"
    for _ in range(8):
        body += CALL.format(a="%tid", b="%r1", name="outer") + "add.u32 %r9, %r9, %r1;\n"
    body += "ld.local.u32 %r2, [%rd1]; add.u32 %r9, %r9, %r2;"
    assert each(body, before=before) == [16 * t + 3 for t in range(40)]


def test_recursion_with_memory_on_the_stack() -> None:
    before = """
    .func (.param .b32 r) down(.param .b32 n)
    {
        .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %rd;
        ld.param.b32 %r1, [n]; alloca.u64 %rd, 100; st.local.u32 [%rd], %r1; mov.u32 %r3, 0;
        setp.eq.u32 %p, %r1, 0; @%p bra done; sub.u32 %r2, %r1, 1;
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), down, (a); ld.param.b32 %r3, [b]; }
        done: ld.local.u32 %r4, [%rd]; add.u32 %r3, %r3, %r4; st.param.b32 [r], %r3; ret;
    }
    """
    body = CALL.format(a="%tid", b="%r9", name="down")
    assert each(body, before=before) == [t * (t + 1) // 2 for t in range(40)]


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (f"alloca.u64 %rd1, {STACK_BYTES}; st.local.u32 [%rd1], 1;", 0),
        (f"alloca.u64 %rd1, {STACK_BYTES + 1};", 719),
        (f"alloca.u32 %r1, {STACK_BYTES - 8}; alloca.u32 %r1, 16;", 719),
        ("alloca.u64 %rd1, 0xFFFFFFFFFFFFFFF0;", 719),
        ("alloca.u32 %r1, 0xFFFFFFF8;", 719),
        ("alloca.u64 %rd1, 0; stackrestore.u64 %rd1;", 0),
        ("stackrestore.u64 0;", 719),
        ("stacksave.u64 %rd1; add.u64 %rd1, %rd1, 1; stackrestore.u64 %rd1;", 719),
        ("stackrestore.u64 0xFFFFFFFFFFFFFFFF;", 719),
        # The pointer lies in the kernel's own memory, and a wrong one ends the launch.
        ("mov.u64 %rd1, 0; st.local.u64 [%rd1], 0; alloca.u64 %rd2, 8;", 719),
        ("mov.u64 %rd1, 0; st.local.u64 [%rd1], -1; stacksave.u64 %rd2;", 719),
    ],
)
def test_a_stack_that_is_too_small_or_damaged_ends_the_launch(body: str, result: int) -> None:
    assert result_of(body) == result


@pytest.mark.parametrize(
    ("line", "result", "words"),
    [
        ("alloca.u64 %rd1, 8, 3;", 218, "power of two"),
        ("alloca.u64 %rd1, 8, 0;", 218, "power of two"),
        ("alloca.u64 %rd1, 8, %r1;", 218, "power of two"),
        ("alloca.u64 %rd1, 8, 32;", 801, "alignment of 32"),
        ("alloca.u64 %r1, 8;", 218, "does not fit"),
        ("alloca.u32 %r1, %rd1;", 218, "does not fit"),
        ("stacksave.u64 %r1;", 218, "does not fit"),
        ("stackrestore.u32 %rd1;", 218, "does not fit"),
    ],
)
def test_wrong_operands_are_refused(line: str, result: int, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        kernel(line)
    assert caught.value.result == result


FORMS = ["alloca.u64", "stacksave.u32", "stackrestore.u64"]


def test_an_alignment_is_refused_when_the_module_loads() -> None:
    """One that is too great refuses its kernel, one that is no number the module."""
    text = source("alloca.u64 %rd1, 8, 32;") + ".visible .entry other() { ret; }"
    error = link([text]).refusals["k"]
    assert error.result == 801
    assert "alloca.u64 with an alignment of 32 is not supported" in str(error)
    assert error.line > 4
    with pytest.raises(PtxError, match="not a literal power of two") as caught:
        link([source("alloca.u64 %rd1, 8, 12;")])
    assert caught.value.result == 218
