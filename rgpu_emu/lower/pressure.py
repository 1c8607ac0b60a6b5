"""Estimates the registers that an entry would need on a GPU, which cuFuncGetAttribute returns.

The emulated device has no register file. The estimate is the largest number of 32-bit words that
are live at one place, and a few for addresses and the call itself. It is never above the number
that every legal block may have, because a launch must not be refused for an estimate. It is also
never above the program's own bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.places import Blocks
from rgpu_emu.lower.spin import defines, uses
from rgpu_emu.ptx.module import REGISTERS_PER_SM
from rgpu_emu.ptx.operands import Instr

if TYPE_CHECKING:
    from rgpu_emu.ptx.module import Function
    from rgpu_emu.ptx.operands import Body, Label, Reg

MOST: Final = REGISTERS_PER_SM // 1024
LEAST: Final = 16
OVERHEAD: Final = 8
# For larger bodies and modules the estimate is MOST. Most such kernels need that many, and the
# analysis would slow the load.
LARGE_BODY: Final = 2000
LARGE_MODULE: Final = 256 << 10
ROUNDS: Final = 20  # a body whose analysis needs more rounds gets too low an estimate


def estimate_registers(function: Function) -> int:
    """Returns the estimate for an entry."""
    small = len(function.module.text) <= LARGE_MODULE
    most = _of_body(function.body()) if small else MOST
    return min(most, function.max_registers or most)


def _of_body(body: Body) -> int:
    if len(body.code) > LARGE_BODY:
        return MOST
    return min(max(_Liveness(body).most() + OVERHEAD, LEAST), MOST)


class _Liveness:
    """Sets of live registers, as bits of an integer by register index."""

    def __init__(self, body: Body) -> None:
        self._blocks = Blocks(body)
        self._wide = self._seen = 0  # _wide: 64-bit registers; _seen: all but predicates
        self._steps = [self._step(item) for item in body.code]

    def _step(self, item: Instr | Label) -> tuple[int, int]:
        """Returns (registers that are always written, registers that are read)."""
        if not isinstance(item, Instr):
            return 0, 0
        written = self._bits(defines(item))  # a guard may skip the write
        return 0 if item.guard is not None else written, self._bits(uses(item))

    def _bits(self, registers: list[Reg]) -> int:
        found = 0
        for reg in registers:
            bit = 1 << reg.index
            found |= bit
            if reg.type.bits > 1:
                self._seen |= bit
            if reg.type.bits > 32:
                self._wide |= bit
        return found

    def most(self) -> int:
        """Returns the largest number of 32-bit words that are live at one place."""
        spans = self._blocks.spans
        effect = [self._through(span) for span in spans]
        at_start = [0] * len(spans)
        for _ in range(ROUNDS):
            changed = False
            for block in reversed(range(len(spans))):
                killed, read = effect[block]
                live = self._at_end(block, at_start) & ~killed | read
                changed = changed or live != at_start[block]
                at_start[block] = live
            if not changed:
                break
        most = 0
        for block, (start, end) in enumerate(spans):
            live = self._at_end(block, at_start)
            for killed, read in reversed(self._steps[start:end]):
                live = live & ~killed | read
                most = max(most, (live & self._seen).bit_count() + (live & self._wide).bit_count())
        return most

    def _at_end(self, block: int, at_start: list[int]) -> int:
        live = 0
        for following in self._blocks.after[block]:
            live |= at_start[following]
        return live

    def _through(self, span: tuple[int, int]) -> tuple[int, int]:
        killed = read = 0
        for written, wanted in reversed(self._steps[span[0] : span[1]]):
            killed, read = killed | written, read & ~written | wanted
        return killed, read
