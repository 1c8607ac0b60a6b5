"""Finds operands that do not fit their instruction when a module is loaded.

Kernels are lowered when a program asks for them, and the lowerings know what fits. So each form
with each combination of operand types is lowered once here, by itself, and the result is dropped.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import entry  # noqa: F401 - it registers the lowerings
from rgpu_emu.lower.analyse import SYNC
from rgpu_emu.lower.emit import FunctionEmitter
from rgpu_emu.lower.registry import LOWERINGS
from rgpu_emu.lower.unit import Unit
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.lex import line_of
from rgpu_emu.ptx.link import Program, link
from rgpu_emu.ptx.operands import (
    Addr,
    Imm,
    Instr,
    Not,
    Operand,
    Pair,
    Part,
    Reg,
    Special,
    Sym,
    Vec,
)

if TYPE_CHECKING:
    from rgpu_emu.ptx.module import Function

MAX_KNOWN: Final = 1 << 16  # combinations that are remembered
# Lowerings that need more of their function than the operands.
_NOT_ALONE: Final = ("branch", "call", "ret", "exit_thread", "trap", "stack_", "activemask")
_ANY_LITERAL: Final = (
    "int_binary", "int_mul", "int_mad", "int_shift", "fp_", "half_", "cmp_", "cvt_", "mov", "load",
    "store", "atomic",
)  # fmt: skip
_TYPED: Final = ("int_", "carry_", "fp_", "cmp_setp")
_NUMBERS: Final = {"s": "an integer", "u": "an integer", "f": "a floating-point number"}
_TEXT: Final = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry probe() { ret; }\n"

_known: set[tuple[object, ...]] = set()


def check_operands(program: Program) -> None:
    """Checks the operands of all instructions that are parsed.

    Raises:
        PtxError: 218 with the line and the instruction.
    """
    for module in program.modules:
        for function in dict.fromkeys(module.functions.values()):
            if function.defined and function.refused is None and not module.large:
                _check(function)


def _check(function: Function) -> None:
    for item in function.body().code:
        if not isinstance(item, Instr) or not _stands_alone(item):
            continue
        key = (item.form.name, *map(_kind, item.operands), *_literals(item))
        if key in _known:
            continue
        try:
            _check_kinds(item)
            _lower(item)
        except PtxError as error:
            if not error.unsupported:
                name = f"instruction '{item.form.name}'"
                raise error.within(name).at(line_of(function.module.text, item.pos)) from None
        except Exception:
            continue  # a defect of the lowering: it refuses its kernel when that is lowered
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known.add(key)


def _stands_alone(item: Instr) -> bool:
    lower = item.form.row.lower
    if lower == "store" and item.form.get("space").startswith("param"):
        return False  # whose parameter it is decides
    return not lower.startswith(_NOT_ALONE)


def _kind(operand: Operand) -> object:
    """Returns what a lowering sees of an operand that decides whether it fits."""
    if isinstance(operand, Reg):
        return operand.type.name
    if isinstance(operand, Imm):
        return operand.float_bits
    if isinstance(operand, Special):
        return operand
    if isinstance(operand, Part):
        return ("part", _kind(operand.operand), operand.selector, operand.negated)
    if isinstance(operand, Not):
        return ("!", _kind(operand.reg))
    if isinstance(operand, Vec):
        return ("{}", *map(_kind, operand.parts))
    if isinstance(operand, Pair):
        return ("|", _kind(operand.first), _kind(operand.second))
    if isinstance(operand, Addr):
        return ("[]", _kind(operand.base) if isinstance(operand.base, Reg) else "")
    return type(operand)


def _literals(item: Instr) -> tuple[int, ...]:
    """Returns the literals that decide whether the operands fit: sizes and selectors."""
    if item.form.row.lower.startswith(_ANY_LITERAL):
        return ()
    return tuple(operand.value for operand in item.operands if isinstance(operand, Imm))


def _check_kinds(item: Instr) -> None:
    """Refuses integers in floating-point instructions, and floating-point numbers in those of
    integers. An instruction or register of the type .bN fits both.
    """
    form = item.form
    for operand in item.operands:
        if isinstance(operand, Addr) and isinstance(operand.base, Reg):
            kind = operand.base.type
            if kind.kind not in "sub" or kind.bits not in (32, 64):
                raise PtxError(
                    f"the register {operand.base.name} (.{kind.name}) cannot hold an address: "
                    "declare it as .b64"
                )
    if not form.row.lower.startswith(_TYPED) or "t" not in form.slots:
        return
    wanted = _NUMBERS.get(form.type.kind)
    for operand in item.operands:
        found = _NUMBERS.get(operand.type.kind) if isinstance(operand, Reg) else None
        if wanted is not None and found is not None and found != wanted:
            assert isinstance(operand, Reg)
            raise PtxError(
                f"the register {operand.name} (.{operand.type.name}) holds {found}, and "
                f".{form.type.name} is {wanted}: convert it with cvt, or move its bits with "
                f"mov.b{operand.type.bits}"
            )


def _lower(item: Instr) -> None:
    """Lowers the instruction into a function that is dropped."""
    unit = Unit(_program(), _program().entry("probe"))
    emitter = FunctionEmitter(unit, coroutine=item.form.row.lower in SYNC)
    emitter.frame = emitter.new_frame(unit.reach.entry)
    operands = tuple(map(_simple, item.operands))
    LOWERINGS[item.form.row.lower](emitter, Instr(item.form, None, False, operands, item.pos))


def _simple(operand: Operand) -> Operand:
    """Returns an operand without the names of the module."""
    if isinstance(operand, Sym):
        return Imm(0, 0)
    if isinstance(operand, Addr) and not isinstance(operand.base, Reg):
        return Addr(None, 0)
    if isinstance(operand, Vec):
        return Vec(tuple(map(_simple, operand.parts)))
    if isinstance(operand, Part):
        return Part(_simple(operand.operand), operand.selector, operand.negated)
    return operand


@cache
def _program() -> Program:
    return link([_TEXT])
