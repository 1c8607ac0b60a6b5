"""Lowers one entry of a program to an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_emu.lower import (  # noqa: F401 - the modules register their lowerings
    abi,
    arith,
    atomics,
    bits,
    calls,
    carry,
    compare,
    control,
    convert,
    floats,
    half,
    matrix,
    mbarrier,
    memory,
    narrow,
    spaces,
    stack,
    sync,
    texture,
    video,
)
from rgpu_emu.lower.codegen import compile_ir, llvm_major
from rgpu_emu.lower.shape import emit_entry
from rgpu_emu.lower.unit import Unit

if TYPE_CHECKING:
    from rgpu_emu.ptx.link import Program


@dataclass(frozen=True)
class Lowered:
    """The content of a LOWERED reply."""

    kind: int
    flags: int
    local_bytes: int
    static_shared: int
    image: bytes
    functions: tuple[int, ...]


def emit_ir(program: Program, name: str) -> tuple[Unit, str]:
    """Returns the unit, which knows the entry's sizes, and the entry's IR text."""
    unit = Unit(program, program.entry(name))
    emit_entry(unit, llvm_major=llvm_major())
    return unit, unit.text()


def lower_entry(program: Program, name: str) -> Lowered:
    """Compiles an entry.

    Raises:
        PtxError: 500 if there is no such entry, 801 if it needs something that is not supported.
    """
    unit, text = emit_ir(program, name)
    return Lowered(
        kind=abi.KIND_COROUTINE if unit.coroutine else abi.KIND_LOOP,
        flags=abi.FLAG_BAR_ONLY if unit.coroutine and unit.reach.bar_only else 0,
        local_bytes=unit.local_bytes(),
        static_shared=unit.static_shared,
        image=compile_ir(text, unit.reach.instructions + unit.inlined),
        functions=tuple(unit.by_pointer),
    )
