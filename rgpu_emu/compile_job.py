"""The work itself: inputs to a LOADED, LOWERED or LINKED body.  Runs in a child process for each
request."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rgpu_emu.compile_protocol import Writer
from rgpu_emu.lower import abi
from rgpu_emu.lower.analyse import MAX_LOCAL_BYTES, reach, shared_layout
from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.errors import CUDA_ERROR_NO_BINARY_FOR_GPU, PtxError
from rgpu_emu.ptx.link import Program, link
from rgpu_emu.ptx.module import EAGER_BYTES, Function

if TYPE_CHECKING:
    from rgpu_emu.ptx.operands import Variable


def decode_inputs(inputs: list[bytes]) -> list[str]:
    """PTX texts; PtxError 209 for bytes that are none."""
    texts = []
    for data in inputs:
        if data[:4] == b"\x7fELF" or b"\0" in data.rstrip(b"\0"):
            raise PtxError("an input is no PTX text", result=CUDA_ERROR_NO_BINARY_FOR_GPU)
        texts.append(data.decode("utf-8", "replace"))
    return texts


def loaded(inputs: list[bytes], key: bytes) -> bytes:
    """The body of LOADED; also for a refusal."""
    try:
        program = link(decode_inputs(inputs))
        return _loaded(program, key)
    except PtxError as error:
        return failed_load(error, key)


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
    out = Writer().scalars("i", 0).text("").data(key)
    entries = program.entries
    out.scalars("III", len(entries), len(program.globals), len(program.tokens))
    const = sum(v.bytes for v in program.globals if v.space == "const")
    for name, function in entries.items():
        _entry(out, program, name, function, const)
    for variable in program.globals:
        _global(out, program, variable)
    for function in program.tokens:
        out.text(function.name)
    return out.body()


def _entry(out: Writer, program: Program, name: str, function: Function, const: int) -> None:
    places, total = layout(function.prototype.params)
    shared = local = 0
    registers = 32
    if len(function.module.text) <= EAGER_BYTES:  # else only LOWERED knows
        found = reach(program, function)
        _, shared = shared_layout(program, found)
        local = sum(v.bytes for f in found.functions for v in f.body().local)
        if local > MAX_LOCAL_BYTES:
            raise PtxError(
                f"the entry {name} uses {local} bytes of local memory, more than {MAX_LOCAL_BYTES}"
            )
        registers = min(255, max(16, function.body().registers // 4))
    out.text(name).data(b"".join(struct.pack("<II", *place) for place in places))
    out.scalars(
        "IIIIIIII",
        total,
        shared,
        local,
        function.max_threads,
        function.module.version,
        function.module.target,
        registers,
        min(const, 0xFFFFFFFF),
    )


def _global(out: Writer, program: Program, variable: Variable) -> None:
    out.text(variable.name).scalars("I", 2 if variable.space == "const" else 1)
    out.scalars("QII", variable.bytes, variable.align, int(variable.visible)).data(variable.initial)
    out.data(b"".join(struct.pack("<QIIq", *r) for r in program.relocations(variable)))


def lowered(inputs: list[bytes], name: str) -> bytes:
    """The body of LOWERED; also for a refusal."""
    try:
        found = lower_entry(link(decode_inputs(inputs), checked=True), name)
    except PtxError as error:
        return failed_lower(error)
    out = Writer().scalars("i", 0).text("")
    out.scalars(
        "IIIII", abi.KERNEL_ABI, found.kind, found.flags, found.local_bytes, found.static_shared
    )
    out.data(found.image).scalars("I", len(found.functions))
    return out.scalars("I" * len(found.functions), *found.functions).body()


def failed_lower(error: PtxError) -> bytes:
    out = Writer().scalars("i", error.result).text(str(error))
    return out.scalars("IIIII", abi.KERNEL_ABI, 0, 0, 0, 0).data(b"").scalars("I", 0).body()


def linked(inputs: list[bytes]) -> bytes:
    """The body of LINKED."""
    try:
        link(decode_inputs(inputs))
    except PtxError as error:
        return failed_link(error)
    return Writer().scalars("i", 0).text("").body()


def failed_link(error: PtxError) -> bytes:
    return Writer().scalars("i", error.result).text(str(error)).body()
