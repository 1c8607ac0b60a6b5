"""Loads, stores, moves and address conversions in every state space."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import HEADER, Kernel
from ptx.program import run

from rgpu_emu.ptx.types import TYPES

WORDS = np.arange(1, 65, dtype=np.uint32) * 0x01020304
TYPED = (
    "b8",
    "b16",
    "b32",
    "b64",
    "u8",
    "u16",
    "u32",
    "u64",
    "s8",
    "s16",
    "s32",
    "s64",
    "f32",
    "f64",
)
# Spellings of a load and of a store that mean the plain one here.
LOADS = (
    "",
    ".global",
    ".global.nc",
    ".global.ca",
    ".global.cg",
    ".global.cs",
    ".global.lu",
    ".global.cv",
    ".volatile.global",
    ".relaxed.gpu.global",
    ".acquire.sys.global",
    ".weak.global",
    ".mmio.relaxed.sys.global",
    ".mmio.relaxed.sys",
    ".volatile",
    ".relaxed.cta",
    ".global.L1::no_allocate",
    ".global.nc.L1::no_allocate.L2::128B",
    ".global.L2::256B",
)
STORES = (
    "",
    ".global",
    ".global.wb",
    ".global.cg",
    ".global.cs",
    ".global.wt",
    ".volatile.global",
    ".relaxed.gpu.global",
    ".release.gpu.global",
    ".weak.global",
    ".mmio.relaxed.sys.global",
    ".volatile",
    ".global.L1::evict_last",
)
SPELLED = [f"ld{how}.u32" for how in LOADS] + [f"st{how}.u32" for how in STORES]


def register(kind: str) -> str:
    bits = TYPES[kind].bits
    return {8: "%h1", 16: "%h1", 32: "%r1", 64: "%rd1"}[bits]


@pytest.mark.parametrize("space", ["global", "shared", "local", ""])
def test_every_type_in_every_space(space: str) -> None:
    lines, before = [], ".shared .align 8 .b8 window[64];\n"
    place = {"global": "%in", "": "%in", "shared": "window", "local": "mine"}[space]
    if space == "local":
        lines.append(".local .align 8 .b8 mine[64];")
    if space in ("shared", "local"):
        lines += [
            f"ld.global.u64 %rd{k + 10}, [%in+{8 * k}]; st.{space}.u64 [{place}+{8 * k}], %rd{k + 10};"
            for k in range(8)
        ]
    dot = f".{space}" if space else ""
    for n, kind in enumerate(TYPED):
        size = TYPES[kind].bytes
        lines.append(f"ld{dot}.{kind} {register(kind)}, [{place}+{8 + size}];")
        lines.append(
            f"st.global.u64 [%out+{32 * n}], 0;\nst.global.{kind} [%out+{32 * n}], {register(kind)};"
        )
        if size < 4:  # into a wider register, extended by the type's sign
            lines.append(
                f"ld{dot}.{kind} %r2, [{place}+{8 + size}];\nst.global.u32 [%out+{32 * n + 8}], %r2;"
            )
    out = run(
        "\n".join(lines), WORDS, np.zeros((len(TYPED), 32), np.uint8), threads=1, before=before
    )
    raw = WORDS.tobytes()
    for kind, row in zip(TYPED, out, strict=True):
        size = TYPES[kind].bytes
        part = raw[8 + size : 8 + 2 * size]
        assert row[:size].tobytes() == part, kind
        if size < 4:
            wide = int.from_bytes(part, "little", signed=kind[0] == "s")
            assert int(row[8:12].view(np.uint32)[0]) == wide & 0xFFFFFFFF, kind


@pytest.mark.parametrize("how", LOADS)
def test_load_spellings(how: str) -> None:

    out = run(
        f"ld{how}.u32 %r1, [%in+4];\nst.u32 [%out], %r1;", WORDS, np.zeros(1, np.uint32), threads=1
    )
    assert out[0] == WORDS[1]


@pytest.mark.parametrize("how", STORES)
def test_store_spellings(how: str) -> None:
    out = run(
        f"ld.u32 %r1, [%in+8];\nst{how}.u32 [%out+4], %r1;",
        WORDS,
        np.zeros(2, np.uint32),
        threads=1,
    )
    assert out.tolist() == [0, WORDS[2]]


def test_vectors_and_cache_hints() -> None:
    body = """
    .reg .b64 %policy;
    createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %policy, 1.0;
    createpolicy.range.global.L2::evict_last.b64 %policy, [%in], 64, 128;
    createpolicy.fractional.L2::evict_first.b64 %policy;
    discard.global.L2 [%in], 128;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in];
    st.global.v4.u32 [%out], {%r4, %r3, %r2, %r1};
    ld.v2.f64 {%fd1, _}, [%in+16];
    st.v2.f64 [%out+16], {%fd1, %fd1};
    ld.global.nc.v2.u64 {%rd1, %rd2}, [%in+32];
    st.global.v2.b64 [%out+32], {%rd2, 7};
    ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%in+1];
    st.global.v4.u8 [%out+48], {%h4, %h3, %h2, %h1};
    ld.global.L2::cache_hint.u32 %r1, [%in+4], %policy;
    st.global.L2::cache_hint.u32 [%out+52], %r1, %policy;
    ldu.global.u32 %r1, [%in+8];
    st.u32 [%out+56], %r1;
    prefetch.global.L1 [%in]; prefetchu.L1 [%in]; prefetch.global.L2::evict_last [%in];
    applypriority.global.L2::evict_normal [%in], 128;
    """
    out = run(body, WORDS, np.zeros(64, np.uint8), threads=1)
    raw = WORDS.tobytes()
    words = out[:16].view(np.uint32)
    assert words.tolist() == WORDS[3::-1].tolist()
    assert out[16:32].tobytes() == raw[16:24] * 2
    assert out[32:48].tobytes() == raw[40:48] + (7).to_bytes(8, "little")
    assert out[48:52].tobytes() == raw[4:0:-1]
    assert out[52:60].view(np.uint32).tolist() == [WORDS[1], WORDS[2]]


def test_wide_values() -> None:
    body = """
    .reg .b128 %q;
    ld.global.b128 %q, [%in];
    mov.b128 {%rd1, %rd2}, %q;
    mov.b128 %q, {%rd2, %rd1};
    st.global.b128 [%out], %q;
    """
    out = run(body, WORDS, np.zeros(2, np.uint64), threads=1)
    assert out.tolist() == WORDS[:4].view(np.uint64)[::-1].tolist()


def test_moves() -> None:
    body = """
    mov.u32 %r1, 0x12345678;           mov.b32 {%h1, %h2}, %r1;      mov.b32 %r2, {%h2, %h1};
    mov.f32 %f1, 0f3F800000;           mov.b32 %r3, %f1;             mov.f64 %fd1, 0d4000000000000000;
    mov.b64 %rd1, %fd1;                mov.b64 {%r4, %r5}, %rd1;     mov.s32 %r6, -5;
    mov.u64 %rd2, 0xFFFFFFFFFFFFFFFF;  mov.s16 %h3, -2;              mov.u16 %h4, 65535;
    mov.pred %p1, 1;                   selp.u32 %r7, 1, 0, %p1;      mov.f64 %fd2, 1.5;
    mov.b16 %h5, 0x3C00;               mov.f32 %f2, 0.25;            mov.b32 %r8, {%h3, %h4};
    mov.b64 %rd3, {%h1, %h2, %h3, %h4}; mov.u32 %r9, WARP_SZ;        mov.v2.u32 {%r10, %r11}, {%r9, %r6};
    mov.f16 %h6, %h5;                  mov.s64 %rd4, -7;             mov.bf16 %h7, %h5;
    st.u32 [%out], %r2;      st.u32 [%out+4], %r3;   st.u32 [%out+8], %r5;   st.u32 [%out+12], %r6;
    st.u64 [%out+16], %rd2;  st.u32 [%out+24], %r7;  st.f64 [%out+32], %fd2; st.f32 [%out+28], %f2;
    st.u32 [%out+40], %r8;   st.u32 [%out+44], %r9;  st.u64 [%out+48], %rd3; st.u32 [%out+56], %r11;
    st.b16 [%out+60], %h6;   st.b16 [%out+62], %h7;  st.u64 [%out+64], %rd4;
    """
    out = run(body, WORDS, np.zeros(72, np.uint8), threads=1).tobytes()
    expected = [0x56781234, 0x3F800000, 0x40000000, 0xFFFFFFFB, 0xFFFFFFFF, 0xFFFFFFFF, 1]
    assert np.frombuffer(out[:28], np.uint32).tolist() == expected
    assert np.frombuffer(out[28:32], np.float32)[0] == 0.25
    assert np.frombuffer(out[32:40], np.float64)[0] == 1.5
    assert np.frombuffer(out[40:48], np.uint32).tolist() == [0xFFFFFFFE, 32]
    assert np.frombuffer(out[48:56], np.uint16).tolist() == [0x5678, 0x1234, 0xFFFE, 0xFFFF]
    assert np.frombuffer(out[56:60], np.int32)[0] == -5
    assert out[60:64] == b"\0\x3c\0\x3c"
    assert np.frombuffer(out[64:72], np.int64)[0] == -7


def test_generic_addresses() -> None:
    """cvta both ways and isspacep for each window."""
    body = """
    .local .align 8 .b8 mine[16];
    mov.u64 %rd1, window;   cvta.shared.u64 %rd2, %rd1;   st.u32 [%rd2+4], 77;   ld.shared.u32 %r1, [window+4];
    mov.u64 %rd3, mine;     cvta.local.u64 %rd4, %rd3;    st.u32 [%rd4+8], 88;   ld.local.u32 %r2, [mine+8];
    cvta.to.shared.u64 %rd5, %rd2;  ld.shared.u32 %r3, [%rd5+4];
    cvta.to.local.u64 %rd6, %rd4;   ld.local.u32 %r4, [%rd6+8];
    mov.u64 %rd7, variable; cvta.global.u64 %rd8, %rd7;   ld.u32 %r5, [%rd8];    cvta.to.global.u64 %rd9, %rd8;
    ld.global.u32 %r6, [%rd9+4];
    mov.u64 %rd10, fixed;   cvta.const.u64 %rd11, %rd10;  ld.u32 %r7, [%rd11+4];  cvta.to.const.u64 %rd12, %rd11;
    ld.const.u32 %r8, [%rd12]; ld.const.u32 %r9, [fixed+4]; ld.global.u32 %r10, [variable+4];
    mov.u64 %rd13, in;  cvta.param.u64 %rd14, %rd13;  ld.u64 %rd15, [%rd14]; ld.param.u64 %rd16, [%rd13+8];
    st.v4.u32 [%out], {%r1, %r2, %r3, %r4};  st.v4.u32 [%out+16], {%r5, %r6, %r7, %r8};
    st.v2.u32 [%out+32], {%r9, %r10};
    setp.eq.u64 %p1, %rd15, %in; selp.u32 %r11, 1, 0, %p1; setp.eq.u64 %p2, %rd16, %out; selp.u32 %r12, 1, 0, %p2;
    st.v2.u32 [%out+40], {%r11, %r12};
    """
    spaces = ("global", "shared", "local", "const", "param")
    at = 48
    for address in ("%rd8", "%rd2", "%rd4", "%rd11", "%rd14"):
        for space in spaces:
            body += f"isspacep.{space} %p3, {address}; selp.u32 %r13, 1, 0, %p3; st.u32 [%out+{at}], %r13;\n"
            at += 4
    before = ".shared .align 8 .b8 window[16];\n.global .u32 variable[2] = {5, 6};\n.const .u32 fixed[2] = {7, 8};\n"
    out = run(body, WORDS, np.zeros(12 + 25, np.uint32), threads=1, before=before).tolist()
    assert out[:12] == [77, 88, 77, 88, 5, 6, 8, 7, 8, 6, 1, 1]
    table = np.array(out[12:]).reshape(5, 5)
    np.testing.assert_array_equal(table[:4, :4], np.eye(4))
    assert table[4].tolist() == [
        0,
        0,
        1,
        0,
        1,
    ]  # the parameters' copy lies in the thread's local window


def test_shared_register_addresses_and_dynamic_shared_memory() -> None:
    body = """
    mul.lo.u32 %r1, %tid, 4;
    mov.u32 %r2, dynamic;
    add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2], %tid;
    bar.sync 0;
    sub.u32 %r3, 31, %tid;
    mul.lo.u32 %r3, %r3, 4;
    mov.u32 %r4, dynamic;
    add.u32 %r4, %r4, %r3;
    ld.shared.u32 %r5, [%r4];
    mul.wide.u32 %rd1, %tid, 4;
    add.u64 %rd1, %out, %rd1;
    mov.u32 %r6, %dynamic_smem_size;
    add.u32 %r5, %r5, %r6;
    st.u32 [%rd1], %r5;
    """
    before = ".shared .b8 fixed[20];\n.extern .shared .align 16 .b8 dynamic[];\n"
    out = run(body, WORDS, np.zeros(32, np.uint32), dynamic=128, before=before)
    assert out.tolist() == [31 - t + 128 for t in range(32)]


def test_structures_as_parameters() -> None:
    text = (
        HEADER
        + """
    .visible .entry k(.param .align 8 .b8 s[24], .param .u8 small, .param .u64 out)
    {
        .reg .b64 %rd<5>; .reg .b32 %r<5>; .reg .b16 %h; .reg .f64 %d;
        ld.param.u64 %rd1, [out]; ld.param.v2.b32 {%r1, %r2}, [s+8]; ld.param.f64 %d, [s+16]; ld.param.u8 %h, [small];
        st.v2.u32 [%rd1], {%r1, %r2}; st.f64 [%rd1+8], %d; st.u8 [%rd1+16], %h; ret;
    }"""
    )
    kernel = Kernel(text)
    out = np.zeros(24, np.uint8)
    place = kernel.arena.put(out)
    kernel.launch((1,), (1,), np.arange(24, dtype=np.uint8), np.uint8(200), np.uint64(place))
    assert kernel.arena.get(place, out).tolist() == [*range(8, 24), 200, *[0] * 7]


def test_initialised_variables_with_addresses() -> None:
    before = """
    .global .u32 first = 11;
    .global .align 4 .u32 second[3] = {21, 22, 23};
    .global .u64 table[3] = {first, second+8, generic(second)+4};
    .global .align 8 .b8 packed[9] = {1, 0xFF(second), 0xFF00(second), 0xFF0000(second), 0xFF000000(second),
        0xFF00000000(second), 0xFF0000000000(second), 0xFF000000000000(second), 0xFF00000000000000(second)};
    .global .f64 numbers[2] = {0d3FF8000000000000, 2.5};
    .const .s16 negative[2] = {-1, -2};
    """
    body = """
    ld.global.u64 %rd1, [table]; ld.u32 %r1, [%rd1]; ld.global.u64 %rd2, [table+8]; ld.u32 %r2, [%rd2];
    ld.global.u64 %rd3, [table+16]; ld.u32 %r3, [%rd3]; ld.global.u64 %rd4, [packed+1]; ld.u32 %r4, [%rd4];
    st.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    ld.global.f64 %fd1, [numbers]; ld.global.f64 %fd2, [numbers+8]; add.f64 %fd1, %fd1, %fd2; st.f64 [%out+16], %fd1;
    ld.const.s16 %r5, [negative+2]; st.u32 [%out+24], %r5;
    """
    out = run(body, WORDS, np.zeros(7, np.uint32), threads=1, before=before)
    assert out[:4].tolist() == [11, 23, 22, 21]
    assert out[4:6].view(np.float64)[0] == 4.0
    assert out[6] == 0xFFFFFFFE


def test_asynchronous_copies_are_done_at_once() -> None:
    before = ".shared .align 16 .b8 window[64];\n"
    body = """
    mov.u32 %r1, window;
    cp.async.ca.shared.global [%r1], [%in], 4;
    cp.async.cg.shared.global.L2::128B [%r1+16], [%in+16], 16;
    cp.async.ca.shared.global [%r1+32], [%in+8], 8, 4;
    cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;
    ld.shared.u32 %r2, [window]; ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [window+16]; ld.shared.v2.u32 {%r7, %r8}, [window+32];
    st.v4.u32 [%out], {%r2, %r3, %r4, %r5}; st.v4.u32 [%out+16], {%r6, %r7, %r8, 0};
    """
    out = run(body, WORDS, np.zeros(8, np.uint32), threads=1, before=before)
    assert out.tolist() == [WORDS[0], *WORDS[4:8], WORDS[2], 0, 0]


def test_asynchronous_copies_that_read_nothing_have_any_source() -> None:
    """A thread beyond the end of an array copies nothing from an address outside all memory."""
    before = ".shared .align 16 .b8 window[64];\n"
    body = """
    .reg .b64 %policy;
    createpolicy.fractional.L2::evict_first.b64 %policy; createpolicy.cvt.L2.b64 %policy, %policy;
    mov.u32 %r1, window; mov.u32 %r9, 0; setp.eq.u32 %p1, %r9, 0; mov.u64 %rd1, 16;
    st.shared.v4.u32 [window], {-1, -1, -1, -1}; st.shared.v4.u32 [window+16], {-1, -1, -1, -1};
    st.shared.v4.u32 [window+32], {-1, -1, -1, -1};
    cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r9;
    cp.async.ca.shared.global [%r1+16], [%rd1], 4, %p1;
    cp.async.ca.shared.global [%r1+20], [%in+8], 4, !%p1;
    cp.async.ca.shared.global.L2::cache_hint [%r1+24], [%in+12], 8, 4, %policy;
    cp.async.cg.shared.global.L2::cache_hint.L2::128B [%r1+32], [%in+16], 16, %policy;
    ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [window]; st.v4.u32 [%out], {%r2, %r3, %r4, %r5};
    ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [window+16]; st.v4.u32 [%out+16], {%r2, %r3, %r4, %r5};
    ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [window+32]; st.v4.u32 [%out+32], {%r2, %r3, %r4, %r5};
    """
    out = run(body, WORDS, np.zeros(12, np.uint32), threads=1, before=before)
    assert out.tolist() == [0, 0, 0, 0, 0, WORDS[2], WORDS[3], 0, *WORDS[4:8]]


FORMS = [
    *SPELLED,
    *(f"ld.global.{t}" for t in TYPED),
    *(f"st.global.{t}" for t in TYPED),
    "ld.global.nc.u32",
    "ldu.global.u32",
    "prefetch.global.L1",
    "prefetch.global.L2::evict_last",
    "prefetchu.L1",
    "applypriority.global.L2::evict_normal",
    "mov.u32",
    "mov.v2.u32",
    "isspacep.shared",
    "discard.global.L2",
    "createpolicy.fractional.L2::evict_first.b64",
    "createpolicy.range.L2::evict_last.b64",
    "createpolicy.cvt.L2.b64",
    "cvta.to.shared.u64",
    "cp.async.ca.shared.global",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.wait_all",
]
