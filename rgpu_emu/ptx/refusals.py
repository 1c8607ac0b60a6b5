"""Which entries of a program are refused for what the emulated device lacks, and why.

NVIDIA's compiler refuses a whole module for one unknown instruction.  Here the entries that cannot
reach the instruction run, and the others are refused by name when a program asks for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from rgpu_emu.ptx.errors import PtxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_emu.ptx.module import Function, Module

_NAME: Final = re.compile(r"[A-Za-z_$%][\w$]*")
_POINTER_CALL: Final = re.compile(r"\.callprototype\b|\.calltargets\b")


class Linked(Protocol):
    """What is read of a program."""

    modules: list[Module]
    tokens: list[Function]

    @property
    def entries(self) -> dict[str, Function]: ...

    def function(self, name: str, module: Module) -> Function | None: ...


def find_refusals(program: Linked) -> dict[str, PtxError]:
    """The refused entries by name: those that hold, call or may call by pointer what is refused."""
    functions = [f for m in program.modules for f in m.functions.values() if f.defined]
    # A function that leads to an instruction which is refused -> the function that holds it.
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
        if function in tokens:  # one is like all others to those that call by pointer
            found, tokens = found + by_pointer, set()
        for caller in found:
            if caller not in origin:
                origin[caller] = origin[function]
                queue.append(caller)
    return {name: _why(name, f, origin[f]) for name, f in program.entries.items() if f in origin}


def refuse_whole(program: Linked, refusals: Mapping[str, PtxError]) -> None:
    """Raises the first refusal if nothing of the program can run."""
    if refusals and len(refusals) == len(program.entries):
        raise next(iter(refusals.values()))
    if not program.entries:  # a library of device functions
        for module in program.modules:
            for function in module.functions.values():
                if function.refused is not None:
                    raise function.refused


def refused_entry(name: str, error: PtxError) -> PtxError:
    """The refusal of an entry for what was found in its own code."""
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
    """What a call by name in `function` may lead to at once, and whether it calls by pointer."""
    if function.module.large:
        # Not parsed yet: every name in the text may be called.
        text = function.text()
        names = set(_NAME.findall(text))
        indirect = _POINTER_CALL.search(text) is not None
    else:
        names, indirect = function.calls() | function.symbols(), function.indirect()
    found = [program.function(name, function.module) for name in sorted(names)]
    return [f for f in found if f is not None], indirect
