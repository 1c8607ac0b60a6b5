"""Video instructions: operations on bytes and half-words of 32-bit registers.

Intermediate results are as wide as they need to be to be exact. They are computed in 128 bits,
which LLVM narrows. The manual gives the third operand of `.min` and `.max` 33 bits, so without
`.sat` the intermediate result is cut to 33 bits there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from rgpu_emu.lower.arith import minmax
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.operands import Part, Reg, Sink

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

Width = Literal[8, 16, 32]
WIDE: Final = "i128"
_SIMD: Final = "i32"  # enough for sums of 16-bit elements
_PARTS: Final[dict[str, tuple[Width, int]]] = {  # selector: bits, position
    "": (32, 0),
    **{f"b{n}": (8, 8 * n) for n in range(4)},
    **{f"h{n}": (16, 16 * n) for n in range(2)},
}
# The subsets of elements that a SIMD instruction may write, as the digits of its selector.
_MASKS: Final = {
    2: frozenset(("", "0", "1", "10")),
    4: frozenset("".join(str(n) for n in (3, 2, 1, 0) if bits >> n & 1) for bits in range(1 << 4)),
}
_DEFAULT: Final = {2: ("10", "32"), 4: ("3210", "7654")}


def _operands(i: Instr) -> list[Part]:
    parts = [operand for operand in i.operands if isinstance(operand, Part)]
    if i.form.row.lower != "video_mad" and any(part.negated for part in parts):
        raise PtxError("only vmad negates its operands")
    if not isinstance(parts[0].operand, (Reg, Sink)) or parts[0].negated:
        raise PtxError("the destination is not a register")
    return parts


def _scalar(e: FunctionEmitter, part: Part, signed: bool) -> str:
    """Returns the selected part of a source, extended by the sign of its type."""
    bits, at = _selected(part)
    value = e.read(part.operand, "i32")
    extend = "sext" if signed else "zext"
    if bits < 32:
        value = e.op(f"trunc i32 {e.op(f'lshr i32 {value}, {at}')} to i{bits}")
    return e.op(f"{extend} i{bits} {value} to {WIDE}")


def _selected(part: Part) -> tuple[Width, int]:
    found = _PARTS.get(part.selector)
    if found is None:
        raise PtxError(f".{part.selector} names no byte or half-word of one register")
    return found


def _third(e: FunctionEmitter, part: Part) -> str:
    if part.selector:
        raise PtxError("the third source is a whole register")
    return e.read(part.operand, "i32")


def _clamped(e: FunctionEmitter, value: str, llvm: str, bits: int, *, signed: bool) -> str:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    value = minmax(e, "min", llvm, value, str(high), signed=True)
    return minmax(e, "max", llvm, value, str(low), signed=True)


def _combine(e: FunctionEmitter, op: str, llvm: str, a: str, b: str, cmp: str) -> str:
    """Returns the result of an operation on two extended elements."""
    if op in ("vadd", "vsub"):
        return e.op(f"{op[1:]} {llvm} {a}, {b}")
    if op in ("vmin", "vmax"):
        return minmax(e, op[1:], llvm, a, b, signed=True)
    if op == "vabsdiff":
        return e.intrinsic(
            llvm, f"llvm.abs.{llvm}", f"{llvm} {e.op(f'sub {llvm} {a}, {b}')}", "i1 false"
        )
    if op == "vavrg":  # halves are rounded away from zero
        total = e.op(f"add {llvm} {a}, {b}")
        up = e.op(f"zext i1 {e.op(f'icmp sge {llvm} {total}, 0')} to {llvm}")
        return e.op(f"ashr {llvm} {e.op(f'add {llvm} {total}, {up}')}, 1")
    name = cmp if cmp in ("eq", "ne") else f"s{cmp}"
    return e.op(f"zext i1 {e.op(f'icmp {name} {llvm} {a}, {b}')} to {llvm}")


def _shifted(e: FunctionEmitter, i: Instr, value: str, count: str) -> str:
    if i.form.get("mode") == "wrap":
        count = e.op(f"and {WIDE} {count}, 31")
    else:
        count = minmax(e, "min", WIDE, count, "32", signed=False)
    return e.op(f"{'shl' if i.form.row.op == 'vshl' else 'ashr'} {WIDE} {value}, {count}")


@lowers("video")
def video(e: FunctionEmitter, i: Instr) -> None:
    target, first, second, *rest = _operands(i)
    form, op = i.form, i.form.row.op
    a = _scalar(e, first, form.get("a") == "s32")
    b = _scalar(e, second, form.get("b") == "s32")
    if op in ("vshl", "vshr"):
        value = _shifted(e, i, a, b)
    else:
        value = _combine(e, op, WIDE, a, b, form.get("cmp"))
    signed = form.get("d") == "s32"
    bits, at = _selected(target)
    if form.has("sat"):
        value = _clamped(e, value, WIDE, bits, signed=signed)
    if bool(target.selector or form.has("second")) != bool(rest):
        raise PtxError("a third source is for a second operation or a part of the destination")
    if form.has("second"):
        if target.selector:
            raise PtxError("a second operation writes the whole destination")
        value = _second(e, form.get("second"), value, _third(e, rest[0]), signed=signed)
    value = e.op(f"trunc {WIDE} {value} to i32")
    if target.selector:
        value = _merged(e, value, _third(e, rest[0]), bits, at)
    e.write(target.operand, value, "i32")


def _second(e: FunctionEmitter, op: str, value: str, third: str, *, signed: bool) -> str:
    c = e.op(f"{'sext' if signed else 'zext'} i32 {third} to {WIDE}")
    if op == "add":
        return e.op(f"add {WIDE} {value}, {c}")
    cut = e.op(f"sext i33 {e.op(f'trunc {WIDE} {value} to i33')} to {WIDE}")
    return minmax(e, op, WIDE, cut, c, signed=True)


def _merged(e: FunctionEmitter, value: str, third: str, bits: int, at: int) -> str:
    """Returns the third source with `bits` bits at a position replaced."""
    mask = (1 << bits) - 1
    moved = e.op(f"shl i32 {e.op(f'and i32 {value}, {mask}')}, {at}")
    kept = e.op(f"and i32 {third}, {~(mask << at) & 0xFFFFFFFF}")
    return e.op(f"or i32 {moved}, {kept}")


@lowers("video_mad")
def video_mad(e: FunctionEmitter, i: Instr) -> None:
    """Emits vmad: a * b + c, of which the product or c may be negated.

    Where an unsigned c is subtracted, the manual's text and its semantics differ about values of c
    from 2^31 on. That decides the result only if it is scaled or saturated, so those are refused.
    """
    target, first, second, third = _operands(i)
    if target.selector:
        raise PtxError("vmad writes the whole destination")
    form, minus = i.form, first.negated != second.negated
    signs = [form.get(name) == "s32" for name in "ab"]
    if form.has("po") and (first.negated or second.negated or third.negated):
        raise PtxError("vmad.po does not negate its sources")
    if minus and third.negated:
        raise PtxError("vmad negates its product or its third source, not both")
    if third.negated and not any(signs) and (form.has("sat") or form.has("scale")):
        raise unsupported(
            f"{form.name} with a negated third source",
            "has no clear meaning for unsigned sources",
        )
    signed = any(signs) or minus or third.negated
    a, b = (_scalar(e, part, sign) for part, sign in zip((first, second), signs, strict=True))
    value = e.op(f"mul {WIDE} {a}, {b}")
    if minus:
        value = e.op(f"sub {WIDE} 0, {value}")
    c = e.op(f"{'sext' if signed else 'zext'} i32 {_third(e, third)} to {WIDE}")
    value = e.op(f"{'sub' if third.negated else 'add'} {WIDE} {value}, {c}")
    if form.has("po"):
        value = e.op(f"add {WIDE} {value}, 1")
    if form.has("scale"):
        value = e.op(f"ashr {WIDE} {value}, {form.get('scale').removeprefix('shr')}")
    if form.has("sat"):
        value = _clamped(e, value, WIDE, 32, signed=signed)
    e.write(target.operand, e.op(f"trunc {WIDE} {value} to i32"), "i32")


def _elements(part: Part, width: int, default: str) -> list[int]:
    """Returns for each element, the lowest first, which of the elements of both sources it is."""
    letter, digits = part.selector[:1], part.selector[1:]
    if not letter:
        digits = default
    elif (
        letter != ("h" if width == 2 else "b")
        or len(digits) != width
        or max(digits) >= str(2 * width)
    ):
        raise PtxError(f".{part.selector} does not select {width} elements")
    return [int(digit) for digit in reversed(digits)]


def _written(part: Part, width: int) -> set[int]:
    letter, digits = part.selector[:1], part.selector[1:]
    if not letter:
        return set(range(width))
    if letter != ("h" if width == 2 else "b") or digits not in _MASKS[width]:
        raise PtxError(f".{part.selector} is not a mask of {width} elements")
    return {int(digit) for digit in digits}


@lowers("video_simd")
def video_simd(e: FunctionEmitter, i: Instr) -> None:
    target, first, second, third = _operands(i)
    form, width = i.form, int(i.form.row.op[-1])
    bits, op = 32 // width, i.form.row.op[:-1]
    low, high = (e.read(part.operand, "i32") for part in (first, second))
    both = e.op(f"shl i64 {e.op(f'zext i32 {high} to i64')}, 32")
    both = e.op(f"or i64 {both}, {e.op(f'zext i32 {low} to i64')}")
    order = [_elements(part, width, _DEFAULT[width][k]) for k, part in enumerate((first, second))]
    result = _third(e, third)
    for n in sorted(_written(target, width)):
        a, b = (
            _element(e, both, order[k][n], bits, signed=form.get("ab"[k]) == "s32") for k in (0, 1)
        )
        value = _combine(e, op, _SIMD, a, b, form.get("cmp"))
        if form.has("sat"):
            value = _clamped(e, value, _SIMD, bits, signed=form.get("d") == "s32")
        if form.has("add"):
            result = e.op(f"add i32 {result}, {value}")
        else:
            result = _merged(e, value, result, bits, n * bits)
    e.write(target.operand, result, "i32")


def _element(e: FunctionEmitter, both: str, n: int, bits: int, *, signed: bool) -> str:
    value = e.op(f"trunc i64 {e.op(f'lshr i64 {both}, {n * bits}')} to i{bits}")
    return e.op(f"{'sext' if signed else 'zext'} i{bits} {value} to {_SIMD}")
