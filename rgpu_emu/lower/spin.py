"""Finds loops that wait for another thread: their back-edges must let the other threads of the
block run.

A loop spins when leaving it depends on a value that only somebody else can change: a volatile,
relaxed or acquire load, an exchange, or a compare-and-swap whose expected value the loop itself
does not change.  A lock-free update (the expected value comes from the loop) always gets on, and
must not pay for a suspension.
"""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.operands import (
    Addr,
    Body,
    Call,
    Instr,
    Label,
    LabelRef,
    Not,
    Operand,
    Pair,
    Reg,
    Vec,
)

_WATCHED: Final = frozenset(("volatile", "relaxed", "acquire", "mmio"))
_DESTINATIONS: Final = frozenset("dDP")


def registers_in(operand: Operand) -> list[Reg]:
    """The registers of one operand."""
    if isinstance(operand, Reg):
        return [operand]
    if isinstance(operand, Not):
        return [operand.reg]
    if isinstance(operand, Addr):
        return registers_in(operand.base) if isinstance(operand.base, Reg) else []
    if isinstance(operand, Vec):
        return [reg for part in operand.parts for reg in registers_in(part)]
    if isinstance(operand, Pair):
        return registers_in(operand.first) + registers_in(operand.second)
    if isinstance(operand, Call):
        return [
            reg for part in (*operand.results, *operand.arguments) for reg in registers_in(part)
        ]
    return []


def defines(instr: Instr) -> list[Reg]:
    """Registers that an instruction writes."""
    letters = instr.form.letters
    return [
        reg
        for operand, letter in zip(instr.operands, letters, strict=False)
        if letter in _DESTINATIONS
        for reg in registers_in(operand)
    ]


def uses(instr: Instr) -> list[Reg]:
    """Registers that an instruction reads, its guard included."""
    found = [instr.guard] if instr.guard is not None else []
    for operand, letter in zip(instr.operands, instr.form.letters, strict=False):
        if letter not in _DESTINATIONS:
            found += registers_in(operand)
    return found


def _targets(instr: Instr, body: Body) -> list[Label]:
    last = instr.operands[-1] if instr.operands else None
    if not isinstance(last, LabelRef) or last.target is None:
        return []
    if instr.form.row.lower != "branch_indexed":
        return [last.target]
    return [ref.target for ref in body.targets.get(last.name, []) if ref.target is not None]


def _watches(instr: Instr, changed: set[Reg]) -> bool:
    form = instr.form
    if form.row.lower == "load":
        return form.get("sem") in _WATCHED
    if form.row.lower != "atomic" or form.row.op != "atom":
        return False
    if form.get("op") == "cas":
        expected = instr.operands[2]
        return not (isinstance(expected, Reg) and expected in changed)
    return form.get("op") == "exch"


def _spins(loop: list[Instr]) -> bool:
    changed = {reg for instr in loop for reg in defines(instr)}
    tainted = {reg for instr in loop if _watches(instr, changed) for reg in defines(instr)}
    if not tainted:
        return False
    before = -1
    while before != len(tainted):
        before = len(tainted)
        for instr in loop:
            if any(reg in tainted for reg in uses(instr)):
                tainted.update(defines(instr))
    return any(
        instr.guard in tainted and instr.form.row.lower in ("branch", "ret", "exit_thread")
        for instr in loop
    )


def spinning_branches(body: Body) -> set[int]:
    """Positions in body.code of back-edges that must yield."""
    found: set[int] = set()
    for position, item in enumerate(body.code):
        if not isinstance(item, Instr):
            continue
        for target in _targets(item, body):
            if target.position <= position:
                loop = [
                    i for i in body.code[target.position : position + 1] if isinstance(i, Instr)
                ]
                if _spins(loop):
                    found.add(position)
    return found
