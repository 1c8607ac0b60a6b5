"""Register parameters: `.func (.reg .u32 r) f(.reg .u64 p)`.

A register parameter is a `.param` variable that PTX text cannot name.  The function loads it into
the register when it begins, and stores a result's register before it returns.  So callers and calls
need to know nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.operands import Addr, Instr, Reg, Sym, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# No name in PTX text has a full stop.
SUFFIX: Final = ".reg"


def registers(variables: Iterable[Variable]) -> Iterator[tuple[str, Variable]]:
    """Yields the register's name and the variable of each register parameter."""
    for variable in variables:
        name = variable.name.removesuffix(SUFFIX)
        if name not in (variable.name, "_"):
            yield name, variable


def load(reg: Reg, variable: Variable, pos: int) -> Instr:
    """Returns the instruction that reads a parameter."""
    form = TABLE.form(f"ld.param.b{variable.bytes * 8}")
    return Instr(form, None, False, (reg, _place(variable)), pos)


def store(reg: Reg, variable: Variable, guard: Reg | None, negated: bool, pos: int) -> Instr:
    """Returns the instruction that writes a result, under the guard of the return."""
    form = TABLE.form(f"st.param.b{variable.bytes * 8}")
    return Instr(form, guard, negated, (_place(variable), reg), pos)


def _place(variable: Variable) -> Addr:
    return Addr(Sym(variable.name, 0, variable), 0)
