"""Rows for tensor cores: mma, wmma and the instructions that move their matrices. Data only."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

W_: Final = "warp-level-matrix-instructions-"
_MMA: Final = "sync aligned shape={} row col "
_SPARSE: Final = "variant=sp|sp::ordered_metadata " + _MMA
_FP8: Final = "a=e4m3|e5m2 b=e4m3|e5m2"
_U8: Final = "a=u8|s8 b=u8|s8"
_U4: Final = "a=u4|s4 b=u4|s4"


def _mma(pattern: str) -> Row:
    return Row("mma", pattern, "D S S S", "matrix_mma", W_ + "mma")


def _sparse(shapes: str, types: str) -> Row:
    return Row(
        "mma", _SPARSE.format(shapes) + types, "D S S S s s", "matrix_mma", W_ + "sparse-mma"
    )


MMA: Final[tuple[Row, ...]] = (
    _mma("sync aligned shape=m8n8k4 al=row|col bl=row|col d=f32 a=f16 b=f16 c=f16|f32"),
    _mma("sync aligned shape=m8n8k4 al=row|col bl=row|col d=f16 a=f16 b=f16 c=f16"),
    _mma(_MMA.format("m16n8k8") + "d=f16 a=f16 b=f16 c=f16"),
    _mma(_MMA.format("m16n8k8") + "d=f32 a=f16 b=f16 c=f32"),
    _mma(_MMA.format("m16n8k16") + "d=f16|f32 a=f16 b=f16 c=f16|f32"),
    _mma(_MMA.format("m16n8k8|m16n8k16") + "d=f32 a=bf16 b=bf16 c=f32"),
    _mma(_MMA.format("m16n8k4|m16n8k8") + "d=f32 a=tf32 b=tf32 c=f32"),
    _mma(_MMA.format("m16n8k16|m16n8k32") + f"d=f16|f32 {_FP8} c=f16|f32"),
    _mma(_MMA.format("m8n8k4|m16n8k4|m16n8k8|m16n8k16") + "d=f64 a=f64 b=f64 c=f64"),
    _mma(_MMA.format("m8n8k16|m16n8k16|m16n8k32") + f"?satfinite d=s32 {_U8} c=s32"),
    _mma(_MMA.format("m8n8k32|m16n8k32|m16n8k64") + f"?satfinite d=s32 {_U4} c=s32"),
    _mma(_MMA.format("m8n8k128|m16n8k128|m16n8k256") + "d=s32 a=b1 b=b1 c=s32 bits=xor|and popc"),
    _sparse("m16n8k16|m16n8k32", "d=f16 a=f16 b=f16 c=f16"),
    _sparse("m16n8k16|m16n8k32", "d=f32 a=f16 b=f16 c=f32"),
    _sparse("m16n8k16|m16n8k32", "d=f32 a=bf16 b=bf16 c=f32"),
    _sparse("m16n8k8|m16n8k16", "d=f32 a=tf32 b=tf32 c=f32"),
    _sparse("m16n8k64", f"d=f32 {_FP8} c=f32"),
    _sparse("m16n8k32|m16n8k64", f"?satfinite d=s32 {_U8} c=s32"),
    _sparse("m16n8k64|m16n8k128", f"?satfinite d=s32 {_U4} c=s32"),
)

_SIXTEEN: Final = "m16n16k16|m8n32k16|m32n8k16"
_LAYOUTS: Final = "al=row|col bl=row|col "
# The shapes of each type in memory, and the layouts that A and B may have.
_MULTIPLICANDS: Final = (
    (_SIXTEEN, "f16|bf16|s8|u8", "row|col", "row|col"),
    ("m16n16k8", "tf32", "row|col", "row|col"),
    ("m8n8k4", "f64", "row|col", "row|col"),
    ("m8n8k32", "s4|u4", "row", "col"),
    ("m8n8k128", "b1", "row", "col"),
)
_ACCUMULATORS: Final = (
    (_SIXTEEN, "f16|f32|s32"),
    ("m16n16k8", "f32"),
    ("m8n8k4", "f64"),
    ("m8n8k32|m8n8k128", "s32"),
)
_SPACE: Final = "space?=global|shared|shared::cta"


def _wmma(pattern: str) -> Row:
    return Row("wmma", pattern, "D S S S", "matrix_mma", W_ + "wmma-mma")


def _move(what: str, layout: str, shapes: str, types: str) -> Row:
    pattern = f"{what} sync ?aligned layout={layout} shape={shapes} {_SPACE} a={types}"
    if what == "store mat=d":
        return Row("wmma", pattern, "m S s?", "matrix_store", W_ + "wmma-st")
    return Row("wmma", pattern, "D m s?", "matrix_load", W_ + "wmma-ld")


WMMA: Final[tuple[Row, ...]] = (
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape={_SIXTEEN} d=f16|f32 c=f16|f32"),
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape={_SIXTEEN} d=s32 a=s8 b=s8 c=s32 ?satfinite"),
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape={_SIXTEEN} d=s32 a=u8 b=u8 c=s32 ?satfinite"),
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape={_SIXTEEN} d=f32 a=bf16 b=bf16 c=f32"),
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape=m16n16k8 d=f32 a=tf32 b=tf32 c=f32"),
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape=m8n8k4 rnd?=rn|rz|rm|rp d=f64 a=f64 b=f64 c=f64"),
    # As NVRTC writes it for mma.h.
    _wmma(f"mma sync ?aligned {_LAYOUTS}shape=m8n8k4 d=f64 a=f64 b=f64 c=f64 rnd=rn|rz|rm|rp"),
    _wmma("mma sync ?aligned row col shape=m8n8k32 d=s32 a=s4 b=s4 c=s32 ?satfinite"),
    _wmma("mma sync ?aligned row col shape=m8n8k32 d=s32 a=u4 b=u4 c=s32 ?satfinite"),
    _wmma("mma bits=xor|and popc sync ?aligned row col shape=m8n8k128 d=s32 a=b1 b=b1 c=s32"),
    *(
        _move(f"load mat={mat}", layout, shapes, types)
        for shapes, types, a, b in _MULTIPLICANDS
        for mat, layout in (("a", a), ("b", b))
    ),
    *(
        _move(what, "row|col", shapes, types)
        for shapes, types in _ACCUMULATORS
        for what in ("load mat=c", "store mat=d")
    ),
)

_ROWS_OF: Final = "sync aligned m8n8 num=x1|x2|x4 ?trans space?=shared|shared::cta b16"

MOVES: Final[tuple[Row, ...]] = (
    Row("ldmatrix", _ROWS_OF, "D m", "matrix_rows", W_ + "ldmatrix"),
    Row("stmatrix", _ROWS_OF, "m S", "matrix_rows", W_ + "stmatrix"),
    Row("movmatrix", "sync aligned m8n8 trans b16", "d s", "matrix_transpose", W_ + "movmatrix"),
)
ROWS: Final = MMA + WMMA + MOVES
