"""Floating-point arithmetic in f32 and f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.compare import flush
from rgpu_emu.lower.half import sign_of_product, with_sign
from rgpu_emu.lower.registry import lowers

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_OPS: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_SUFFIX: Final = {"float": "f32", "double": "f64"}


def inputs(e: FunctionEmitter, i: Instr, count: int) -> list[str]:
    """Returns sources 1 to count, flushed if the form has `.ftz`."""
    values = [e.source(i, k) for k in range(1, count + 1)]
    if i.form.has("ftz") and i.form.type.llvm == "float":
        values = [flush(e, v) for v in values]
    return values


def output(e: FunctionEmitter, i: Instr, value: str) -> None:
    """Writes the result after applying .sat and .ftz."""
    if i.form.has("sat"):
        value = e.op(f"call float {e.library('rgpu.sat')}(float {value})")
    if i.form.has("ftz") and i.form.type.llvm == "float":
        value = flush(e, value)
    e.result(i, value)


def directed(e: FunctionEmitter, i: Instr, op: str, values: list[str]) -> str:
    """Emits an operation with rounding towards zero, minus or plus infinity."""
    llvm = i.form.type.llvm
    helper = e.library(f"rgpu.{op}.{i.form.get('rnd')}.{_SUFFIX[llvm]}")
    return e.op(f"call {llvm} {helper}({', '.join(f'{llvm} {v}' for v in values)})")


def _nearest(i: Instr) -> bool:
    return i.form.get("rnd") in ("", "rn")


@lowers("fp_binary")
def fp_binary(e: FunctionEmitter, i: Instr) -> None:
    values, op = inputs(e, i, 2), i.form.row.op
    if _nearest(i):
        value = e.op(f"{_OPS[op]} {i.form.type.llvm} {values[0]}, {values[1]}")
    else:
        value = directed(e, i, op, values)
    output(e, i, value)


@lowers("fp_fma")
def fp_fma(e: FunctionEmitter, i: Instr) -> None:
    values, llvm = inputs(e, i, 3), i.form.type.llvm
    if _nearest(i):
        value = e.intrinsic(llvm, f"llvm.fma.{_SUFFIX[llvm]}", *(f"{llvm} {v}" for v in values))
    else:
        value = directed(e, i, "fma", values)
    output(e, i, value)


@lowers("fp_rcp")
def fp_rcp(e: FunctionEmitter, i: Instr) -> None:
    values, llvm = inputs(e, i, 1), i.form.type.llvm
    if _nearest(i):
        output(e, i, e.op(f"fdiv {llvm} 1.0, {values[0]}"))
    else:
        output(e, i, directed(e, i, "div", ["1.0", *values]))


@lowers("fp_sqrt")
def fp_sqrt(e: FunctionEmitter, i: Instr) -> None:
    values, llvm = inputs(e, i, 1), i.form.type.llvm
    if _nearest(i):
        output(e, i, e.intrinsic(llvm, f"llvm.sqrt.{_SUFFIX[llvm]}", f"{llvm} {values[0]}"))
    else:
        output(e, i, directed(e, i, "sqrt", values))


@lowers("fp_div_approx")
def fp_div_approx(e: FunctionEmitter, i: Instr) -> None:
    a, b = inputs(e, i, 2)
    output(e, i, e.op(f"fdiv float {a}, {b}"))


@lowers("fp_approx")
def fp_approx(e: FunctionEmitter, i: Instr) -> None:
    values, llvm, op = inputs(e, i, 1), i.form.type.llvm, i.form.row.op
    value = values[0]
    if op in ("rcp", "rsqrt", "sqrt"):
        if op != "rcp":
            value = e.intrinsic(llvm, f"llvm.sqrt.{_SUFFIX[llvm]}", f"{llvm} {value}")
        value = value if op == "sqrt" else e.op(f"fdiv {llvm} 1.0, {value}")
    else:
        value = e.op(f"call float {e.library(f'rgpu.{op}.approx')}(float {value})")
    if llvm == "double" and i.form.has("ftz"):
        value = e.op(f"call double {e.library('rgpu.ftz.f64')}(double {value})")
    output(e, i, value)


@lowers("fp_sign")
def fp_sign(e: FunctionEmitter, i: Instr) -> None:
    values, llvm = inputs(e, i, 1), i.form.type.llvm
    if i.form.row.op == "neg":
        e.result(i, e.op(f"fneg {llvm} {values[0]}"))
    else:
        e.result(i, e.intrinsic(llvm, f"llvm.fabs.{_SUFFIX[llvm]}", f"{llvm} {values[0]}"))


@lowers("fp_copysign")
def fp_copysign(e: FunctionEmitter, i: Instr) -> None:
    """Emits copysign. In PTX the first source gives the sign and the second the magnitude."""
    llvm = i.form.type.llvm
    a, b = e.source(i, 1), e.source(i, 2)
    e.result(i, e.intrinsic(llvm, f"llvm.copysign.{_SUFFIX[llvm]}", f"{llvm} {b}", f"{llvm} {a}"))


@lowers("fp_minmax")
def fp_minmax(e: FunctionEmitter, i: Instr) -> None:
    values, llvm = inputs(e, i, 2), i.form.type.llvm
    sign = ""
    if i.form.has("xorsign"):
        sign = sign_of_product(e, *values)
        values = [e.intrinsic(llvm, "llvm.fabs.f32", f"{llvm} {v}") for v in values]
    name = f"rgpu.{i.form.row.op}{'.nan' if i.form.has('NaN') else ''}.{llvm}"
    value = e.op(f"call {llvm} {e.library(name)}({llvm} {values[0]}, {llvm} {values[1]})")
    output(e, i, with_sign(e, value, sign) if sign else value)


_TESTS: Final = {
    "finite": 0x1F8,
    "infinite": 0x204,
    "number": 0x3FC,
    "notanumber": 0x003,
    "normal": 0x168,
    "subnormal": 0x090,
}


@lowers("fp_test")
def fp_test(e: FunctionEmitter, i: Instr) -> None:
    llvm = i.form.type.llvm
    mask = _TESTS[i.form.get("op")]
    name = f"llvm.is.fpclass.{_SUFFIX[llvm]}"
    e.write(i.operands[0], e.intrinsic("i1", name, f"{llvm} {e.source(i, 1)}", f"i32 {mask}"), "i1")
