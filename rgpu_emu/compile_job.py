"""Compiles: turns inputs into the body of LOADED, LOWERED or LINKED.

This runs in a sandboxed process that has one list of inputs all its life, and so links them once.
Every error, also an unforeseen one, becomes a refusal that names the kernel or module
(`refusal_of`). The process ends only if it has no memory left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rgpu_common.wire.compiler import (
    EntryInfo,
    GlobalInfo,
    GlobalSpace,
    Linked,
    Loaded,
    Lowered,
    ParamInfo,
    put_linked,
    put_loaded,
    put_lowered,
)
from rgpu_emu.lower import abi
from rgpu_emu.lower.analyse import MAX_LOCAL_BYTES, reach, shared_layout
from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.lower.pressure import estimate_registers
from rgpu_emu.lower.probe import check_operands
from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.errors import CUDA_ERROR_NO_BINARY_FOR_GPU, PtxError, UndefinedError, refusal_of
from rgpu_emu.ptx.link import Program, link
from rgpu_emu.ptx.refusals import refuse_whole, refused_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_emu.ptx.module import Function
    from rgpu_emu.ptx.operands import Variable

# The most refused kernels that a log names; JIT logs are short.
_NAMED_REFUSALS: Final = 24
# The most functions that are analysed for all entries of a module at LOAD. The rest is left to
# LOWER.
_MAX_WALKED: Final = 200_000


def decode_inputs(inputs: Sequence[bytes]) -> list[str]:
    """Returns the PTX texts; PtxError 209 for bytes that are not PTX."""
    texts = []
    for data in inputs:
        if data[:4] == b"\x7fELF" or b"\0" in data.rstrip(b"\0"):
            raise PtxError("an input is not PTX text", result=CUDA_ERROR_NO_BINARY_FOR_GPU)
        texts.append(data.decode("utf-8", "replace"))
    return texts


class Work:
    """Answers the requests about one list of inputs. The first request links them."""

    def __init__(self, inputs: Sequence[bytes]) -> None:
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
        return put_lowered(
            Lowered(
                abi=abi.KERNEL_ABI,
                kind=found.kind,
                flags=found.flags,
                local_bytes=found.local_bytes,
                static_shared_bytes=found.static_shared,
                object=found.image,
                function_ordinals=tuple(found.functions),
            )
        )

    def linked(self) -> bytes:
        """Returns the body of LINKED."""
        try:
            log = _warnings(list(self._linked().refusals.values()))
        except Exception as error:
            return failed_link(refusal_of(error, "this module"))
        return put_linked(Linked(log=log))

    def _linked(self) -> Program:
        if self._program is None:
            program = link(decode_inputs(self._inputs))
            check_operands(program)
            self._program = program
        return self._program


def failed_load(error: PtxError, key: bytes) -> bytes:
    return put_loaded(Loaded(error.result, str(error), key))


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
    const = min(sum(v.bytes for v in program.globals if v.space == "const"), 0xFFFFFFFF)
    return put_loaded(
        Loaded(
            log=_warnings(list(refusals.values())),
            key=key,
            entries=tuple(
                _entry(name, entries[name], found, const, refusals.get(name))
                for name, found in facts.items()
            ),
            globals=tuple(_global(program, variable) for variable in program.globals),
            functions=tuple(function.name for function in program.tokens),
        )
    )


def _warnings(refusals: list[PtxError]) -> str:
    """Returns the log of a module some of whose kernels are refused."""
    lines = [f"warning: {error}\n" for error in refusals[:_NAMED_REFUSALS]]
    if len(refusals) > _NAMED_REFUSALS:
        rest = len(refusals) - _NAMED_REFUSALS
        lines.append(f"warning: refused kernels beside these: {rest}\n")
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


def _entry(
    name: str, function: Function, facts: EntryFacts, const: int, refusal: PtxError | None
) -> EntryInfo:
    places, total = layout(function.prototype.params)
    return EntryInfo(
        name=name,
        params=tuple(ParamInfo(*place) for place in places),
        param_bytes=total,
        static_shared_bytes=facts.shared,
        local_bytes=facts.local,
        max_threads=function.max_threads,
        required_x=function.required[0],
        required_y=function.required[1],
        required_z=function.required[2],
        ptx_version=function.module.version,
        target=function.module.target,
        registers=facts.registers,
        const_bytes=const,
        refusal=refusal.result if refusal else 0,
        why=str(refusal or ""),
    )


def _global(program: Program, variable: Variable) -> GlobalInfo:
    return GlobalInfo(
        name=variable.name,
        space=GlobalSpace.CONST if variable.space == "const" else GlobalSpace.GLOBAL,
        size=variable.bytes,
        align=variable.align,
        scope=program.scope(variable),
        initial=variable.initial,
        relocations=tuple(program.relocations(variable)),
    )


def failed_lower(error: PtxError) -> bytes:
    return put_lowered(Lowered(error.result, str(error), abi.KERNEL_ABI))


def failed_link(error: PtxError) -> bytes:
    if isinstance(error, UndefinedError):
        return put_linked(Linked(error.result, str(error), error.symbol, error.module))
    return put_linked(Linked(error.result, str(error)))
