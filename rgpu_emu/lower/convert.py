"""cvt in all its modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.arith import minmax
from rgpu_emu.lower.compare import flush
from rgpu_emu.lower.emit import float_constant
from rgpu_emu.lower.half import flush_half, to_float
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.operands import Imm
from rgpu_emu.ptx.types import TYPES, Type

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_ROUND: Final = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_SUFFIX: Final = {"float": "f32", "double": "f64"}


def _types(i: Instr) -> tuple[Type, Type]:
    return TYPES[i.form.get("d")], TYPES[i.form.get("s")]


def _source(e: FunctionEmitter, i: Instr, kind: Type) -> str:
    """Returns the source, from a register that may be wider than its type."""
    return e.read(i.operands[1], kind.llvm, relaxed=True)


def _write(e: FunctionEmitter, i: Instr, value: str, kind: Type) -> None:
    """Writes a result. A narrow result is extended to the register by the sign of the destination
    type.
    """
    e.write(i.operands[0], value, kind.llvm, relaxed=True, signed=kind.kind == "s")


@lowers("cvt_int")
def cvt_int(e: FunctionEmitter, i: Instr) -> None:
    to, src = _types(i)
    value = _source(e, i, src)
    if i.form.has("sat"):
        value = _saturate(e, value, to, src)
    _write(
        e,
        i,
        e.cast_int(
            value, src.llvm if not i.form.has("sat") else "i128", to.llvm, signed=src.kind == "s"
        ),
        to,
    )


def _saturate(e: FunctionEmitter, value: str, to: Type, src: Type) -> str:
    """Returns the value clamped to the target's range, as i128."""
    wide = e.cast_int(value, src.llvm, "i128", signed=src.kind == "s")
    low, high = (
        (-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if to.kind == "s" else (0, (1 << to.bits) - 1)
    )
    return minmax(
        e,
        "max",
        "i128",
        minmax(e, "min", "i128", wide, str(high), signed=True),
        str(low),
        signed=True,
    )


def source_float(e: FunctionEmitter, i: Instr, src: Type) -> tuple[str, str]:
    """Returns the source as float (halves and singles) or double, and its IR type. `.ftz` flushes
    it.
    """
    value = _source(e, i, src)
    if src.name == "f16" and i.form.has("ftz"):
        value = flush_half(e, value)
    if src.bits == 16:
        return to_float(e, value, src), "float"
    if src.name == "f32" and i.form.has("ftz"):
        value = flush(e, value)
    return value, src.llvm


@lowers("cvt_float_to_int")
def cvt_float_to_int(e: FunctionEmitter, i: Instr) -> None:
    """Emits float to integer. Values out of range give the nearest end of the range.

    NaN gives 0 where neither the source is f64 nor the destination has 64 bits; elsewhere it gives
    the destination's highest bit alone. `.sat` changes neither.
    """
    to, src = _types(i)
    value, llvm = source_float(e, i, src)
    nan = "" if src.name != "f64" and to.bits != 64 else e.op(f"fcmp uno {llvm} {value}, 0.0")
    value = e.intrinsic(
        llvm, f"llvm.{_ROUND[i.form.get('irnd')]}.{_SUFFIX[llvm]}", f"{llvm} {value}"
    )
    name = f"llvm.fpto{'si' if to.kind == 's' else 'ui'}.sat.{to.llvm}.{_SUFFIX[llvm]}"
    result = e.intrinsic(to.llvm, name, f"{llvm} {value}")
    if nan:
        highest = -(1 << to.bits - 1)
        result = e.op(f"select i1 {nan}, {to.llvm} {highest}, {to.llvm} {result}")
    _write(e, i, result, to)


@lowers("cvt_int_to_float")
def cvt_int_to_float(e: FunctionEmitter, i: Instr) -> None:
    to, src = _types(i)
    value, rnd = _source(e, i, src), i.form.get("frnd")
    signed = src.kind == "s"
    if rnd == "rn" and to.bits >= 32:
        result = e.op(f"{'si' if signed else 'ui'}tofp {src.llvm} {value} to {to.llvm}")
    else:
        total, error = _exact(e, value, src)
        result = finish_float(e, total, error, to, rnd)
    if i.form.has("sat"):
        result = _saturate_float(e, result, to)
    _write(e, i, result, to)


def _exact(e: FunctionEmitter, value: str, src: Type) -> tuple[str, str]:
    """Returns a double and its error. Their sum is exactly the integer."""
    signed = src.kind == "s"
    if src.bits <= 32:
        return e.op(f"{'si' if signed else 'ui'}tofp {src.llvm} {value} to double"), "0.0"
    high = e.op(f"{'ashr' if signed else 'lshr'} i64 {value}, 32")
    upper = e.op(f"{'si' if signed else 'ui'}tofp i64 {high} to double")
    x = e.op(f"fmul double {upper}, 4294967296.0")
    y = e.op(f"uitofp i64 {e.op(f'and i64 {value}, 4294967295')} to double")
    total = e.op(f"fadd double {x}, {y}")
    tail = e.op(f"fsub double {total}, {x}")
    return total, e.op(f"fsub double {y}, {tail}")


def finish_float(e: FunctionEmitter, total: str, error: str, to: Type, rnd: str) -> str:
    """Returns total + error (doubles), rounded once to a type by a mode."""
    if to.name == "f64":
        if rnd == "rn":
            return total
        helper = e.library(f"rgpu.add.{rnd}.f64")
        return e.op(f"call double {helper}(double {total}, double {error})")
    mode = rnd if to.name == "f32" else "odd"
    value = e.op(f"call float {e.library(f'rgpu.narrow.{mode}')}(double {total}, double {error})")
    return value if to.name == "f32" else round_half(e, value, to, rnd)


def round_half(e: FunctionEmitter, value: str, to: Type, rnd: str) -> str:
    """Returns a float rounded to f16 or bf16."""
    if to.name == "bf16":
        return e.op(f"call i16 {e.library(f'rgpu.bf16.{rnd}')}(float {value})")
    if rnd == "rn":
        return e.op(f"fptrunc float {value} to half")
    return e.op(f"call half {e.library(f'rgpu.f16.{rnd}')}(float {value})")


def _saturate_float(e: FunctionEmitter, value: str, to: Type) -> str:
    if to.bits == 16:
        wide = e.op(f"call float {e.library('rgpu.sat')}(float {to_float(e, value, to)})")
        return round_half(e, wide, to, "rn")
    name = "rgpu.sat" if to.name == "f32" else "rgpu.sat.f64"
    return e.op(f"call {to.llvm} {e.library(name)}({to.llvm} {value})")


@lowers("cvt_round")
def cvt_round(e: FunctionEmitter, i: Instr) -> None:
    to, src = _types(i)
    value, llvm = source_float(e, i, src)
    value = e.intrinsic(
        llvm, f"llvm.{_ROUND[i.form.get('irnd')]}.{_SUFFIX[llvm]}", f"{llvm} {value}"
    )
    if i.form.has("sat"):
        name = "rgpu.sat" if llvm == "float" else "rgpu.sat.f64"
        value = e.op(f"call {llvm} {e.library(name)}({llvm} {value})")
    _write(e, i, round_half(e, value, to, "rn") if to.bits == 16 else value, to)


@lowers("cvt_float")
def cvt_float(e: FunctionEmitter, i: Instr) -> None:
    to, src = _types(i)
    value, llvm = source_float(e, i, src)
    if i.form.has("sat") or i.form.has("relu"):
        name = (
            "rgpu.relu" if i.form.has("relu") else "rgpu.sat" if llvm == "float" else "rgpu.sat.f64"
        )
        value = e.op(f"call {llvm} {e.library(name)}({llvm} {value})")
    if i.form.has("satfinite"):
        value = _finite(e, value, to)
    result = _between(e, value, llvm, to, i.form.get("frnd") or "rn")
    if i.form.has("ftz") and to.name == "f32":
        result = flush(e, result)
    _write(e, i, result, to)


def _finite(e: FunctionEmitter, value: str, to: Type) -> str:
    """Returns a float limited to the finite numbers of a half type. NaN stays NaN."""
    greatest = float_constant(Imm(0x477FE000 if to.name == "f16" else 0x7F7F0000, 32), "float")
    for sign, test in (("", "ogt"), ("-", "olt")):
        bound = greatest if not sign else e.op(f"fneg float {greatest}")
        beyond = e.op(f"fcmp {test} float {value}, {bound}")
        value = e.op(f"select i1 {beyond}, float {bound}, float {value}")
    return value


def _between(e: FunctionEmitter, value: str, llvm: str, to: Type, rnd: str) -> str:
    if llvm == to.llvm:
        return value
    if to.name == "f64":
        return e.op(f"fpext {llvm} {value} to double")
    if llvm == "float":
        return round_half(e, value, to, rnd)
    if to.name == "f32" and rnd == "rn":
        return e.op(f"fptrunc double {value} to float")
    return finish_float(e, value, "0.0", to, rnd)


@lowers("cvt_pack")
def cvt_pack(e: FunctionEmitter, i: Instr) -> None:
    """Emits two floats to a pair. The first source is the high half."""
    element = TYPES[i.form.get("d").removesuffix("x2")]
    halves = []
    for k in (1, 2):
        value = e.read(i.operands[k], "float")
        for name in ("relu", "sat"):
            if i.form.has(name):
                value = e.op(f"call float {e.library(f'rgpu.{name}')}(float {value})")
        if i.form.has("satfinite"):
            value = _finite(e, value, element)
        half = round_half(e, value, element, i.form.get("frnd"))
        bits = e.op(f"bitcast half {half} to i16") if element.llvm == "half" else half
        halves.append(e.op(f"zext i16 {bits} to i32"))
    high = e.op(f"shl i32 {halves[0]}, 16")
    e.write(i.operands[0], e.op(f"or i32 {high}, {halves[1]}"), "i32")


@lowers("cvt_pack_integers")
def cvt_pack_integers(e: FunctionEmitter, i: Instr) -> None:
    """Emits cvt.pack: two saturated integers, the second source lowest, and above them the third
    source.
    """
    kind, bits = i.form.get("d")[0], int(i.form.get("d")[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s" else (0, (1 << bits) - 1)
    packed = e.read(i.operands[3], "i32") if len(i.operands) > 3 else "0"
    for operand in i.operands[1:3]:
        value = minmax(e, "min", "i32", e.read(operand, "i32"), str(high), signed=True)
        value = minmax(e, "max", "i32", value, str(low), signed=True)
        field = e.op(f"and i32 {value}, {(1 << bits) - 1}")
        packed = e.op(f"or i32 {e.op(f'shl i32 {packed}, {bits}')}, {field}")
    e.write(i.operands[0], packed, "i32")
