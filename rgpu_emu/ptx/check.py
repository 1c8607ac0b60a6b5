"""What is checked of a module when it is loaded, before any kernel is compiled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.errors import CUDA_ERROR_UNSUPPORTED_PTX_VERSION, PtxError
from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.lex import line_of
from rgpu_emu.ptx.table import ISA
from rgpu_emu.ptx.uses import check_uses

if TYPE_CHECKING:
    from rgpu_emu.ptx.module import Function, Module

CHECKED_AT_ONCE: Final = 1 << 20  # characters
KNOWN_VERSION: Final = int(ISA.replace(".", ""))
_STATEMENT: Final = re.compile(r"[^;{}]+")
_OPCODE: Final = re.compile(  # at the start of a statement, after .loc lines, labels and a guard
    r"(?:\s*(?:\.(?:loc|file)\b[^\n]*|[%$A-Za-z_][\w$]*\s*:(?!:)))*"
    r"\s*(?:@\s*(?:!\s*)?[%$\w]+\s+)?([a-z]\w*(?:\.[\w:]+)*)(?![\w.:])"
)


def check_instructions(module: Module) -> None:
    """Sets `Function.refused` for instructions that the table lacks.

    It parses whole bodies, or looks only at the names of instructions in a very large module.

    Raises:
        PtxError: 218 with the line for wrong syntax, and for an instruction that is not in the PTX
            manual; 222 for such an instruction in PTX that is newer than the manual.
    """
    for function in dict.fromkeys(module.functions.values()):
        if not function.defined:
            continue
        try:
            if module.large:
                _check_names(function)
            else:
                check_uses(function)
        except PtxError as error:
            if not error.unsupported:
                raise _by_version(error, module) from None
            function.refused = error


def _by_version(error: PtxError, module: Module) -> PtxError:
    """Returns the error, or that of PTX of a later version that may have the instruction."""
    if not error.later or module.version <= KNOWN_VERSION:
        return error
    said = f"{module.version // 10}.{module.version % 10}"
    return PtxError(
        f"{error.message}. The module is PTX {said}: compile it for PTX {ISA} or earlier",
        result=CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        line=error.line,
    )


def _check_names(function: Function) -> None:
    """Checks the names of the instructions, a limited part of the text at a time."""
    text = function.module.text
    start, end = function.span
    while start < end:
        stop = text.find(";", min(start + CHECKED_AT_ONCE, end), end)
        stop = stop + 1 if stop >= 0 else end
        _check_part(function, start, text[start:stop].split(";"))
        start = stop


def _check_part(function: Function, start: int, parts: list[str]) -> None:
    """Checks statements. Most begin with a name, or with a guard and a name, that was looked up
    before.
    """
    known, done = TABLE.known, 0
    for n in [n for n, part in enumerate(parts) if (part.split(None, 1) or ("",))[0] not in known]:
        start += sum(map(len, parts[done:n])) + n - done
        done = n
        words = parts[n].split(None, 2)
        if words and (words[0] in (".loc", ".file") or words[0][-1] == ":"):
            words = parts[n].rpartition("\n")[2].split(None, 2)
        guarded = len(words) > 1 and words[0][0] == "@" and words[1] in known
        if words and words[0] not in known and not guarded:
            _check_statements(function, start, start + len(parts[n]))


def _check_statements(function: Function, start: int, end: int) -> None:
    text = function.module.text
    seen: set[str] = set()
    for statement in _STATEMENT.finditer(text, start, end):
        match = _OPCODE.match(text, statement.start(), statement.end())
        name = match.group(1) if match is not None else ""
        if match is not None and name not in seen:
            seen.add(name)
            try:
                TABLE.form(name)
            except PtxError as error:
                raise error.at(line_of(text, match.start(1))) from None
