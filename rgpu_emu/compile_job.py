"""Compiles: turns inputs into the body of LOADED, LOWERED or LINKED.

This runs in a sandboxed process that has one list of inputs all its life, and so links them once.
Every error, also an unforeseen one, becomes a refusal that names the kernel or module
(`refusal_of`). The process ends only if it has no memory left.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rgpu_emu.compile_protocol import Writer
from rgpu_emu.lower import abi
from rgpu_emu.lower.analyse import MAX_LOCAL_BYTES, reach, shared_layout
from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.lower.pressure import estimate_registers
from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.errors import CUDA_ERROR_NO_BINARY_FOR_GPU, PtxError, refusal_of
from rgpu_emu.ptx.link import Program, link
from rgpu_emu.ptx.refusals import refuse_whole, refused_entry

if TYPE_CHECKING:
    from rgpu_emu.ptx.module import Function
    from rgpu_emu.ptx.operands import Variable

# The most refused kernels that a log names; JIT logs are short.
_NAMED_REFUSALS: Final = 24
# The most functions that are analysed for all entries of a module at LOAD. The rest is left to
# LOWER.
_MAX_WALKED: Final = 200_000


def decode_inputs(inputs: list[bytes]) -> list[str]:
    """Returns the PTX texts; PtxError 209 for bytes that are not PTX."""
    texts = []
    for data in inputs:
        if data[:4] == b"\x7fELF" or b"\0" in data.rstrip(b"\0"):
            raise PtxError("an input is not PTX text", result=CUDA_ERROR_NO_BINARY_FOR_GPU)
        texts.append(data.decode("utf-8", "replace"))
    return texts


class Work:
    """Answers the requests about one list of inputs. The first request links them."""

    def __init__(self, inputs: list[bytes]) -> None:
        self._inputs = inputs
        self._program: Program | None = None

    def loaded(self, key: bytes) -> bytes:
        """Returns the body of LOADED; also for a refusal."""
        try:
            return _loaded(self._linked(), key)
        except Exception as error:
            return failed_load(refusal_of(error, "this module"), key)

    def lowered(self, name: str) -> bytes:
        """Returns the body of LOWERED; also for a refusal."""
        try:
            program = self._linked()
            if name in program.refusals:
                raise program.refusals[name]
            found = lower_entry(program, name)
        except Exception as error:
            return failed_lower(refused_entry(name, refusal_of(error, "the code")))
        out = Writer().scalars("i", 0).text("")
        out.scalars(
            "IIIII", abi.KERNEL_ABI, found.kind, found.flags, found.local_bytes, found.static_shared
        )
        out.data(found.image).scalars("I", len(found.functions))
        return out.scalars("I" * len(found.functions), *found.functions).body()

    def linked(self) -> bytes:
        """Returns the body of LINKED."""
        try:
            log = _warnings(list(self._linked().refusals.values()))
        except Exception as error:
            return failed_link(refusal_of(error, "this module"))
        return Writer().scalars("i", 0).text(log).body()

    def _linked(self) -> Program:
        if self._program is None:
            self._program = link(decode_inputs(self._inputs))
        return self._program


def failed_load(error: PtxError, key: bytes) -> bytes:
    return (
        Writer()
        .scalars("i", error.result)
        .text(str(error))
        .data(key)
        .scalars("III", 0, 0, 0)
        .body()
    )


def _loaded(program: Program, key: bytes) -> bytes:
    entries = program.entries
    facts: dict[str, EntryFacts] = {}
    refusals = dict(program.refusals)
    walked = 0
    for name, function in entries.items():
        facts[name] = EntryFacts()
        if name not in refusals and walked < _MAX_WALKED:
            try:
                facts[name], functions = _facts(program, name, function)
                walked += functions
            except Exception as error:
                refusal = refusal_of(error, "the code")
                if not refusal.unsupported:
                    raise refusal from None
                refusals[name] = refused_entry(name, refusal)
    refuse_whole(program, refusals)
    out = Writer().scalars("i", 0).text(_warnings(list(refusals.values()))).data(key)
    out.scalars("III", len(facts), len(program.globals), len(program.tokens))
    const = min(sum(v.bytes for v in program.globals if v.space == "const"), 0xFFFFFFFF)
    for name, found in facts.items():
        _entry(out, name, entries[name], found, const)
        error_of = refusals.get(name)
        out.scalars("i", error_of.result if error_of else 0).text(str(error_of or ""))
    for variable in program.globals:
        _global(out, program, variable)
    for function in program.tokens:
        out.text(function.name)
    return out.body()


def _warnings(refusals: list[PtxError]) -> str:
    """Returns the log of a module some of whose kernels are refused."""
    lines = [f"warning: {error}\n" for error in refusals[:_NAMED_REFUSALS]]
    if len(refusals) > _NAMED_REFUSALS:
        lines.append(f"warning: {len(refusals) - _NAMED_REFUSALS} more kernels are refused\n")
    return "".join(lines)


@dataclass(frozen=True)
class EntryFacts:
    """The facts of an entry before it is lowered. Sizes in bytes."""

    shared: int = 0
    local: int = 0
    registers: int = 32


def _facts(program: Program, name: str, function: Function) -> tuple[EntryFacts, int]:
    """Returns the entry's facts and the number of functions that were analysed; PtxError for an
    entry that cannot be lowered.
    """
    if function.module.large:  # LOWER finds the other facts
        return EntryFacts(registers=estimate_registers(function)), 0
    found = reach(program, function)
    _, shared = shared_layout(program, found)
    local = sum(v.bytes for f in found.functions for v in f.body().local)
    if local > MAX_LOCAL_BYTES:
        raise PtxError(
            f"the entry {name} uses {local} bytes of local memory, more than {MAX_LOCAL_BYTES}"
        )
    return EntryFacts(shared, local, estimate_registers(function)), len(found.functions)


def _entry(out: Writer, name: str, function: Function, facts: EntryFacts, const: int) -> None:
    places, total = layout(function.prototype.params)
    out.text(name).data(b"".join(struct.pack("<II", *place) for place in places))
    out.scalars(
        "IIIIIIII",
        total,
        facts.shared,
        facts.local,
        function.max_threads,
        function.module.version,
        function.module.target,
        facts.registers,
        const,
    )


def _global(out: Writer, program: Program, variable: Variable) -> None:
    out.text(variable.name).scalars("I", 2 if variable.space == "const" else 1)
    out.scalars("QII", variable.bytes, variable.align, int(variable.visible)).data(variable.initial)
    out.data(b"".join(struct.pack("<QIIq", *r) for r in program.relocations(variable)))


def failed_lower(error: PtxError) -> bytes:
    out = Writer().scalars("i", error.result).text(str(error))
    return out.scalars("IIIII", abi.KERNEL_ABI, 0, 0, 0, 0).data(b"").scalars("I", 0).body()


def failed_link(error: PtxError) -> bytes:
    return Writer().scalars("i", error.result).text(str(error)).body()
