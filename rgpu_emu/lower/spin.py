"""Finds loops that wait for another thread. Their back-edges must let the other threads of the
block run.

A loop spins if leaving it depends on a value that only another thread can change: a volatile,
relaxed or acquire load, a test of an mbarrier object, an exchange, or a compare-and-swap whose
expected value the loop itself does not change. A lock-free update, whose expected value comes from
the loop, always makes progress, so it must not pay for a suspension.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from rgpu_emu.lower.flow import targets_of
from rgpu_emu.ptx.operands import (
    Addr,
    Body,
    Call,
    Instr,
    Not,
    Operand,
    Pair,
    Part,
    Reg,
    Texel,
    Vec,
)

_WATCHED: Final = frozenset(("volatile", "relaxed", "acquire"))
_DESTINATIONS: Final = frozenset("dDPTV")
MAX_LOOKED_AT: Final = 1 << 18  # the most instructions in all loops of a body together


def registers_in(operand: Operand) -> list[Reg]:
    """Returns the registers of one operand."""
    if isinstance(operand, Reg):
        return [operand]
    if isinstance(operand, Not):
        return [operand.reg]
    if isinstance(operand, Part):
        return registers_in(operand.operand)
    if isinstance(operand, Addr):
        return [reg for reg in (operand.base, operand.index) if isinstance(reg, Reg)]
    if isinstance(operand, Texel):
        return registers_in(operand.object) + registers_in(operand.coordinates)
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
    """Returns the registers that an instruction writes."""
    letters = instr.form.letters
    return [
        reg
        for operand, letter in zip(instr.operands, letters, strict=False)
        if letter in _DESTINATIONS
        for reg in registers_in(operand)
    ]


def uses(instr: Instr) -> list[Reg]:
    """Returns the registers that an instruction reads, including its guard."""
    found = [instr.guard] if instr.guard is not None else []
    for operand, letter in zip(instr.operands, instr.form.letters, strict=False):
        if letter not in _DESTINATIONS:
            found += registers_in(operand)
    return found


def _watches(instr: Instr, changed: set[Reg]) -> bool:
    form = instr.form
    if form.row.lower == "load":
        return form.get("sem") in _WATCHED
    if form.row.lower == "mbarrier_wait":
        return True
    if form.row.lower != "atomic" or form.row.op != "atom":
        return False
    if form.get("op") == "cas":
        expected = instr.operands[2]
        return not (isinstance(expected, Reg) and expected in changed)
    return form.get("op") == "exch"


def _tainted(loop: list[Instr], changed: set[Reg]) -> set[Reg]:
    """Returns the registers whose value depends on memory that other threads may change. changed:
    the registers that the loop writes.
    """
    feeds: dict[Reg, list[Reg]] = {}
    queue: list[Reg] = []
    for instr in loop:
        written = defines(instr)
        if _watches(instr, changed):
            queue += written
        for reg in uses(instr):
            feeds.setdefault(reg, []).extend(written)
    found: set[Reg] = set()
    while queue:
        reg = queue.pop()
        if reg not in found:
            found.add(reg)
            queue += feeds.get(reg, [])
    return found


def _leaves(instr: Instr, tainted: set[Reg]) -> bool:
    return instr.guard in tainted and instr.form.row.lower in ("branch", "ret", "exit_thread")


def _instructions(body: Body, start: int, end: int) -> list[Instr]:
    return [item for item in body.code[start : end + 1] if isinstance(item, Instr)]


def _spins(loop: list[Instr]) -> bool:
    tainted = _tainted(loop, {reg for instr in loop for reg in defines(instr)})
    return any(_leaves(instr, tainted) for instr in loop)


def spinning_branches(body: Body) -> set[int]:
    """Returns the positions in body.code of back-edges that must yield."""
    loops = [
        (target.position, position)
        for position, item in enumerate(body.code)
        if isinstance(item, Instr)
        for target in targets_of(item, body)
        if target.position <= position
    ]
    if sum(end - start for start, end in loops) > MAX_LOOKED_AT:
        return _spinning_together(body, sorted(set(loops)))
    return {end for start, end in loops if _spins(_instructions(body, start, end))}


def _spinning_together(body: Body, loops: list[tuple[int, int]]) -> set[int]:
    """Does the same for bodies with so many nested loops that a look at each would take too long.

    It treats loops that overlap as one loop. So a loop may yield needlessly, but no loop that must
    yield is missed.
    """
    found: set[int] = set()
    at = 0
    while at < len(loops):
        start, end = loops[at]
        inside: list[tuple[int, int]] = []
        while at < len(loops) and loops[at][0] <= end:
            end = max(end, loops[at][1])
            inside.append(loops[at])
            at += 1
        tainted = _tainted(_instructions(body, start, end), set())
        leaving = [
            position
            for position, item in enumerate(body.code[start : end + 1], start)
            if isinstance(item, Instr) and _leaves(item, tainted)
        ]
        found |= {last for first, last in inside if _any_between(leaving, first, last)}
    return found


def _any_between(positions: list[int], first: int, last: int) -> bool:
    at = bisect_left(positions, first)
    return at < len(positions) and positions[at] <= last
