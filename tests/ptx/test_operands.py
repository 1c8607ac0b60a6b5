"""Every row of the instruction table with operands of all kinds, widths and counts: each instruction is lowered to
IR that LLVM accepts, or refused by name.  None meets a defect of the compiler."""

from __future__ import annotations

import random

import llvmlite.binding as llvm
import pytest
from ptx.program import source

from rgpu_emu.lower.codegen import host
from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.link import link
from rgpu_emu.ptx.table import Row

DRAWS = 6
REGISTERS = ("%p1", "%h1", "%r1", "%rd1", "%f1", "%fd1", "%q1", "%c1")
SOURCES = (
    *REGISTERS, "0", "-1", "7", "4294967296", "18446744073709551615", "1.5", "1e300", "1e400", "0f7F800001",
    "0dFFF8000000000000", "%tid.x", "%clock64", "%laneid", "box", "mine", "big", "table", "square", "box[1]", "table+8",
)  # fmt: skip
ADDRESSES = ("[%rd1]", "[%r1+4]", "[%in+-8]", "[box]", "[mine+12]", "[table]", "[big+8]", "[in]", "[8]",
             "[%rd1+18446744073709551615]", "[box+9999]", "[mine+-1]", "[%q1]", "[%f1]")  # fmt: skip
BEFORE = """
.func (.param .b32 result) square(.param .b32 x) { ret; }
.global .u64 table[4];
"""
DECLARED = """
    .reg .b128 %q<3>; .reg .b8 %c<3>;
    .shared .b32 box[4]; .local .align 8 .b8 mine[16];
    targets: .branchtargets one; one:
    { .param .align 8 .b8 big[32]; .param .b32 small;
"""


def vector(rng: random.Random, parts: tuple[str, ...]) -> str:
    count = rng.choice((1, 2, 2, 3, 4, 4, 8, 1000))
    kind = rng.choice(parts)
    return (
        "{"
        + ", ".join(kind if rng.random() < 0.9 else rng.choice(parts) for _ in range(count))
        + "}"
    )


def operand(rng: random.Random, letter: str) -> str:
    if letter in "dDP":
        if letter == "D" and rng.random() < 0.5:
            return vector(rng, (*REGISTERS, "_"))
        if letter == "P" and rng.random() < 0.5:
            return f"{rng.choice(REGISTERS)}|{rng.choice(('%p2', '%r2', '_'))}"
        return rng.choice((*REGISTERS, "_"))
    if letter in "sS":
        return vector(rng, SOURCES) if letter == "S" and rng.random() < 0.5 else rng.choice(SOURCES)
    if letter in "vV":
        part = rng.choice(("", "", ".b0", ".b3", ".h1", ".h10", ".b3210", ".b7654", ".h", ".x9"))
        minus = rng.choice(("", "", "-")) if letter == "v" else ""
        names = (*REGISTERS, "_") if letter == "V" else (*SOURCES, "[%rd1]", "{%r1}", "!%p1")
        return f"{minus}{rng.choice(('%r1', rng.choice(names)))}{part}"
    if letter in "pq":
        return rng.choice(("%p1", "!%p2", "1", "0", "%r1", "1.5", "%tid.x"))
    if letter == "m":
        return rng.choice(ADDRESSES)
    if letter == "l":
        return rng.choice(("one", "targets"))
    argument = ("small", "big", "%r1", "%q1", "7", "1.5", "%tid.x", "_", "box", "table", "%p1")
    one, two = rng.choice(argument), rng.choice(argument)
    return rng.choice((f"({one}), square, ({two})", f"square, ({two})", f"({one}), %rd1, ({two}), square",
                       f"({one}), vprintf, ({two}, {two})", f"malloc, ({one})"))  # fmt: skip


def instruction(rng: random.Random, row: Row) -> str:
    words = [row.op]
    for slot in row.slots:
        if not slot.optional or rng.random() < 0.4:
            words.append(rng.choice(sorted(slot.options)))
    letters = row.operands.split()
    letters = letters[: rng.randrange(row.counts[0], len(letters) + 1)]
    guard = rng.choice(("", "", "@%p1 ", "@!%p3 "))
    return f"{guard}{'.'.join(words)} {', '.join(operand(rng, w[0]) for w in letters)};"


def refusal(line: str) -> PtxError | None:
    try:
        unit, ir = emit_ir(link([source(DECLARED + line + "}", before=BEFORE)]), "k")
        unit.local_bytes()
        llvm.parse_assembly(ir).verify()
    except PtxError as error:
        return error
    return None


@pytest.mark.parametrize("op", sorted({row.op for row in TABLE.rows}))
def test_no_operands_meet_a_defect(op: str) -> None:
    host()
    rng = random.Random(op)
    for row in TABLE.rows:
        for _ in range(DRAWS if row.op == op else 0):
            line = instruction(rng, row)
            error = refusal(line)
            if error is not None:
                assert error.result in (218, 801), line
                assert "defect" not in str(error), line
                assert error.line or "nested" in str(error), (line, str(error))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mov.b32 %r1, {" + ", ".join(["%h1"] * 1000) + "};", "instruction 'mov.b32': 1000 elements do not make 32 bits"),
        ("mov.b64 {" + ", ".join(["%h1"] * 3) + "}, %rd1;", "instruction 'mov.b64': 3 elements do not make 64 bits"),
        ("mov.b16 %h1, {%c1, %c1, %c1, %c1};", "4 elements do not make 16 bits"),
        ("mov.pred %p1, {%p1, %p2};", "2 elements do not make 1 bits"),
        ("call (%q1), square, (%q1);", "16 bytes where 4 are declared"),
        ("add.u32 %r1, %r2, 1.5;", "a floating-point literal does not fit"),
    ],
)  # fmt: skip
def test_a_wrong_count_or_width_is_refused_with_instruction_and_line(line: str, words: str) -> None:
    error = refusal(line)
    assert error is not None
    assert words in str(error)
    assert error.line > 10
