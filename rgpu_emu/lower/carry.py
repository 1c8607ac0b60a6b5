"""Extended precision: the carry flag is a register of its own (per PTX function, as the manual has
it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_emu.lower.arith import multiply
from rgpu_emu.lower.registry import lowers

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr


def _carry_in(e: FunctionEmitter, llvm: str) -> str:
    bit = e.op(f"load i1, ptr {e.frame.carry()}")
    return e.op(f"zext i1 {bit} to {llvm}")


def _set_carry(e: FunctionEmitter, bit: str) -> None:
    e.line(f"store i1 {bit}, ptr {e.frame.carry()}")


def _chain(e: FunctionEmitter, i: Instr, a: str, b: str, *, subtract: bool, use: bool) -> None:
    llvm = i.form.type.llvm
    wide = f"i{i.form.type.bits + 1}"
    op = "sub" if subtract else "add"
    x, y = (e.op(f"zext {llvm} {v} to {wide}") for v in (a, b))
    total = e.op(f"{op} {wide} {x}, {y}")
    if use:
        total = e.op(f"{op} {wide} {total}, {_carry_in(e, wide)}")
    if i.form.has("cc"):
        _set_carry(e, e.op(f"icmp slt {wide} {total}, 0"))
    e.result(i, e.op(f"trunc {wide} {total} to {llvm}"))


@lowers("carry_add")
def carry_add(e: FunctionEmitter, i: Instr) -> None:
    _chain(e, i, e.source(i, 1), e.source(i, 2), subtract=False, use=i.form.row.op == "addc")


@lowers("carry_sub")
def carry_sub(e: FunctionEmitter, i: Instr) -> None:
    _chain(e, i, e.source(i, 1), e.source(i, 2), subtract=True, use=i.form.row.op == "subc")


@lowers("carry_mad")
def carry_mad(e: FunctionEmitter, i: Instr) -> None:
    product, _ = multiply(e, i)
    _chain(e, i, product, e.source(i, 3), subtract=False, use=i.form.row.op == "madc")
