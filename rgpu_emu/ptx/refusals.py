"""Finds the entries of a program that need something that the emulated device lacks.

NVIDIA's compiler refuses a whole module for one unknown instruction. Here the entries that cannot
reach the instruction run. The other entries are refused by name when a program asks for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from rgpu_emu.ptx.declare import opaque_refusal
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.lex import line_of
from rgpu_emu.ptx.runtime import launches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_emu.ptx.module import Function, Module

_NAME: Final = re.compile(r"[A-Za-z_$%][\w$]*")
_POINTER_CALL: Final = re.compile(r"\.callprototype\b|\.calltargets\b")


class Linked(Protocol):
    """The part of a program that this module reads."""

    modules: list[Module]
    tokens: list[Function]

    @property
    def entries(self) -> dict[str, Function]: ...

    def function(self, name: str, module: Module) -> Function | None: ...


def find_refusals(program: Linked) -> dict[str, PtxError]:
    """Returns the refused entries by name, each with its error.

    An entry is refused if it contains a refused instruction, or calls or may call by pointer a
    function that does.
    """
    functions = [f for m in program.modules for f in m.functions.values() if f.defined]
    # Function that reaches a refused instruction -> the function that contains the instruction.
    origin = {f: f for f in functions if f.refused is not None}
    if not origin:
        return {}
    callers: dict[Function, list[Function]] = {}
    by_pointer: list[Function] = []
    for function in functions:
        if function.refused is None:
            called, indirect = _reached(program, function)
            by_pointer += [function] * indirect
            for callee in called:
                callers.setdefault(callee, []).append(function)
    tokens, queue = set(program.tokens), list(origin)
    while queue:
        function = queue.pop()
        found = callers.get(function, [])
        if function in tokens:  # a call by pointer may reach any function whose address is taken
            found, tokens = found + by_pointer, set()
        for caller in found:
            if caller not in origin:
                origin[caller] = origin[function]
                queue.append(caller)
    return {name: _why(name, f, origin[f]) for name, f in program.entries.items() if f in origin}


def refuse_names(program: Linked, module: Module) -> None:
    """Refuses the functions that launch from the device: they call the device runtime, or take the
    address of an entry. Refuses the functions that use texture references.
    """
    for function in module.functions.values():
        if function.defined and function.refused is None and not module.large:
            function.refused = _launch(program, function) or _reference(function)


def _reference(function: Function) -> PtxError | None:
    """Returns the refusal of a function that uses a texture, sampler or surface variable."""
    for name in sorted(function.symbols() & function.module.opaque.keys()):
        error = opaque_refusal(name, function.module.opaque[name])
        return error.at(_line_of(function, name))
    return None


def _launch(program: Linked, function: Function) -> PtxError | None:
    """Returns the refusal of a function that launches from the device."""
    for name in sorted(function.calls()):
        error = launches(name)
        if error is not None and program.function(name, function.module) is None:
            return error.at(_line_of(function, name))
    for name in sorted(function.symbols()):
        found = program.function(name, function.module)
        if found is not None and found.kind == "entry":
            error = unsupported(
                f"the address of entry '{name}'",
                "cannot be taken: nothing launches from the emulated device",
            )
            return error.at(_line_of(function, name))
    return None


def _line_of(function: Function, name: str) -> int:
    """Returns the line of the first use of a name in a function."""
    found = re.search(rf"(?<![\w$%]){re.escape(name)}(?![\w$])", function.text())
    return line_of(function.module.text, function.span[0] + (found.start() if found else 0))


def refuse_whole(program: Linked, refusals: Mapping[str, PtxError]) -> None:
    """Raises the first refusal if no part of the program can run."""
    if refusals and len(refusals) == len(program.entries):
        raise next(iter(refusals.values()))
    if not program.entries:  # a library of device functions
        for module in program.modules:
            for function in module.functions.values():
                if function.refused is not None:
                    raise function.refused


def refused_entry(name: str, error: PtxError) -> PtxError:
    """Returns the refusal of an entry for an error in its own code."""
    if f"kernel '{name}'" in error.message:
        return error
    return PtxError(
        f"{error.message}, so the kernel '{name}' is refused", result=error.result, line=error.line
    )


def _why(name: str, entry: Function, origin: Function) -> PtxError:
    error = origin.refused
    assert error is not None
    if origin is entry:
        return refused_entry(name, error)
    return PtxError(
        f"{error.message}, so the kernel '{name}', which reaches it through the function "
        f"'{origin.name}', is refused",
        result=error.result,
        line=error.line,
    )


def _reached(program: Linked, function: Function) -> tuple[list[Function], bool]:
    """Returns the functions that `function` may call by name, and whether it calls by pointer."""
    if function.module.large:
        # Not parsed yet: every name in the text may be called.
        text = function.text()
        names = set(_NAME.findall(text))
        indirect = _POINTER_CALL.search(text) is not None
    else:
        names, indirect = function.calls() | function.symbols(), function.indirect()
    found = [program.function(name, function.module) for name in sorted(names)]
    return [f for f in found if f is not None], indirect
