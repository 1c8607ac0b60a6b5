"""Half precision: f16, bf16 and their pairs, computed in float and rounded once.

Sums and products of two halves are so exact in float that rounding them once to half gives the
correct result. fma needs double and rounding to odd (fplib).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.types import TYPES, Type

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_OPS: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def to_float(e: FunctionEmitter, value: str, kind: Type) -> str:
    """Returns a half (IR type half or, for bf16, i16) as float, exactly."""
    if kind.name == "f16":
        return e.op(f"fpext half {value} to float")
    bits = e.op(f"shl i32 {e.op(f'zext i16 {value} to i32')}, 16")
    return e.op(f"bitcast i32 {bits} to float")


def from_float(e: FunctionEmitter, value: str, kind: Type) -> str:
    """Returns a float rounded to nearest even as a half (IR type half or, for bf16, i16)."""
    if kind.name == "f16":
        return e.op(f"fptrunc float {value} to half")
    return e.op(f"call i16 {e.library('rgpu.bf16.rn')}(float {value})")


def split_pair(e: FunctionEmitter, value: str, element: Type) -> tuple[str, str]:
    """Returns the low and the high half of an i32."""
    low = e.op(f"trunc i32 {value} to i16")
    high = e.op(f"trunc i32 {e.op(f'lshr i32 {value}, 16')} to i16")
    if element.llvm == "half":
        return e.op(f"bitcast i16 {low} to half"), e.op(f"bitcast i16 {high} to half")
    return low, high


def join_pair(e: FunctionEmitter, low: str, high: str, element: Type) -> str:
    if element.llvm == "half":
        low, high = e.op(f"bitcast half {low} to i16"), e.op(f"bitcast half {high} to i16")
    up = e.op(f"shl i32 {e.op(f'zext i16 {high} to i32')}, 16")
    return e.op(f"or i32 {up}, {e.op(f'zext i16 {low} to i32')}")


def each_half(
    e: FunctionEmitter, i: Instr, count: int, compute: Callable[[list[str], Type], str]
) -> None:
    """Applies `compute(values, element type) -> value` to a scalar form, or to both halves of a
    pair.
    """
    kind = i.form.type
    sources = [e.source(i, k) for k in range(1, count + 1)]
    if kind.kind != "x":
        e.result(i, compute(sources, kind))
        return
    element = TYPES[kind.name[:-2]]
    pairs = [split_pair(e, value, element) for value in sources]
    low, high = (compute([pair[n] for pair in pairs], element) for n in (0, 1))
    e.result(i, join_pair(e, low, high, element), "i32")


def finish(e: FunctionEmitter, i: Instr, value: str, kind: Type) -> str:
    """Applies .sat and .relu, rounds a float to the half type, and applies .ftz."""
    if i.form.has("sat"):
        value = e.op(f"call float {e.library('rgpu.sat')}(float {value})")
    if i.form.has("relu"):
        value = e.op(f"call float {e.library('rgpu.relu')}(float {value})")
    half = from_float(e, value, kind)
    if i.form.has("ftz") and kind.name == "f16":
        half = flush_half(e, half)
    return half


def flush_half(e: FunctionEmitter, value: str) -> str:
    return e.op(f"call half {e.library('rgpu.ftz.f16')}(half {value})")


def _inputs(e: FunctionEmitter, i: Instr, values: list[str], kind: Type) -> list[str]:
    if i.form.has("ftz") and kind.name == "f16":
        values = [flush_half(e, v) for v in values]
    return [to_float(e, v, kind) for v in values]


@lowers("half_binary")
def half_binary(e: FunctionEmitter, i: Instr) -> None:
    def compute(values: list[str], kind: Type) -> str:
        a, b = _inputs(e, i, values, kind)
        return finish(e, i, e.op(f"{_OPS[i.form.row.op]} float {a}, {b}"), kind)

    each_half(e, i, 2, compute)


@lowers("half_fma")
def half_fma(e: FunctionEmitter, i: Instr) -> None:
    def compute(values: list[str], kind: Type) -> str:
        floats = _inputs(e, i, values, kind)
        a, b, c = (e.op(f"fpext float {v} to double") for v in floats)
        arguments = f"double {a}, double {b}, double {c}"
        odd = e.op(f"call float {e.library('rgpu.fma.odd')}({arguments})")
        return finish(e, i, odd, kind)

    each_half(e, i, 3, compute)


@lowers("half_sign")
def half_sign(e: FunctionEmitter, i: Instr) -> None:
    def compute(values: list[str], kind: Type) -> str:
        value = values[0]
        if i.form.has("ftz"):
            value = flush_half(e, value)
        bits = e.op(f"bitcast half {value} to i16") if kind.llvm == "half" else value
        bits = (
            e.op(f"xor i16 {bits}, -32768")
            if i.form.row.op == "neg"
            else e.op(f"and i16 {bits}, 32767")
        )
        return e.op(f"bitcast i16 {bits} to half") if kind.llvm == "half" else bits

    each_half(e, i, 1, compute)


def sign_of_product(e: FunctionEmitter, a: str, b: str) -> str:
    """Returns an i32 with the sign bit of a * b and no other bit."""
    bits = [e.op(f"bitcast float {value} to i32") for value in (a, b)]
    return e.op(f"and i32 {e.op(f'xor i32 {bits[0]}, {bits[1]}')}, -2147483648")


def with_sign(e: FunctionEmitter, value: str, sign: str) -> str:
    """Returns a float of positive sign with the sign of `sign_of_product`. NaN stays as it is."""
    signed = e.op(f"or i32 {e.op(f'bitcast float {value} to i32')}, {sign}")
    number = e.op(f"fcmp ord float {value}, 0.0")
    return e.op(
        f"select i1 {number}, float {e.op(f'bitcast i32 {signed} to float')}, float {value}"
    )


@lowers("half_minmax")
def half_minmax(e: FunctionEmitter, i: Instr) -> None:
    def compute(values: list[str], kind: Type) -> str:
        a, b = _inputs(e, i, values, kind)
        sign = ""
        if i.form.has("xorsign"):
            sign = sign_of_product(e, a, b)
            a, b = (e.intrinsic("float", "llvm.fabs.f32", f"float {v}") for v in (a, b))
        name = f"rgpu.{i.form.row.op}{'.nan' if i.form.has('NaN') else ''}.float"
        value = e.op(f"call float {e.library(name)}(float {a}, float {b})")
        return from_float(e, with_sign(e, value, sign) if sign else value, kind)

    each_half(e, i, 2, compute)


@lowers("half_approx")
def half_approx(e: FunctionEmitter, i: Instr) -> None:
    def compute(values: list[str], kind: Type) -> str:
        value = to_float(e, values[0], kind)
        return from_float(
            e, e.op(f"call float {e.library(f'rgpu.{i.form.row.op}.approx')}(float {value})"), kind
        )

    each_half(e, i, 1, compute)
