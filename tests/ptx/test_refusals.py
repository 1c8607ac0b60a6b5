"""PTX that is not supported is refused by name when the module loads, and wrong text with
its line.
"""

from __future__ import annotations

import pytest
from ptx.harness import HEADER, Kernel
from ptx.program import source

from rgpu_emu.compile_job import Work
from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link
from rgpu_emu.ptx.module import EAGER_BYTES

UNSUPPORTED = [
    "tex.2dms.v4.f32.s32",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32",
    "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    "barrier.cluster.arrive",
    "mapa.u64",
    "setmaxnreg.inc.sync.aligned.u32",
    "min.abs.f32",
    "redux.sync.min.NaN.abs.f32",
    "tcgen05.alloc.cta_group::1.sync.aligned.b32",
    "atom.global.cas.b128",
    "cvt.rn.satfinite.e2m1x2.f32",
    "shfl.up.b32",
    "add.f32x2",
    "red.async.relaxed.cluster.global.add.u32",
    "multimem.ld_reduce.global.add.u32",
    "st.async.shared::cluster.u32",
]
# What is not in the PTX manual.
INVALID = [
    "st.const.u32",
    "st.param::entry.u32",
    "st.acquire.gpu.global.u32",
    "ld.release.gpu.global.u32",
    "red.global.exch.b32",
    "tex.cube.v4.f32.s32",
    "tex.1d.v2.f32.f32",
    "suld.p.1d.v4.b32.trap",
    "sust.p.a2d.v4.b32.trap",
    "sured.b.xor.1d.b32.trap",
    "txq.pitch.b32",
    "vadd.s32.s32.s16",
    "ld.mmio.sys.global.u32",
    "ld.mmio.relaxed.gpu.global.u32",
    "st.mmio.relaxed.sys.shared.u32",
    "cvt.rni.sat.bf16.bf16",
    "max.xorsign.f32",
    "min.xorsign.abs.f64",
    "max.ftz.xorsign.abs.bf16",
    "setp.lt.ftz.bf16",
    "set.lt.bf16x2.f16x2",
    "set.lt.f16.f16x2",
    "set.lo.f16.f32",
    "cvt.pack.s16.s32",
    "cvt.pack.sat.u8.s32",
    "cvt.pack.sat.u16.u32",
    "cvt.rm.satfinite.f16.f32",
    "redux.sync.add.f32",
    "redux.sync.min.abs.s32",
    "alloca.b64",
    "stacksave.s32",
    "createpolicy.cvt.L1.b64",
    "frobnicate.u32",
    "add.u8",
    "add.s32.wrong",
    "add.rn.s32",
    "ld.texture.u32",
    "ld.global.u33",
    "cvt.rn.f32.q8",
    "mul.wide.u64",
    "setp.eq.nand.u32",
    "atom.global.add.u16",
    "div.f32",
]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_forms_that_the_device_lacks_are_refused_by_their_full_name(name: str) -> None:
    with pytest.raises(PtxError) as caught:
        link([source(f"{name} %r1, %r2, %r3;")])
    assert caught.value.result == 801
    assert f"'{name}'" in str(caught.value)
    assert caught.value.line > 4


@pytest.mark.parametrize("name", INVALID)
def test_forms_that_do_not_exist_refuse_the_module(name: str) -> None:
    with pytest.raises(PtxError) as caught:
        link([source(f"{name} %r1, %r2, %r3;")])
    assert caught.value.result == 218
    assert f"'{name}'" in str(caught.value)
    assert caught.value.line > 4


def test_modifiers_in_another_order_refuse_the_kernel_alone() -> None:
    with pytest.raises(PtxError, match="f32' has its modifiers in another"):
        link([source("redux.sync.min.NaN.abs.f32 %r1, %r2, %r3;")])


def test_the_modifier_is_named() -> None:
    with pytest.raises(PtxError, match=r"no form of add has \.wrong"):
        link([source("add.s32.wrong %r1, %r2, %r3;")])


def test_the_line_is_told() -> None:
    text = (
        HEADER
        + "\n// a comment\n/* two\nlines */\n.entry k()\n{\n  .reg .b32 %r<3>;\n\n  add.u32 %r1, %r2, %r9;\n}"
    )
    with pytest.raises(PtxError, match=r"^line 12: the register %r9 is not declared"):
        link([text])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("add.u32 %r1, %r2;", "takes 3 operands, not 2"),
        ("add.u32 %r1, %r2, ;", "not an operand"),
        ("add.u32 5, %r2, %r3;", "no destination"),
        ("ld.u32 %r1, %r2;", "no .address. there"),
        ("bra nowhere;", "label nowhere is not defined"),
        ("here: here: ret;", "defined twice"),
        ("@%r1 bra x; x:", "not a predicate register"),
        ("{ add.u32 %r1, %r1, 1;", "not closed"),
        (".reg .b32 %one, %one;", "declared twice"),
        ("mov.u32 %r1, %nothing;", "%nothing is not declared"),
        ("mov.u32 %r1, unheard_of;", "neither declared nor defined"),
        ("call unheard_of, ();", "not defined in any input"),
        ("add.u32 %r1, %r2, 99999999999999999999999;", "64 bits"),
        ("add u32 %r1;", "add"),
        ("%%% ;", "cannot read"),
        ("mov.b32 {%r1, [%r2]}, %r3;", "a vector holds registers"),
        (".local .b8 big[0];", "no size"),
    ],
)
def test_wrong_text(body: str, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        link([source(body)])
    assert caught.value.result in (218, 801)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("add.u32 %rd1, %r2, %r3;", r"%rd1 \(.b64\) does not fit"),
        ("add.u64 %rd1, %r2, %rd3;", r"%r2 \(.b32\) does not fit"),
        ("ld.u64 %r1, [%in];", "too narrow"),
        ("ld.v2.u32 %r1, [%in];", "needs 2 registers"),
        ("lop3.b32 %r1, %r1, %r2, %r3, %r4;", "not a literal"),
        ("cp.async.ca.shared.global [%r1], [%in], 5;", "4, 8 or 16"),
        (".local .b8 big[600000]; mov.u64 %rd1, big;", "more than 524288"),
        ("bar.red.and.pred %p1, 0, 64;", "predicate as its last operand"),
        ("ld.param.u64 %rd1, [in+8];", "outside the parameter"),
    ],
)
def test_wrong_operands_are_found_when_lowering(body: str, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        Kernel(source(body))
    assert caught.value.result == 218


@pytest.mark.parametrize(
    ("text", "result", "words"),
    [
        ("", 209, "no PTX"),
        (".version 10.0\n.target sm_80\n.address_size 64\n", 222, "newer than 9.x"),
        (".version 9.9\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }", 0, ""),
        (".target sm_80\n", 218, "does not begin with .version"),
        (".version 8.0\n.visible .entry k() { ret; }", 218, "the module has no .target"),
        (".version 9.9", 218, "the module has no .target"),
        (HEADER.replace("64", "32"), 801, "64-bit addresses"),
        (HEADER + ".entry k() { ret; ", 218, "not closed"),
        (HEADER + ".entry k() { ret; }\n.entry k() { ret; }", 218, "defined twice"),
        (
            HEADER + ".global .texref t;\n.entry k() { .reg .b64 %r; mov.u64 %r, t; ret; }",
            801,
            ".texref variable 't'",
        ),
        (HEADER + ".entry k(.param .surfref s) { ret; }", 801, "a .surfref parameter"),
        (HEADER + ".global .attribute(.managed) .align 4 .u32 x;", 801, "managed"),
        (HEADER + ".entry k(.param .b8 x[40000]) { ret; }", 218, "larger than 32764"),
        (HEADER + ".global .b32 x[99999999999];", 218, "array size"),
        (HEADER + ".global .b32 x[2] = {1,2,3};", 218, "too many initial values"),
        (HEADER + ".extern .global .b32 x;\n.entry k() { ret; }", 218, "not defined"),
        (HEADER + ".global .u64 x = missing;", 218, "neither declared nor defined"),
        (HEADER + ".entry k() .reqnctapercluster 2 { ret; }", 801, "clusters"),
        (HEADER + ".entry k() .maxntid 2048 { ret; }", 218, "1024"),
        (
            HEADER + ".shared .b8 x[50000];\n.entry k() { .reg .b64 %r; mov.u64 %r, x; ret; }",
            218,
            "static shared",
        ),
        (HEADER + "what is this", 218, "cannot read 'what'"),
    ],
)
def test_wrong_modules(text: str, result: int, words: str) -> None:
    if not result:
        link([text])
        return
    with pytest.raises(PtxError, match=words) as caught:
        lower_entry(link([text]), "k")
    assert caught.value.result == result


def test_functions_that_suspend_are_refused_where_they_cannot_be_inlined() -> None:
    recursive = (
        HEADER
        + ".func again(.param .b32 n) { .param .b32 m; bar.sync 0; st.param.b32 [m], 1; call again, (m); ret; }\n"
    )
    entry = ".visible .entry k() { .param .b32 m; st.param.b32 [m], 1; call again, (m); ret; }"
    with pytest.raises(PtxError, match="'again' calls itself and holds a barrier") as caught:
        lower_entry(link([recursive + entry]), "k")
    assert caught.value.result == 801
    pointer = (
        HEADER
        + """.func waits() { .reg .b64 %f; bar.sync 0; mov.u64 %f, waits; p: .callprototype _ (); call %f, (), p; ret; }
    .visible .entry k() { .reg .b64 %f; mov.u64 %f, waits; p: .callprototype _ (); call %f, (), p; ret; }"""
    )
    with pytest.raises(PtxError, match="'waits' is called by pointer and holds a barrier"):
        lower_entry(link([pointer]), "k")


def test_two_inputs_with_one_name() -> None:
    text = HEADER + ".visible .func twice() { ret; }"
    with pytest.raises(PtxError, match="twice is defined in two inputs"):
        link([text, text])


# --- a part of a module

BAD = ".func f() { mapa.u32; ret; }\n"
GOOD = ".visible .entry good() { ret; }\n"
CALL = ".visible .entry {name}() {{ call {callee}; ret; }}\n"
POINTER = """.visible .entry pointer(.param .u64 p) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];
  proto: .callprototype ()_ ();
  call %rd1, (), proto; ret; }
"""
TEXTURE: str = "tex.1d.v4.u32.s32 {{%r1, %r1, %r1, %r1}}, [{name}, {{%r1}}];"
# What it says about a module, by name: texts and the kernels that are refused.
PARTS = {
    "the instruction's own kernel": (
        GOOD + ".visible .entry bad() { mapa.u32; ret; }\n",
        ["bad"],
    ),
    "a kernel that calls a function with it": (
        BAD + GOOD + CALL.format(name="bad", callee="f"),
        ["bad"],
    ),
    "a kernel that calls a function that calls it": (
        BAD + ".func g() { call f; ret; }\n" + GOOD + CALL.format(name="bad", callee="g"),
        ["bad"],
    ),
    "a kernel that takes its address": (
        BAD + GOOD + ".visible .entry bad() { .reg .b64 %rd<2>; mov.u64 %rd1, f; ret; }\n",
        ["bad"],
    ),
    "a kernel that calls by pointer, where an initial value has its address": (
        BAD + ".global .align 8 .u64 table[1] = { f };\n" + GOOD + POINTER,
        ["pointer"],
    ),
    "a kernel that calls by pointer, where nothing leads to it": (
        BAD + GOOD + POINTER + CALL.format(name="bad", callee="f"),
        ["bad"],
    ),
    "nothing, where only an unused function has it": (BAD + GOOD, []),
    "a special register": (
        GOOD + ".visible .entry bad() { .reg .b32 %r<2>; mov.u32 %r1, %envreg3; ret; }\n",
        ["bad"],
    ),
    "a texture reference": (
        ".global .texref t;\n.tex .u32 old;\n.global .samplerref s = { filter_mode = linear };\n"
        + GOOD
        + "".join(
            f".visible .entry {kernel}() {{ .reg .b32 %r<2>; {TEXTURE.format(name=name)} ret; }}\n"
            for kernel, name in (("bad", "t"), ("worse", "old"))
        )
        + ".visible .entry worst() { .reg .b64 %r<2>; mov.u64 %r1, s; ret; }\n",
        ["bad", "worse", "worst"],
    ),
    "a parameter": (GOOD + ".visible .entry bad(.param .texref t) { ret; }\n", ["bad"]),
    "a directive for clusters": (
        GOOD + ".visible .entry bad() .maxclusterrank 4 { ret; }\n",
        ["bad"],
    ),
    "a type of registers": (GOOD + ".visible .entry bad() { .reg .b256 %r<2>; ret; }\n", ["bad"]),
}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_what_the_device_lacks_refuses_the_kernels_that_reach_it(name: str, large: bool) -> None:
    text, refused = PARTS[name]
    if large:
        text += padding()
        # Operands and declarations of a very large module are read when a kernel is lowered.
        late = ("a special register", "a type of registers", "a texture reference")
        refused = [] if name in late else refused
        # Every function of it may be called by pointer.
        refused = sorted({*refused, *(["pointer"] if "pointer" in name else [])})
    program = link([HEADER + text])
    assert sorted(program.refusals) == refused
    for kernel, error in program.refusals.items():
        assert error.result == 801
        assert error.line > 3
        assert f"'{kernel}'" in str(error)
    lower_entry(program, "good")


def padding() -> str:
    """Makes a module so large that its bodies are not parsed at once."""
    return ".visible .entry pad() { " + "ret;\n" * (EAGER_BYTES // 5) + "}\n"


def test_a_module_of_which_nothing_runs_is_refused_whole() -> None:
    with pytest.raises(PtxError, match="mapa") as caught:
        link([HEADER + BAD + CALL.format(name="bad", callee="f")])
    assert caught.value.result == 801
    with pytest.raises(PtxError, match="mapa"):
        link([HEADER + BAD])


def test_wrong_syntax_behind_it_refuses_the_whole_module() -> None:
    body = ".visible .entry bad() { mapa.u32; add.u32 a, b; ret; }\n"
    with pytest.raises(PtxError) as caught:
        link([HEADER + GOOD + body])
    assert caught.value.result == 218


def test_a_barrier_behind_a_pointer_refuses_its_kernel_alone() -> None:
    again = ".reg .b64 %f; mov.u64 %f, f; p: .callprototype _ (); call %f, (), p;"
    text = f".func f() {{ bar.sync 0; {again} ret; }}\n.global .align 8 .u64 table[1] = {{ f }};\n"
    body = Work([(HEADER + text + GOOD + POINTER).encode()]).loaded(bytes(32))
    assert body[:4] == bytes(4)
    assert b"so the kernel 'pointer' is refused" in body
