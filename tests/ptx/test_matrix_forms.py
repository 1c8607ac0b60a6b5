"""Matrix instructions: the names of all forms, and what is refused when a kernel is lowered.

`emu/test_matrix.py` runs every form on the device and compares it with exact arithmetic.
"""

from __future__ import annotations

import pytest
from ptx.program import source

from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.link import link

_ROW_COL = "row.col"
_U8 = [f"{a}.{b}" for a in ("u8", "s8") for b in ("u8", "s8")]
_U4 = [f"{a}.{b}" for a in ("u4", "s4") for b in ("u4", "s4")]
_FP8 = [f"{a}.{b}" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]


def _mma(shapes: str, *types: str, layouts: str = _ROW_COL, variant: str = "") -> list[str]:
    return [f"mma{variant}.sync.aligned.{s}.{layouts}.{t}" for s in shapes.split() for t in types]


def _integers(shapes: str, types: list[str], variant: str = "") -> list[str]:
    return [
        name
        for saturates in ("", "satfinite.")
        for name in _mma(shapes, *(f"{saturates}s32.{t}.s32" for t in types), variant=variant)
    ]


HALF = [
    f"mma.sync.aligned.m8n8k4.{a}.{b}.{t}"
    for a in ("row", "col")
    for b in ("row", "col")
    for t in ("f16.f16.f16.f16", "f32.f16.f16.f32", "f32.f16.f16.f16")
] + [
    *_mma("m16n8k8 m16n8k16", "f16.f16.f16.f16", "f32.f16.f16.f32"),
    *_mma("m16n8k16", "f32.f16.f16.f16", "f16.f16.f16.f32"),
]
OTHER = [
    *_mma("m16n8k8 m16n8k16", "f32.bf16.bf16.f32"),
    *_mma("m16n8k4 m16n8k8", "f32.tf32.tf32.f32"),
    *_mma("m16n8k16 m16n8k32", *(f"{d}.{t}.{d}" for t in _FP8 for d in ("f16", "f32"))),
    *_mma("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "f64.f64.f64.f64"),
]
INTEGER = [
    *_integers("m8n8k16 m16n8k16 m16n8k32", _U8),
    *_integers("m8n8k32 m16n8k32 m16n8k64", _U4),
    *_mma("m8n8k128 m16n8k128 m16n8k256", "s32.b1.b1.s32.xor.popc", "s32.b1.b1.s32.and.popc"),
]
SPARSE = [
    name
    for variant in (".sp", ".sp::ordered_metadata")
    for name in (
        *_mma("m16n8k16 m16n8k32", "f16.f16.f16.f16", "f32.f16.f16.f32", variant=variant),
        *_mma("m16n8k16 m16n8k32", "f32.bf16.bf16.f32", variant=variant),
        *_mma("m16n8k8 m16n8k16", "f32.tf32.tf32.f32", variant=variant),
        *_mma("m16n8k64", *(f"f32.{t}.f32" for t in _FP8), variant=variant),
        *_integers("m16n8k32 m16n8k64", _U8, variant),
        *_integers("m16n8k64 m16n8k128", _U4, variant),
    )
]
SIXTEEN = ("m16n16k16", "m8n32k16", "m32n8k16")
# shape, type of A and B, types of D and C, layouts of A and B
PRODUCTS = [
    *((s, "f16", d, c) for s in SIXTEEN for d in ("f16", "f32") for c in ("f16", "f32")),
    *((s, t, "s32", "s32") for s in SIXTEEN for t in ("s8", "u8")),
    *((s, "bf16", "f32", "f32") for s in SIXTEEN),
    ("m16n16k8", "tf32", "f32", "f32"),
    ("m8n8k4", "f64", "f64", "f64"),
    ("m8n8k32", "s4", "s32", "s32"),
    ("m8n8k32", "u4", "s32", "s32"),
    ("m8n8k128", "b1", "s32", "s32"),
]


def product_name(shape: str, a: str, d: str, c: str, layouts: str, extra: str = "") -> str:
    """The name of a wmma.mma. extra: rounding, bit operation or satfinite."""
    if a == "f16":
        return f"wmma.mma.sync.aligned.{layouts}.{shape}.{d}.{c}"
    if a == "b1":
        return f"wmma.mma.{extra}.popc.sync.aligned.{layouts}.{shape}.{d}.{a}.{a}.{c}"
    rounding = f".{extra}" if extra in ("rn", "rz") else ""
    # NVRTC writes the rounding last.
    last = f".{extra}" if extra in ("rm", "rp") else ""
    saturates = ".satfinite" if extra == "satfinite" else ""
    return f"wmma.mma.sync.aligned.{layouts}.{shape}{rounding}.{d}.{a}.{a}.{c}{last}{saturates}"


WMMA = [product_name(*p, "row.col", "xor" if p[1] == "b1" else "") for p in PRODUCTS]
WMMA += [product_name(*p, "row.col", "rm") for p in PRODUCTS if p[1] == "f64"]
WMMA_MOVES = [
    f"wmma.{what}.sync.aligned.{order}.{kind}"
    for shape, a, d, c in PRODUCTS
    for what, kind, layout in (
        ("load.a", a, "row"), ("load.b", a, "col"), ("load.c", c, "row"), ("store.d", d, "col"),
    )
    for order in (f"{layout}.{shape}", f"{shape}.global.{layout}")
]  # fmt: skip
MOVES = [
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "stmatrix.sync.aligned.m8n8.x2.shared::cta.b16",
    "movmatrix.sync.aligned.m8n8.trans.b16",
]
FORMS = [*HALF, *OTHER, *INTEGER, *SPARSE, *WMMA, *WMMA_MOVES, *MOVES]


# Forms of other devices, and modifiers in an order that the manual does not have.
NOT_BUILT = (
    "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
    "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
)


@pytest.mark.parametrize(
    "name",
    [
        *NOT_BUILT,
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32",
        "mma.sync.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.s32.u4.u4.s32",
        "mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32",
        "wmma.load.a.sync.aligned.col.m8n8k128.b1",
    ],
)
def test_other_forms_are_refused_by_name(name: str) -> None:
    """801 for those that PTX may have, 218 for those that it does not have."""
    with pytest.raises(PtxError, match=name.replace(".", r"\.")) as caught:
        TABLE.form(name)
    assert caught.value.result == (801 if name in NOT_BUILT else 218)


def refusal(line: str) -> str:
    with pytest.raises(PtxError) as caught:
        emit_ir(link([source(line)]), "k")
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2},"
            " {%r1, %r2}, {%f1, %f2, %f3, %f4};",
            "4 registers belong where 2 are given",
        ),
        (
            "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, %r4},"
            " {%r1, %r2, %r3, %r4}, {%r1, %r2}, %r9, 2;",
            "must be a number below 2",
        ),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2},"
            " {%r1, %r2}, {%r1, %r2}, %r9, %r8;",
            "must be a number below 4",
        ),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r3];", "4 registers belong"),
        (
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f1, %f2}, {%fd1}, {%fd1}, {%fd1, %fd2};",
            "does not fit",
        ),
    ],
)
def test_wrong_operands_are_refused(line: str, words: str) -> None:
    assert words in refusal(line)
