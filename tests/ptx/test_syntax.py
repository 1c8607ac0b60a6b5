"""Forms of the PTX language that compilers seldom write: constant expressions, nested initial values, vector registers,
pragmas and attributes in headers."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import HEADER, Kernel
from ptx.program import run, source

from rgpu_emu.ptx.constants import constant
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

WORDS = np.arange(64, dtype=np.uint32) + 100


def words(body: str, count: int, before: str = "") -> list[int]:
    out = run(body, WORDS, np.zeros(max(count, 1), np.uint32), threads=1, before=before)
    return [int(v) for v in out[:count]]


# With the manual's rules: 64 bits, C's operators and precedence, unsigned if one side is.
EXPRESSIONS = {
    "(2+3)*4": 20,
    "2+3*4": 14,
    "1<<4|3": 19,
    "-7/2": -3,
    "-7%2": -1,
    "7U/2": 3,
    "~0": -1,
    "!0": 1,
    "!5": 0,
    "1 ? 2 : 3": 2,
    "0 ? 2 : 0 ? 3 : 4": 4,
    "5 > 3 && 2 >= 2": 1,
    "(-1) < 1": 1,
    "-1 < 1U": 0,
    "(.u64)-1 > 0": 1,
    "(.s64)0xFFFFFFFFFFFFFFFF": -1,
    "-1 >> 1": -1,
    "(.u64)-1 >> 63": 1,
    "0x7FFFFFFFFFFFFFFF + 1": -(1 << 63),
    "WARP_SZ*2": 64,
    "6 & 3 ^ 1 | 8": 11,
    "3 == 3 != 0": 1,
    "1 << 64": 0,
    "- - 3": 3,
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_constant_expressions(text: str) -> None:
    found = constant(text)
    assert found is not None
    assert (found.value + (1 << 63)) % (1 << 64) - (1 << 63) == EXPRESSIONS[text]


def test_expressions_where_literals_stand() -> None:
    before = ".global .u32 table[2*2] = {1<<4, (3+4)*2, ~0, -5};\n"
    body = """mov.u32 %r1, (2+3)*4; add.u32 %r2, %r1, 1<<4|3; ld.v4.u32 {%r3,%r4,%r5,%r6}, [table];
    st.v4.u32 [%out], {%r1,%r2,%r4,%r5}; st.u32 [%out+16], %r6;"""
    assert words(body, 5, before) == [20, 39, 14, 0xFFFFFFFF, 0xFFFFFFFB]


@pytest.mark.parametrize(
    ("declared", "want"),
    [
        ("a[2][2] = {{1,2},{3,4}}", [1, 2, 3, 4]),
        ("a[2][3] = {{1},{4,5,6}}", [1, 0, 0, 4, 5, 6]),
        ("a[][2] = { {-1,0}, {0,-1}, {1} }", [0xFFFFFFFF, 0, 0, 0xFFFFFFFF, 1, 0]),
        ("a[2][2][2] = {{{1},{2,3}},{{4,5}}}", [1, 0, 2, 3, 4, 5, 0, 0]),
        ("a[4] = {1, 2}", [1, 2, 0, 0]),
    ],
)
def test_nested_initial_values(declared: str, want: list[int]) -> None:
    loads = "".join(f"ld.u32 %r1, [a+{4 * n}]; st.u32 [%out+{4 * n}], %r1;" for n in range(len(want)))
    assert words(loads, len(want), f".global .u32 {declared};\n") == want


def test_nested_vectors_and_addresses() -> None:
    before = """.global .v2 .u32 pairs[2] = {{1,2},{3}};
    .global .u32 x = 7; .global .u64 table[2][2] = {{x, 0}, {generic(x), 5}};\n"""
    body = """ld.v4.u32 {%r1,%r2,%r3,%r4}, [pairs]; st.v4.u32 [%out], {%r1,%r2,%r3,%r4};
    ld.u64 %rd1, [table+16]; ld.u32 %r5, [%rd1]; ld.u32 %r6, [table+24]; st.v2.u32 [%out+16], {%r5, %r6};"""
    assert words(body, 6, before) == [1, 2, 3, 0, 7, 5]


@pytest.mark.parametrize(
    ("declared", "result"),
    [
        ("a[2][2] = {{1,2,3},{4}}", 218),
        ("a[2] = {{{1}}}", 218),
        ("a[2][2] = {{1},{2},{3}}", 218),
        ("a[2][2] = {{1},{2}", 218),
        ("a = {{1}}", 218),
        ("a[2][2000000000] = {{1}}", 801),
        ("a[1000][1000][1000] = {" + "{{1}}," * 900 + "}", 801),
    ],
)
def test_wrong_nested_initial_values(declared: str, result: int) -> None:
    text = f"{HEADER}.global .u8 {declared};\n.entry k() {{ ret; }}"
    with pytest.raises(PtxError) as caught:
        link([text])
    assert caught.value.result == result


def test_vector_registers() -> None:
    body = """.reg .v4 .u32 %v, %w; .reg .v2 .f32 pair; mov.v4.u32 %v, {3,4,5,6}; mov.v4.u32 %w, %v;
    add.u32 %w.y, %w.y, %v.w; add.u32 %w.b, %w.r, 100; st.v4.u32 [%out], %w;
    mov.v2.f32 pair, {0f3F800000, 0f40000000}; add.f32 pair.x, pair.x, pair.y; st.v2.f32 [%out+16], pair;
    { .reg .v2 .u32 %v; mov.v2.u32 %v, {8, 9}; st.v2.u32 [%out+24], %v; } st.u32 [%out+32], %v.x;"""
    assert words(body, 9) == [3, 10, 103, 6, 0x40400000, 0x40000000, 8, 9, 3]


def test_special_registers_as_vectors() -> None:
    body = ".reg .v4 .u32 %v; mov.v4.u32 %v, %ntid; st.v4.u32 [%out], %v; mov.v4.u32 %v, %nctaid; st.v4.u32 [%out+16], %v;"
    assert words(body, 8) == [1] * 8


CLUSTERS = {
    "clusterid": "ctaid", "nclusterid": "nctaid",
}  # fmt: skip


def test_a_launch_without_clusters_has_clusters_of_one_block() -> None:
    body = "".join(
        f"mov.u32 %r1, %{name}.{c}; mov.u32 %r2, %{same}.{c}; sub.u32 %r1, %r1, %r2; add.u32 %r9, %r9, %r1;"
        for name, same in CLUSTERS.items()
        for c in "xyz"
    )
    body += "mov.u32 %r3, %clusterid.x; mov.u32 %r4, %nclusterid.x;"
    body += "mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, %cluster_nctarank; mov.u32 %r7, %cluster_ctaid.x;"
    body += "mov.u32 %r8, %cluster_nctaid.x; mov.pred %p1, %is_explicit_cluster; selp.u32 %r10, 1, 0, %p1;"
    body += "mov.u32 %r11, %ctaid.x; mul.wide.u32 %rd1, %r11, 32; add.u64 %out, %out, %rd1;"
    body += "st.v4.u32 [%out], {%r9,%r3,%r4,%r5}; st.v4.u32 [%out+16], {%r6,%r7,%r8,%r10};"
    out = run(body, WORDS, np.zeros((3, 8), np.uint32), threads=1, grid=3)
    assert out.tolist() == [[0, n, 3, 0, 1, 0, 1, 0] for n in range(3)]


def test_unified_addresses_and_sinks_in_stores() -> None:
    body = "ld.global.v2.u32 {%r1, _}, [%in+4].unified; st.v4.u32 [%out], {%r1, %r1, %r1, %r1}; st.v4.u32 [%out], {5, _, 6, _};"
    assert words(body, 4) == [5, 101, 6, 101]


def test_headers() -> None:
    text = """.visible .entry k() .maxntid 32, 1, 1 .maxnreg 40 .pragma "nounroll", "x"; .minnctapersm 2 { ret; }
    .visible .func .attribute(.unified(0xAB, 0x2)) f() .noreturn { exit; }
    .visible .entry other() .pragma "y"; { call f; ret; }
    .extern .func g() .pragma "z";
    .visible .entry last() { ret; }\n"""
    program = link([HEADER + text])
    assert list(program.entries) == ["k", "other", "last"]
    assert program.entries["k"].max_threads == 32
    Kernel(HEADER + text, "other")


@pytest.mark.parametrize("name", ["%envreg0", "%envreg3", "%envreg31", "%pm8", "%clusterid", "%nothing"])
def test_special_registers_that_do_not_exist_are_named(name: str) -> None:
    with pytest.raises(PtxError) as caught:
        Kernel(source(f"mov.u32 %r1, {name};"))
    assert name == "%clusterid" or f"{name}" in str(caught.value)
    assert caught.value.result in (218, 801)
