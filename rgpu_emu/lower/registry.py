"""The lowering functions, by the name that the instruction table has for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

Lowering = Callable[["FunctionEmitter", "Instr"], None]
LOWERINGS: Final[dict[str, Lowering]] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers a function for rows whose `lower` is one of `names`."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register
