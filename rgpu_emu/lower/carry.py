"""Extended precision: add, subtract and multiply-add with the carry flag of the condition code.

Every PTX function has its own flag. The manual does not keep the flag across calls.

A subtraction is computed as NVIDIA's hardware does it, with the adder of the additions: `sub.cc`
gives a + ~b + 1, `subc` gives a + ~b + flag, and the flag is the adder's carry out. So after a
subtraction the flag means *no borrow*. The PTX manual calls the flag "borrow-out" there and does
not say what an `addc` after `sub.cc` reads. nvcc relies on the hardware's behaviour: its division
of `__int128` ends each trial subtraction with `addc.u32 q, 0, 0`, which must be 1 if nothing was
borrowed. In the other order, `add.cc 0, 0` and `subc 0, 0` give all ones on a GPU. Chains of one
kind only cannot tell the two meanings apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_emu.lower.arith import multiply
from rgpu_emu.lower.registry import lowers

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr


def _sum(e: FunctionEmitter, i: Instr, a: str, b: str, carry_in: str) -> None:
    """Writes a + b + `carry_in` (an i1), and for `.cc` the carry out to the flag."""
    llvm = i.form.type.llvm
    wide = f"i{i.form.type.bits + 1}"
    x, y = (e.op(f"zext {llvm} {v} to {wide}") for v in (a, b))
    total = e.op(f"add {wide} {x}, {y}")
    total = e.op(f"add {wide} {total}, {e.op(f'zext i1 {carry_in} to {wide}')}")
    if i.form.has("cc"):
        e.line(f"store i1 {e.op(f'icmp slt {wide} {total}, 0')}, ptr {e.frame.carry()}")
    e.result(i, e.op(f"trunc {wide} {total} to {llvm}"))


def _flag(e: FunctionEmitter) -> str:
    return e.op(f"load i1, ptr {e.frame.carry()}")


@lowers("carry_add")
def carry_add(e: FunctionEmitter, i: Instr) -> None:
    carry_in = _flag(e) if i.form.row.op == "addc" else "false"
    _sum(e, i, e.source(i, 1), e.source(i, 2), carry_in)


@lowers("carry_sub")
def carry_sub(e: FunctionEmitter, i: Instr) -> None:
    inverse = e.op(f"xor {i.form.type.llvm} {e.source(i, 2)}, -1")
    carry_in = _flag(e) if i.form.row.op == "subc" else "true"
    _sum(e, i, e.source(i, 1), inverse, carry_in)


@lowers("carry_mad")
def carry_mad(e: FunctionEmitter, i: Instr) -> None:
    product, _ = multiply(e, i)
    carry_in = _flag(e) if i.form.row.op == "madc" else "false"
    _sum(e, i, product, e.source(i, 3), carry_in)
