"""Checks of single instructions that look at their operands and at the function around them.

A module is checked when it is loaded, or a function of a very large module when it is lowered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.lex import line_of
from rgpu_emu.ptx.operands import Addr, Imm, Instr, Sym

if TYPE_CHECKING:
    from rgpu_emu.ptx.module import Function

STACK_ALIGNMENT: Final = 16  # that of the local window, so the greatest that alloca may ask for


def check_uses(function: Function) -> None:
    """Checks the instructions of a function.

    Raises:
        PtxError: 218 or 801, with the line of the instruction.
    """
    for item in function.body().code:
        if isinstance(item, Instr) and item.form.row.lower in ("stack_alloc", "store"):
            try:
                if item.form.row.lower == "stack_alloc":
                    alignment_of(item)
                else:
                    refuse_own_parameter(function, item)
            except PtxError as error:
                raise error.at(line_of(function.module.text, item.pos)) from None


def alignment_of(i: Instr) -> int:
    """Returns the alignment for which an alloca asks."""
    align = i.operands[2] if len(i.operands) > 2 else Imm(8, 0)
    if not isinstance(align, Imm) or align.float_bits or align.value.bit_count() != 1:
        raise PtxError("the alignment of alloca is not a literal power of two")
    if not 0 < align.value <= STACK_ALIGNMENT:
        raise unsupported(
            f"{i.form.name} with an alignment of {align.value}",
            f"is not supported by the emulated device, whose local memory has {STACK_ALIGNMENT}",
        )
    return align.value


def refuse_own_parameter(function: Function, i: Instr) -> None:
    """Refuses writes to an entry's parameters: all its threads share them, and its loads of them
    are invariant.
    """
    if function.kind != "entry" or i.form.get("space").partition("::")[0] != "param":
        return
    operand = i.operands[0]
    base = operand.base if isinstance(operand, Addr) else operand
    own = function.prototype.params
    if not isinstance(base, Sym) or any(base.variable is variable for variable in own):
        raise PtxError("st.param writes a parameter of the entry; parameters are read-only")
