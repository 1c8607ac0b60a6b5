"""Numbers and names at the limits of PTX: they are read correctly, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import HEADER
from ptx.program import run, source

from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

INFINITY = 0x7F800000
BITS = np.zeros(4, np.uint32)


def words(body: str, data: list[int], before: str = "") -> list[int]:
    """The 32-bit words that one thread writes, which gets `data` in %r1, %r2 and so on."""
    loads = "".join(f"ld.global.u32 %r{n + 1}, [%in+{4 * n}];" for n in range(len(data)))
    out = run(loads + body, np.array(data, np.uint32), BITS, threads=1, before=before)
    return [int(word) for word in out]


@pytest.mark.parametrize(
    ("instruction", "given", "wanted"),
    [
        ("div.s32 %r3, %r1, 0xFFFFFFFF;", 0x80000000, 0x80000000),
        ("div.s32 %r3, %r1, 4294967295;", 7, 0xFFFFFFF9),
        ("rem.s32 %r3, %r1, 4294967295;", 0x80000000, 0),
        ("div.u32 %r3, %r1, 4294967296;", 7, 0xFFFFFFFF),
        ("rem.u32 %r3, %r1, 4294967296;", 7, 7),
        ("div.u32 %r3, %r1, 0xFFFFFFFF;", 0xFFFFFFFF, 1),
    ],
)
def test_a_literal_divisor_is_taken_in_the_type_of_the_division(
    instruction: str, given: int, wanted: int
) -> None:
    """Division by what becomes 0 or -1 there is no undefined behaviour of the host."""
    assert words(instruction + "st.global.u32 [%out], %r3;", [given])[0] == wanted


def test_a_literal_that_a_format_cannot_hold_is_an_infinity() -> None:
    body = """
        mov.f32 %f1, 1e300; st.global.f32 [%out], %f1;
        add.f32 %f1, %f1, 0dFE37E43C8800759C; mov.f32 %f2, 0f3F800000;
        mul.f32 %f2, %f2, 0dFE37E43C8800759C; st.global.f32 [%out+4], %f2;
        mov.b16 %h1, 0x3C00; add.f16 %h1, %h1, 0f7F7FFFFF; st.global.b16 [%out+8], %h1;
        mov.u64 %rd1, large; ld.global.u32 %r1, [%rd1]; st.global.u32 [%out+12], %r1;
    """
    found = words(body, [], before=".global .f32 large = 1e300;\n")
    assert found == [INFINITY, INFINITY | 1 << 31, 0x7C00, INFINITY]


def test_offsets_wrap_as_addresses_do() -> None:
    body = "ld.global.u32 %r3, [%in+18446744073709551612+8]; st.global.u32 [%out+-4+8], %r3;"
    assert words(body, [5, 6])[1] == 6
    body = "add.u64 %rd1, %in, 8; ld.global.u32 %r3, [ %rd1 - 4 ]; st.global.u32 [%out], %r3;"
    assert words(body, [5, 6])[0] == 6


@pytest.mark.parametrize(
    ("declaration", "wanted"),
    [
        (".global .b8 x[-1];", "'-1' is not an array size"),
        (".global .b8 x[2-3];", "is not an array size"),
        (".global .b8 x[%];", "'%' is not an array size"),
        (".global .b32 x[4294967296][4294967296];", "x is too large"),
        (".global .align 0 .b8 x[4];", "not a power of two"),
        (".global .align 3 .b8 x[4];", "not a power of two"),
        (".global .align -4 .b8 x[4];", "not a power of two"),
        (".global .u32 x = 1.5;", "not an initial value of a .u32"),
        (".global .u64 x = y z;", "'y z' is not an initial value"),
        ("/* .global .u32 x;", "a comment is not closed"),
    ],
)
def test_sizes_and_values_that_are_none_are_refused(declaration: str, wanted: str) -> None:
    with pytest.raises(PtxError, match=wanted) as caught:
        link([HEADER + declaration + ".entry k() { ret; }"])
    assert caught.value.result == 218


@pytest.mark.parametrize("space", ["shared", "local"])
def test_more_memory_of_a_block_than_there_is_is_refused(space: str) -> None:
    body = f".{space} .b8 x[4294967296]; mov.u64 %rd1, x; st.global.u64 [%out], %rd1;"
    with pytest.raises(PtxError, match=f"4294967296 bytes of (static )?{space} memory"):
        lower_entry(link([source(body)]), "k")


def test_the_alignment_behind_ptr_is_that_of_what_the_parameter_points_to() -> None:
    """A program that packs its parameters itself puts the pointer at 8 and the byte at 16."""
    header = "(.param .u32 n, .param .u64 .ptr .global .align 16 p, .param .align 16 .u8 b)"
    entry = link([HEADER + f".visible .entry k{header} {{ ret; }}"]).entry("k")
    assert layout(entry.prototype.params) == ([(0, 4), (8, 8), (16, 1)], 17)


def test_a_range_of_registers_may_end_with_a_digit() -> None:
    body = """
        .reg .b32 %n1<12>; mov.u32 %n10, 7; mov.u32 %n111, 8;
        st.global.u32 [%out], %n10; st.global.u32 [%out+4], %n111;
    """
    assert words(body, [])[:2] == [7, 8]
    with pytest.raises(PtxError, match="%n112 is not declared"):
        link([source(".reg .b32 %n1<12>; mov.u32 %n112, 7;")])


def test_a_name_of_an_inner_block_hides_the_outer_one() -> None:
    body = """
        mov.u32 %r1, 1; mov.u32 %r9, 2;
        { .reg .b32 %r<2>, x9; mov.u32 %r1, 3; mov.u32 x9, 4; st.global.u32 [%out], %r1;
          st.global.u32 [%out+4], %r9; { .reg .b32 %r1; mov.u32 %r1, x9; st.global.u32 [%out+8], %r1; } }
        st.global.u32 [%out+12], %r1;
    """
    assert words(body, []) == [3, 2, 4, 1]


@pytest.mark.parametrize(
    "text", ["ld.u32 %r1, [%in;", "mov.b64 %rd1, {%r1, %r2;", "ld.v2.u32 {%r1, %r2},, [%in];"]
)
def test_brackets_that_are_not_closed_and_commas_too_many_are_refused(text: str) -> None:
    with pytest.raises(PtxError) as caught:
        link([source(text)])
    assert caught.value.result == 218


def test_a_vector_access_has_256_bits_at_most() -> None:
    registers = ", ".join(f"%q{n}" for n in range(8))
    with pytest.raises(PtxError, match="moves more than 256 bits"):
        lower_entry(
            link([source(f".reg .b128 %q<8>; ld.param.v8.b128 {{{registers}}}, [%r1];")]), "k"
        )


def test_the_names_of_a_very_large_module_are_checked_behind_labels_lines_and_guards() -> None:
    body = ".loc 1 2 3\n\n L1: L2: @!%p1\n  frobnicate.b32 %r1;"
    text = source(body) + " " * (4 << 20)
    with pytest.raises(PtxError, match="frobnicate") as caught:
        link([text])
    assert text.splitlines()[caught.value.line - 1].strip().startswith("frobnicate")


def test_a_name_far_into_a_very_large_module_is_refused_with_its_line() -> None:
    lines = ["@%p1 add.u32 %r1, %r1, 1;", "L{n}: ret; { add.u32 %r1, %r1, 1; }", ".loc 1 2 {n}", "ret;"]  # fmt: skip
    body = "\n".join(line.replace("{n}", str(n)) for n in range(60_000) for line in lines)
    text = source(body + "\nmov.u32 %r1, 1; frobnicate.b32 %r1;\n" + body.replace("L", "M"))
    with pytest.raises(PtxError, match="frobnicate") as caught:
        link([text])
    assert "frobnicate" in text.splitlines()[caught.value.line - 1]


def test_braces_in_strings_do_not_end_a_function() -> None:
    second = '.visible .entry l() { .pragma "{"; ret; }\n'
    program = link([source('.pragma "}"; { ret; } .pragma "}}";') + second])
    assert list(program.entries) == ["k", "l"]
    for name in program.entries:
        lower_entry(program, name)


def test_addresses_of_32_bits_wrap() -> None:
    """NVRTC counts down from the base of shared memory and adds the distance in the access."""
    body = """
    mov.u32 %r1, 0; sub.u32 %r1, %r1, 128; st.shared.u32 [%r1+132], 77;
    mov.u32 %r2, 4; ld.shared.u32 %r3, [%r2]; st.global.u32 [%out], %r3;
    """
    before = ".shared .align 4 .b8 here[256];"
    out = run(body, np.zeros(1, np.uint32), np.zeros(1, np.uint32), threads=1, before=before)
    assert out[0] == 77
