"""Bit fields, counts, permutes, funnel shifts and dot products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_emu.lower.arith import minmax
from rgpu_emu.lower.registry import lowers

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr


@lowers("int_count")
def int_count(e: FunctionEmitter, i: Instr) -> None:
    llvm, op = i.form.type.llvm, i.form.row.op
    a = e.source(i, 1)
    if op == "brev":
        e.result(i, e.intrinsic(llvm, f"llvm.bitreverse.{llvm}", f"{llvm} {a}"))
        return
    if op == "popc":
        value = e.intrinsic(llvm, f"llvm.ctpop.{llvm}", f"{llvm} {a}")
    else:
        value = e.intrinsic(llvm, f"llvm.ctlz.{llvm}", f"{llvm} {a}", "i1 false")
    e.write(i.operands[0], e.cast_int(value, llvm, "i32"), "i32")


@lowers("int_bfind")
def int_bfind(e: FunctionEmitter, i: Instr) -> None:
    kind = i.form.type
    llvm, a = kind.llvm, e.source(i, 1)
    if kind.kind == "s":
        a = e.op(f"xor {llvm} {a}, {e.op(f'ashr {llvm} {a}, {kind.bits - 1}')}")
    zeros = e.cast_int(
        e.intrinsic(llvm, f"llvm.ctlz.{llvm}", f"{llvm} {a}", "i1 false"), llvm, "i32"
    )
    none = e.op(f"icmp eq {llvm} {a}, 0")
    value = zeros if i.form.has("shiftamt") else e.op(f"sub i32 {kind.bits - 1}, {zeros}")
    e.write(i.operands[0], e.op(f"select i1 {none}, i32 -1, i32 {value}"), "i32")


@lowers("int_fns")
def int_fns(e: FunctionEmitter, i: Instr) -> None:
    mask, base, offset = (e.source(i, k) for k in (1, 2, 3))
    e.result(i, e.op(f"call i32 {e.library('rgpu.fns')}(i32 {mask}, i32 {base}, i32 {offset})"))


def _low_byte(e: FunctionEmitter, i: Instr, index: int) -> str:
    return e.op(f"and i32 {e.read(i.operands[index], 'i32')}, 255")


def _mask_below(e: FunctionEmitter, llvm: str, bits: int, count: str) -> str:
    """Returns an integer with the lowest `count` bits set (count: an i32 from 0 to 255); from
    `bits` on, all bits are set.
    """
    small = e.cast_int(minmax(e, "min", "i32", count, str(bits - 1), signed=False), "i32", llvm)
    part = e.op(f"sub {llvm} {e.op(f'shl {llvm} 1, {small}')}, 1")
    whole = e.op(f"icmp uge i32 {count}, {bits}")
    return e.op(f"select i1 {whole}, {llvm} -1, {llvm} {part}")


def _shift_clamped(
    e: FunctionEmitter, name: str, llvm: str, bits: int, value: str, count: str
) -> str:
    small = e.cast_int(minmax(e, "min", "i32", count, str(bits - 1), signed=False), "i32", llvm)
    shifted = e.op(f"{name} {llvm} {value}, {small}")
    large = e.op(f"icmp uge i32 {count}, {bits}")
    return e.op(f"select i1 {large}, {llvm} 0, {llvm} {shifted}")


@lowers("int_bfe")
def int_bfe(e: FunctionEmitter, i: Instr) -> None:
    kind = i.form.type
    llvm, bits = kind.llvm, kind.bits
    a, pos, length = e.source(i, 1), _low_byte(e, i, 2), _low_byte(e, i, 3)
    mask = _mask_below(e, llvm, bits, length)
    field = e.op(f"and {llvm} {_shift_clamped(e, 'lshr', llvm, bits, a, pos)}, {mask}")
    if (
        kind.kind == "s"
    ):  # the sign is the field's top bit, or the value's if the field ends beyond the value
        end = e.op(f"sub i32 {e.op(f'add i32 {pos}, {length}')}, 1")
        at = minmax(e, "min", "i32", end, str(bits - 1), signed=False)
        bit = e.op(f"lshr {llvm} {a}, {e.cast_int(at, 'i32', llvm)}")
        bit = e.op(f"and {llvm} {bit}, 1")
        empty = e.op(f"icmp eq i32 {length}, 0")
        bit = e.op(f"select i1 {empty}, {llvm} 0, {llvm} {bit}")
        fill = e.op(f"sub {llvm} 0, {bit}")
        inside = e.op(f"sub i32 {bits}, {minmax(e, 'min', 'i32', pos, str(bits), signed=False)}")
        have = minmax(e, "min", "i32", length, inside, signed=False)
        keep = _mask_below(e, llvm, bits, have)
        above = e.op(f"and {llvm} {fill}, {e.op(f'xor {llvm} {keep}, -1')}")
        field = e.op(f"or {llvm} {above}, {e.op(f'and {llvm} {field}, {keep}')}")
    e.result(i, field)


@lowers("int_bfi")
def int_bfi(e: FunctionEmitter, i: Instr) -> None:
    kind = i.form.type
    llvm, bits = kind.llvm, kind.bits
    a, b = e.source(i, 1), e.source(i, 2)
    pos, length = _low_byte(e, i, 3), _low_byte(e, i, 4)
    mask = _shift_clamped(e, "shl", llvm, bits, _mask_below(e, llvm, bits, length), pos)
    moved = _shift_clamped(e, "shl", llvm, bits, a, pos)
    kept = e.op(f"and {llvm} {b}, {e.op(f'xor {llvm} {mask}, -1')}")
    e.result(i, e.op(f"or {llvm} {kept}, {e.op(f'and {llvm} {moved}, {mask}')}"))


@lowers("int_szext")
def int_szext(e: FunctionEmitter, i: Instr) -> None:
    kind = i.form.type
    a, width = e.source(i, 1), e.source(i, 2)
    if i.form.get("mode") == "wrap":
        width = e.op(f"and i32 {width}, 31")
    mask = _mask_below(e, "i32", 32, minmax(e, "min", "i32", width, "32", signed=False))
    low = e.op(f"and i32 {a}, {mask}")
    if kind.kind == "s":
        half = e.op(f"lshr i32 {mask}, 1")
        top = e.op(f"and i32 {low}, {e.op(f'xor i32 {mask}, {half}')}")
        high = e.op(
            f"select i1 {e.op(f'icmp ne i32 {top}, 0')}, i32 {e.op(f'xor i32 {mask}, -1')}, i32 0"
        )
        low = e.op(f"or i32 {low}, {high}")
    e.result(i, low)


@lowers("int_bmsk")
def int_bmsk(e: FunctionEmitter, i: Instr) -> None:
    start, width = e.source(i, 1), e.source(i, 2)
    if i.form.get("mode") == "wrap":
        start, width = e.op(f"and i32 {start}, 31"), e.op(f"and i32 {width}, 31")
    mask = _mask_below(e, "i32", 32, width)
    e.result(i, _shift_clamped(e, "shl", "i32", 32, mask, start))


@lowers("int_funnel")
def int_funnel(e: FunctionEmitter, i: Instr) -> None:
    low, high, count = (e.source(i, k) for k in (1, 2, 3))
    left = i.form.get("dir") == "l"
    if i.form.get("mode") == "wrap":
        name = "llvm.fshl.i32" if left else "llvm.fshr.i32"
        e.result(i, e.intrinsic("i32", name, f"i32 {high}", f"i32 {low}", f"i32 {count}"))
        return
    count = e.op(f"zext i32 {minmax(e, 'min', 'i32', count, '32', signed=False)} to i64")
    both = e.op(f"shl i64 {e.op(f'zext i32 {high} to i64')}, 32")
    both = e.op(f"or i64 {both}, {e.op(f'zext i32 {low} to i64')}")
    if left:
        moved = e.op(f"lshr i64 {e.op(f'shl i64 {both}, {count}')}, 32")
    else:
        moved = e.op(f"lshr i64 {both}, {count}")
    e.result(i, e.op(f"trunc i64 {moved} to i32"))


@lowers("int_prmt")
def int_prmt(e: FunctionEmitter, i: Instr) -> None:
    mode = i.form.get("mode") or "index"
    a, b, c = (e.source(i, k) for k in (1, 2, 3))
    helper = e.library("rgpu.prmt" if mode == "index" else f"rgpu.prmt.{mode}")
    e.result(i, e.op(f"call i32 {helper}(i32 {a}, i32 {b}, i32 {c})"))


@lowers("int_dot")
def int_dot(e: FunctionEmitter, i: Instr) -> None:
    four = i.form.row.op == "dp4a"
    kinds = [i.form.get("a")[0], i.form.get("b")[0]]
    a, b, total = (e.read(i.operands[k], "i32") for k in (1, 2, 3))
    start = 16 if i.form.get("mode") == "hi" else 0
    for k in range(4 if four else 2):
        if four:
            x, y = _part(e, a, 8 * k, 8, kinds[0]), _part(e, b, 8 * k, 8, kinds[1])
        else:
            x, y = _part(e, a, 16 * k, 16, kinds[0]), _part(e, b, start + 8 * k, 8, kinds[1])
        total = e.op(f"add i32 {total}, {e.op(f'mul i32 {x}, {y}')}")
    e.write(i.operands[0], total, "i32")


def _part(e: FunctionEmitter, value: str, at: int, bits: int, kind: str) -> str:
    up = e.op(f"shl i32 {value}, {32 - bits - at}")
    return e.op(f"{'ashr' if kind == 's' else 'lshr'} i32 {up}, {32 - bits}")
