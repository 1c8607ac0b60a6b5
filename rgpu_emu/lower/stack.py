"""Memory on the stack of a function: alloca, stacksave, stackrestore.

The entry's local frame begins with the stack pointer of the thread and the stack itself, which
grows down. So both have the same place in the local window for all functions. A kernel can
overwrite the pointer, so it is checked before each use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.uses import STACK_ALIGNMENT, alignment_of

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

STACK_BYTES: Final = 16 << 10  # for all functions of a thread together
_LEAST: Final = STACK_ALIGNMENT  # the pointer itself lies below
_MOST: Final = _LEAST + STACK_BYTES


def begin(e: FunctionEmitter) -> None:
    """Reserves the stack in the entry's frame, before anything else."""
    if e.unit.reach.stacks and e.reserve_local(_MOST, STACK_ALIGNMENT) != 0:
        raise AssertionError("the stack is not at the start of the local window")


def start(e: FunctionEmitter) -> None:
    """Empties the stack when a thread begins."""
    if e.unit.reach.stacks:
        e.line(f"store i64 {_MOST}, ptr {_cell(e)}, align 8")


def saved(e: FunctionEmitter) -> str:
    """Returns the stack pointer at the start of a function that may allocate; '' otherwise."""
    return _pointer(e) if e.unit.allocates(e.frame.function) else ""


def restore(e: FunctionEmitter, pointer: str) -> None:
    """Frees at the end of a function what it allocated."""
    if pointer:
        e.line(f"store i64 {pointer}, ptr {_cell(e)}, align 8")


def _cell(e: FunctionEmitter) -> str:
    return e.op(f"getelementptr i8, ptr {e.env('arena')}, i64 {e.env('local.offset')}")


def _pointer(e: FunctionEmitter) -> str:
    value = e.op(f"load i64, ptr {_cell(e)}, align 8")
    _check(e, value)
    return value


def _check(e: FunctionEmitter, value: str) -> None:
    used = e.op(f"sub i64 {value}, {_LEAST}")
    e.trap_if(e.op(f"icmp ugt i64 {used}, {STACK_BYTES}"), abi.TRAP_STACK_FULL)


@lowers("stack_alloc")
def stack_alloc(e: FunctionEmitter, i: Instr) -> None:
    """Emits alloca. A stack that is too small ends the launch."""
    kind = i.form.type
    align = alignment_of(i)
    size = e.cast_int(e.source(i, 1), kind.llvm, "i64")
    top = _pointer(e)
    room = e.op(f"sub i64 {top}, {_LEAST}")
    e.trap_if(e.op(f"icmp ugt i64 {size}, {room}"), abi.TRAP_STACK_FULL)
    below = e.op(f"sub i64 {top}, {size}")
    found = e.op(f"and i64 {below}, {-max(align, 8)}")
    e.line(f"store i64 {found}, ptr {_cell(e)}, align 8")
    e.result(i, e.cast_int(found, "i64", kind.llvm))


@lowers("stack_save")
def stack_save(e: FunctionEmitter, i: Instr) -> None:
    e.result(i, e.cast_int(_pointer(e), "i64", i.form.type.llvm))


@lowers("stack_restore")
def stack_restore(e: FunctionEmitter, i: Instr) -> None:
    value = e.cast_int(e.source(i, 0), i.form.type.llvm, "i64")
    _check(e, value)
    e.line(f"store i64 {value}, ptr {_cell(e)}, align 8")
