"""Integer arithmetic, logic and shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Imm

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_PLAIN: Final = {"add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor"}


def minmax_name(op: str, *, signed: bool) -> str:
    return f"llvm.{'s' if signed else 'u'}{op}"


@lowers("int_binary")
def int_binary(e: FunctionEmitter, i: Instr) -> None:
    op, kind = i.form.row.op, i.form.type
    packed = kind.kind == "x"
    llvm = "<2 x i16>" if packed else kind.llvm
    a, b = e.source(i, 1), e.source(i, 2)
    if packed:
        a, b = (e.op(f"bitcast i32 {v} to <2 x i16>") for v in (a, b))
    if op in _PLAIN:
        value = e.op(f"{_PLAIN[op]} {llvm} {a}, {b}")
    else:
        value = minmax(e, op, llvm, a, b, signed=kind.name.startswith("s"))
    if i.form.has("relu"):
        value = minmax(e, "max", llvm, value, "zeroinitializer" if packed else "0", signed=True)
    if packed:
        value = e.op(f"bitcast <2 x i16> {value} to i32")
    e.result(i, value)


def minmax(e: FunctionEmitter, op: str, llvm: str, a: str, b: str, *, signed: bool) -> str:
    suffix = "v2i16" if llvm.startswith("<") else llvm
    name = f"{minmax_name(op, signed=signed)}.{suffix}"
    e.unit.declare(llvm, name, [llvm, llvm])
    return e.op(f"call {llvm} @{name}({llvm} {a}, {llvm} {b})")


@lowers("int_saturating")
def int_saturating(e: FunctionEmitter, i: Instr) -> None:
    a, b = e.source(i, 1), e.source(i, 2)
    e.result(i, e.intrinsic("i32", f"llvm.s{i.form.row.op}.sat.i32", f"i32 {a}", f"i32 {b}"))


def multiply(e: FunctionEmitter, i: Instr) -> tuple[str, str]:
    """Returns the product for `.lo`, `.hi` or `.wide`, and its IR type."""
    kind, mode = i.form.type, i.form.get("mode") or "lo"
    a, b = e.source(i, 1), e.source(i, 2)
    if mode == "lo":
        return e.op(f"mul {kind.llvm} {a}, {b}"), kind.llvm
    wide = f"i{kind.bits * 2}"
    extend = "sext" if kind.kind == "s" else "zext"
    a, b = (e.op(f"{extend} {kind.llvm} {v} to {wide}") for v in (a, b))
    product = e.op(f"mul {wide} {a}, {b}")
    if mode == "wide":
        return product, wide
    high = e.op(f"lshr {wide} {product}, {kind.bits}")
    return e.op(f"trunc {wide} {high} to {kind.llvm}"), kind.llvm


@lowers("int_mul")
def int_mul(e: FunctionEmitter, i: Instr) -> None:
    value, llvm = multiply(e, i)
    e.result(i, value, llvm)


@lowers("int_mad")
def int_mad(e: FunctionEmitter, i: Instr) -> None:
    value, llvm = multiply(e, i)
    c = e.read(i.operands[3], llvm)
    if i.form.has("sat"):
        e.result(i, e.intrinsic("i32", "llvm.sadd.sat.i32", f"i32 {value}", f"i32 {c}"))
        return
    e.result(i, e.op(f"add {llvm} {value}, {c}"), llvm)


@lowers("int_mul24")
def int_mul24(e: FunctionEmitter, i: Instr) -> None:
    signed = i.form.type.kind == "s"
    shift = "ashr" if signed else "lshr"
    wide = []
    for k in (1, 2):
        up = e.op(f"shl i32 {e.source(i, k)}, 8")
        low = e.op(f"{shift} i32 {up}, 8")
        wide.append(e.op(f"{'sext' if signed else 'zext'} i32 {low} to i64"))
    product = e.op(f"mul i64 {wide[0]}, {wide[1]}")
    if i.form.get("mode") == "hi":
        product = e.op(f"lshr i64 {product}, 16")
    value = e.op(f"trunc i64 {product} to i32")
    if i.form.row.op == "mad24":
        c = e.source(i, 3)
        if i.form.has("sat"):
            value = e.intrinsic("i32", "llvm.sadd.sat.i32", f"i32 {value}", f"i32 {c}")
        else:
            value = e.op(f"add i32 {value}, {c}")
    e.result(i, value)


@lowers("int_sad")
def int_sad(e: FunctionEmitter, i: Instr) -> None:
    kind = i.form.type
    a, b, c = (e.source(i, k) for k in (1, 2, 3))
    less = e.op(f"icmp {'slt' if kind.kind == 's' else 'ult'} {kind.llvm} {a}, {b}")
    up, down = e.op(f"sub {kind.llvm} {b}, {a}"), e.op(f"sub {kind.llvm} {a}, {b}")
    distance = e.op(f"select i1 {less}, {kind.llvm} {up}, {kind.llvm} {down}")
    e.result(i, e.op(f"add {kind.llvm} {c}, {distance}"))


@lowers("int_divide")
def int_divide(e: FunctionEmitter, i: Instr) -> None:
    """Emits div and rem.

    Division by zero gives all ones, and its remainder is the dividend. The most negative value
    divided by -1 wraps.
    """
    kind, op = i.form.type, i.form.row.op
    llvm, signed = kind.llvm, kind.kind == "s"
    a, b = e.source(i, 1), e.source(i, 2)
    divisor = i.operands[2]
    ones = (1 << kind.bits) - 1
    if isinstance(divisor, Imm) and divisor.value & ones not in (0, ones):
        e.result(i, e.op(f"{'s' if signed else 'u'}{op} {llvm} {a}, {b}"))
        return
    zero = e.op(f"icmp eq {llvm} {b}, 0")
    unsafe = zero
    if signed:
        unsafe = e.op(f"or i1 {zero}, {e.op(f'icmp eq {llvm} {b}, -1')}")
    safe = e.op(f"select i1 {unsafe}, {llvm} 1, {llvm} {b}")
    value = e.op(f"{'s' if signed else 'u'}{op} {llvm} {a}, {safe}")
    if op == "div":
        if signed:
            negative = e.op(f"sub {llvm} 0, {a}")
            value = e.op(f"select i1 {unsafe}, {llvm} {negative}, {llvm} {value}")
        value = e.op(f"select i1 {zero}, {llvm} -1, {llvm} {value}")
    else:
        value = e.op(f"select i1 {zero}, {llvm} {a}, {llvm} {value}")
    e.result(i, value)


@lowers("int_unary")
def int_unary(e: FunctionEmitter, i: Instr) -> None:
    kind, op = i.form.type, i.form.row.op
    llvm, a = kind.llvm, e.source(i, 1)
    if op == "abs":
        value = e.intrinsic(llvm, f"llvm.abs.{llvm}", f"{llvm} {a}", "i1 false")
    elif op == "neg":
        value = e.op(f"sub {llvm} 0, {a}")
    elif op == "not":
        value = e.op(f"xor {llvm} {a}, {'true' if llvm == 'i1' else '-1'}")
    else:
        value = e.op(f"zext i1 {e.op(f'icmp eq {llvm} {a}, 0')} to {llvm}")
    e.result(i, value)


@lowers("int_shift")
def int_shift(e: FunctionEmitter, i: Instr) -> None:
    """Emits shl and shr. The amount is u32 and is not taken modulo the width, so a large one shifts
    all bits out.
    """
    kind, op = i.form.type, i.form.row.op
    llvm = kind.llvm
    a = e.source(i, 1)
    arithmetic = op == "shr" and kind.kind == "s"
    name = "shl" if op == "shl" else "ashr" if arithmetic else "lshr"
    amount = i.operands[2]
    if isinstance(amount, Imm):
        shift = amount.value & 0xFFFFFFFF
        if shift >= kind.bits:
            e.result(i, e.op(f"ashr {llvm} {a}, {kind.bits - 1}") if arithmetic else "0")
        else:
            e.result(i, e.op(f"{name} {llvm} {a}, {shift}"))
        return
    b = e.read(amount, "i32", relaxed=True)
    small = minmax(e, "min", "i32", b, str(kind.bits - 1), signed=False)
    value = e.op(f"{name} {llvm} {a}, {e.cast_int(small, 'i32', llvm)}")
    if not arithmetic:
        large = e.op(f"icmp ugt i32 {b}, {kind.bits - 1}")
        value = e.op(f"select i1 {large}, {llvm} 0, {llvm} {value}")
    e.result(i, value)


@lowers("int_lop3")
def int_lop3(e: FunctionEmitter, i: Instr) -> None:
    a, b, c = (e.source(i, k) for k in (1, 2, 3))
    table = i.operands[4]
    if not isinstance(table, Imm):
        raise PtxError("the lookup table of lop3 is not a literal")
    e_not = {v: e.op(f"xor i32 {v}, -1") for v in dict.fromkeys((a, b, c))}
    terms = []
    for k in range(8):
        if table.value >> k & 1:
            x, y, z = (v if k >> s & 1 else e_not[v] for v, s in ((a, 2), (b, 1), (c, 0)))
            terms.append(e.op(f"and i32 {e.op(f'and i32 {x}, {y}')}, {z}"))
    value = terms[0] if terms else "0"
    for term in terms[1:]:
        value = e.op(f"or i32 {value}, {term}")
    if not i.form.has("bool"):
        e.result(i, value)
        return
    from rgpu_emu.lower.compare import write_pair

    predicate = e.read(i.operands[5], "i1")
    nonzero = e.op(f"icmp ne i32 {value}, 0")
    write_pair(
        e, i.operands[0], value, "i32", e.op(f"{i.form.get('bool')} i1 {nonzero}, {predicate}")
    )
