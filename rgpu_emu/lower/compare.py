"""Comparison and selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.half import flush_half, split_pair, to_float
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.operands import Operand, Pair
from rgpu_emu.ptx.types import TYPES, Type

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_FLOAT: Final = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
_UNSIGNED: Final = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def compare(e: FunctionEmitter, i: Instr, kind: Type, a: str, b: str) -> str:
    """Returns the i1 of the form's comparison. Operands of half types are passed as float."""
    cmp = i.form.get("cmp")
    if kind.kind in "fh":
        llvm = "double" if kind.bits == 64 else "float"
        if i.form.has("ftz") and kind.bits != 64:
            a, b = (flush(e, v) for v in (a, b))
        return e.op(f"fcmp {_FLOAT[cmp]} {llvm} {a}, {b}")
    if cmp in ("eq", "ne"):
        return e.op(f"icmp {cmp} {kind.llvm} {a}, {b}")
    name = _UNSIGNED.get(cmp) or ("s" if kind.kind == "s" else "u") + cmp
    return e.op(f"icmp {name} {kind.llvm} {a}, {b}")


def flush(e: FunctionEmitter, value: str) -> str:
    """Returns a float with subnormals replaced by zero of the same sign."""
    return e.op(f"call float {e.library('rgpu.ftz')}(float {value})")


def _operands(e: FunctionEmitter, i: Instr, kind: Type) -> tuple[str, str]:
    a, b = e.source(i, 1, kind), e.source(i, 2, kind)
    if kind.kind == "h" or kind.name == "f16":
        return _half(e, i, a, kind), _half(e, i, b, kind)
    return a, b


def _half(e: FunctionEmitter, i: Instr, value: str, kind: Type) -> str:
    """Returns a half as float. `.ftz` flushes it before, because its subnormals are no subnormals
    of float.
    """
    flushed = flush_half(e, value) if i.form.has("ftz") and kind.name == "f16" else value
    return to_float(e, flushed, kind)


def _each_half(e: FunctionEmitter, i: Instr, kind: Type) -> list[str]:
    """Returns the comparisons of the low and the high halves of two pairs."""
    element = TYPES[kind.name[:-2]]
    first, second = (split_pair(e, e.source(i, k), element) for k in (1, 2))
    return [
        _combine(e, i, compare(e, i, element, _half(e, i, a, element), _half(e, i, b, element)))
        for a, b in zip(first, second, strict=True)
    ]


def _combine(e: FunctionEmitter, i: Instr, value: str) -> str:
    if not i.form.has("bool"):
        return value
    return e.op(f"{i.form.get('bool')} i1 {value}, {e.read(i.operands[3], 'i1')}")


def write_pair(e: FunctionEmitter, target: Operand, first: str, llvm: str, second: str) -> None:
    """Writes `d` or `d|p`. The second destination is a predicate."""
    if isinstance(target, Pair):
        e.write(target.first, first, llvm)
        e.write(target.second, second, "i1")
    else:
        e.write(target, first, llvm)


@lowers("cmp_setp")
def cmp_setp(e: FunctionEmitter, i: Instr) -> None:
    kind = i.form.type
    if kind.kind == "x":  # p|q: the comparisons of the low and the high halves
        low, high = _each_half(e, i, kind)
        write_pair(e, i.operands[0], low, "i1", high)
        return
    value = compare(e, i, kind, *_operands(e, i, kind))
    first = _combine(e, i, value)
    second = ""
    if isinstance(i.operands[0], Pair):
        second = _combine(e, i, e.op(f"xor i1 {value}, true"))
    write_pair(e, i.operands[0], first, "i1", second)


@lowers("cmp_set")
def cmp_set(e: FunctionEmitter, i: Instr) -> None:
    kind, target = i.form.type, TYPES[i.form.get("d")]
    if kind.kind == "x":
        _set_pair(e, i, kind, target)
        return
    bit = _combine(e, i, compare(e, i, kind, *_operands(e, i, kind)))
    if target.kind in "fh":
        one = {"f32": "1.0", "f16": "0xH3C00", "bf16": str(0x3F80)}[target.name]
        zero = {"f32": "0.0", "f16": "0xH0000", "bf16": "0"}[target.name]
        e.write(
            i.operands[0],
            e.op(f"select i1 {bit}, {target.llvm} {one}, {target.llvm} {zero}"),
            target.llvm,
        )
    else:
        e.write(i.operands[0], e.op(f"sext i1 {bit} to {target.llvm}"), target.llvm)


def _set_pair(e: FunctionEmitter, i: Instr, kind: Type, target: Type) -> None:
    one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(target.name, 0xFFFF)
    value = "0"
    for n, bit in enumerate(_each_half(e, i, kind)):
        part = e.op(f"select i1 {bit}, i32 {one << 16 * n}, i32 0")
        value = e.op(f"or i32 {value}, {part}")
    e.write(i.operands[0], value, "i32")


@lowers("cmp_selp")
def cmp_selp(e: FunctionEmitter, i: Instr) -> None:
    llvm = i.form.type.llvm
    a, b = e.source(i, 1), e.source(i, 2)
    e.result(i, e.op(f"select i1 {e.read(i.operands[3], 'i1')}, {llvm} {a}, {llvm} {b}"))


@lowers("cmp_slct")
def cmp_slct(e: FunctionEmitter, i: Instr) -> None:
    llvm = i.form.type.llvm
    a, b = e.source(i, 1), e.source(i, 2)
    c = e.read(i.operands[3], "i32" if i.form.get("c") == "s32" else "float")
    if i.form.get("c") == "s32":
        first = e.op(f"icmp sge i32 {c}, 0")
    else:
        if i.form.has("ftz"):
            c = flush(e, c)
        first = e.op(f"fcmp oge float {c}, 0.0")
    e.result(i, e.op(f"select i1 {first}, {llvm} {a}, {llvm} {b}"))
