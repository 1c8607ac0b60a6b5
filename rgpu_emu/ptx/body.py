"""Parses a function body into instructions with resolved registers, variables and labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx import register_params
from rgpu_emu.ptx.declare import parse_prototype, parse_variables
from rgpu_emu.ptx.errors import PtxError, refusal_of, unsupported
from rgpu_emu.ptx.instructions import TABLE
from rgpu_emu.ptx.lex import NAME, line_of, split_commas, split_outside_brackets, whole
from rgpu_emu.ptx.operands import (
    Addr,
    Body,
    Call,
    Imm,
    Instr,
    Label,
    LabelRef,
    Not,
    Operand,
    Pair,
    Part,
    Prototype,
    Reg,
    Sink,
    Special,
    Sym,
    Texel,
    Variable,
    Vec,
)
from rgpu_emu.ptx.scope import MAX_REGISTERS, Scope
from rgpu_emu.ptx.types import PRED, TYPES

if TYPE_CHECKING:
    from rgpu_emu.ptx.table import Form
    from rgpu_emu.ptx.types import Type

MAX_WAYS: Final = 1 << 16
_STATEMENT: Final = re.compile(
    r"\s*(?:"
    r"([{}])"  # 1 scope
    r"|\.(?:loc|file)\b[^\n]*"
    r"|([%$A-Za-z_][\w$]*)\s*:(?!:)"  # 2 label
    r"|(?:@\s*(?:(!)\s*)?([%$\w]+)\s+)?"  # 3 not, 4 guard
    r"([a-z]\w*(?:\.[\w:]+)*)(?![\w.:])\s*(?!\s)([^;]*);"  # 5 name, 6 operands
    r"|(\.[a-z_]\w*)(?!\w)([^;]*);"  # 7 directive, 8 the rest
    r")"
)
_VECTOR_TYPE: Final = re.compile(r"\.v([24])\s*\.(\w+)\s+(.*)", re.DOTALL)
_REG: Final = re.compile(r"([A-Za-z_$%][\w$]*)\s*(?:<\s*(\d+)\s*>)?")
_CALL: Final = re.compile(
    r"\s*(?:\(([^)]*)\)\s*,\s*)?([A-Za-z_$%][\w$]*)\s*(?:,\s*\(([^)]*)\)\s*)?(?:,\s*([A-Za-z_$%][\w$]*)\s*)?"
)
_PROTOTYPE: Final = re.compile(
    r"\s*(?:\(([^)]*)\)\s*)?[\w$%]+\s*(?:\(([^)]*)\))?\s*(\.noreturn)?\s*(.*)", re.DOTALL
)
_ALLOWED: Final[dict[str, tuple[type, ...]]] = {
    "d": (Reg, Sink),
    "D": (Reg, Vec, Sink),
    "P": (Reg, Pair, Sink),
    "s": (Reg, Imm, Sym, Special),
    "S": (Reg, Imm, Sym, Special, Vec),
    "p": (Reg, Not, Imm),
    "q": (Reg, Not, Imm, Special),
    "m": (Addr,),
    "v": (Part,),
    "V": (Part,),
    "t": (Texel,),
    "T": (Vec, Pair),
    "e": (Vec,),
}
_WORDS: Final = {
    "d": "destination register",
    "D": "destination",
    "P": "destination",
    "s": "source",
    "S": "source",
    "p": "predicate",
    "q": "predicate or a source",
    "m": "[address]",
    "v": "source",
    "V": "destination",
    "t": "[object, coordinates]",
    "T": "destination vector",
    "e": "offset",
}


def _plain(operand: Operand, letter: str) -> Operand:
    """Returns the register for a vector of one element. Compilers write `ld.b32 {%r1}, [%rd1]`."""
    if letter in "DS" and isinstance(operand, Vec) and len(operand.parts) == 1:
        return operand.parts[0]
    return operand


class BodyParser:
    """Parses text[start:end], the inside of a function's braces."""

    def __init__(self, text: str, span: tuple[int, int], prototype: Prototype) -> None:
        self.text = text
        self.pos, self.end = span
        self.body = Body()
        self.calls: set[str] = set()
        self.symbols: set[str] = set()
        self.indirect = False
        self._counter = [0]
        self._scope = Scope(None, self._counter)
        self._labels = 0
        self._last_label: Label | None = None
        for variable in (*prototype.params, *prototype.results):
            if variable.name != "_":
                self._scope.declare_variable(variable)
        for name, variable in register_params.registers(prototype.params):
            reg = self._scope.declare_register(name, variable.type)
            self.body.code.append(register_params.load(reg, variable, self.pos))
        self._results = [
            (self._scope.declare_register(name, variable.type), variable)
            for name, variable in register_params.registers(prototype.results)
        ]

    def parse(self) -> Body:
        """Returns the body.

        Raises:
            PtxError: a statement is wrong or not supported; the error has its line.
        """
        refused: PtxError | None = None
        try:
            while True:
                match = _STATEMENT.match(self.text, self.pos, self.end)
                if match is None:
                    break
                try:
                    self._statement(match)
                except PtxError as error:
                    # Read on all the same: wrong syntax later on refuses the whole module.
                    if not error.unsupported or match.lastindex != 6:
                        raise
                    refused = refused or error.at(line_of(self.text, self._here()))
                self.pos = match.end()
            if self.text[self.pos : self.end].strip():
                raise PtxError(
                    f"cannot read '{self.text[self.pos : self.pos + 60].strip().splitlines()[0]}'"
                )
            if self._scope.parent is not None:
                raise PtxError("a '{' is not closed")
            self._store_results(None, False, self.pos)
            self._scope.close()
        except Exception as error:  # a defect of the parser refuses only this function
            refusal = refusal_of(error, "this statement")
            raise refusal.at(line_of(self.text, self._here())) from None
        if refused is not None:
            raise refused
        self._bound_branches()
        self.body.registers = self._counter[0]
        return self.body

    def _bound_branches(self) -> None:
        """Refuses a function whose `brx.idx` instructions have too many targets in all."""
        ways = 0
        for item in self.body.code:
            if isinstance(item, Instr) and item.form.row.lower == "branch_indexed":
                named = item.operands[-1]
                if isinstance(named, LabelRef) and named.target is not None:
                    ways += len(self.body.targets.get(named.target, ()))
        if ways > MAX_WAYS:
            raise unsupported("brx.idx", f"has more than {MAX_WAYS} targets in one function")

    def _here(self) -> int:
        """Returns where the statement at `pos` begins, after blanks."""
        rest = self.text[self.pos : self.end]
        return self.pos + len(rest) - len(rest.lstrip())

    def _statement(self, match: re.Match[str]) -> None:
        kind = match.lastindex
        if kind == 6:
            negated, guard, name, operands = match.group(3, 4, 5, 6)
            self._instruction(TABLE.form(name), guard, negated == "!", operands, match.start(5))
        elif kind == 2:
            self._define_label(match.group(2))
        elif kind == 8:
            self._directive(match.group(7), match.group(8))
        elif kind == 1:
            self._brace(match.group(1))

    def _brace(self, brace: str) -> None:
        if brace == "{":
            self._scope = Scope(self._scope, self._counter)
            return
        self._scope.close()
        if self._scope.parent is None:
            raise PtxError("there is a '}' too many")
        self._scope = self._scope.parent

    def _define_label(self, name: str) -> None:
        label = self._scope.declare_label(name, self._labels)
        self._labels += 1
        self._last_label = label
        label.position = len(self.body.code)
        self.body.code.append(label)

    def _instruction(
        self, form: Form, guard: str | None, negated: bool, text: str, pos: int
    ) -> None:
        scope = self._scope
        letters = form.letters
        operands: tuple[Operand, ...]
        if letters == "c":
            operands = (self._call(text),)
        elif not text:
            operands = ()
        else:
            cache = scope.cache
            parts = split_commas(text)
            if letters[:1] == "V":
                operands = tuple([scope.part(p) for p in parts])
            elif "t" in letters:
                operands = self._texture_operands(form, text)
            elif letters.endswith("l"):
                operands = (*(scope.operand(p) for p in parts[:-1]), scope.label(parts[-1]))
            else:
                operands = tuple([cache.get(p) or scope.operand(p) for p in parts])
        least, most = form.row.counts
        if not least <= len(operands) <= most:
            raise PtxError(f"{form.name} takes {len(letters)} operands, not {len(operands)}")
        if "{" in text and not form.has("vec"):
            operands = tuple(map(_plain, operands, letters))
        for operand, letter in zip(operands, letters, strict=False):
            if letter in _ALLOWED and not isinstance(operand, _ALLOWED[letter]):
                raise PtxError(f"{form.name}: '{text.strip()[:60]}' has no {_WORDS[letter]} there")
            if not isinstance(operand, Reg):
                self._note(operand)
        predicate = None
        if guard is not None:
            predicate = scope.register(guard)
            if predicate is None or predicate.type is not PRED:
                raise PtxError(f"{guard} is not a predicate register")
        if form.row.lower == "ret":
            self._store_results(predicate, negated, pos)
        self.body.code.append(Instr(form, predicate, negated, operands, pos))

    def _store_results(self, guard: Reg | None, negated: bool, pos: int) -> None:
        for reg, variable in self._results:
            self.body.code.append(register_params.store(reg, variable, guard, negated, pos))

    def _texture_operands(self, form: Form, text: str) -> tuple[Operand, ...]:
        """Returns the operands of a texture or surface instruction, whose brackets hold commas.

        Raises:
            PtxError: 801 for a depth compare operand. It is a scalar where an offset is a vector.
        """
        scope, letters = self._scope, form.letters
        operands: list[Operand] = []
        for n, part in enumerate(split_outside_brackets(text)):
            letter = letters[n : n + 1]
            found = scope.texel(part) if letter == "t" else scope.operand(part.strip())
            if letter == "f" or (letter == "e" and not isinstance(found, Vec)):
                raise unsupported(
                    f"{form.name} with a depth compare operand",
                    "is not supported: the emulated device has no depth textures",
                )
            operands.append(found)
        return tuple(operands)

    def _note(self, operand: Operand) -> None:
        """Notes the module-level names that an operand uses. Operands live as long as their scope's
        cache.
        """
        if isinstance(operand, Sym):
            if operand.variable is None:
                self.symbols.add(operand.name)
        elif isinstance(operand, Addr):
            if isinstance(operand.base, Sym) and operand.base.variable is None:
                self.symbols.add(operand.base.name)
        elif isinstance(operand, Part):
            if isinstance(operand.operand, (Vec, Pair, Not, Part, Addr, Texel, LabelRef)):
                raise PtxError("a video instruction takes registers and literals")
            self._note(operand.operand)
        elif isinstance(operand, Vec):
            for part in operand.parts:
                if not isinstance(part, (Reg, Imm, Sink, Sym, Special)):
                    raise PtxError("a vector holds registers and literals")
                self._note(part)
        elif isinstance(operand, Texel):
            self._note(operand.object)
            self._note(operand.coordinates)
        elif isinstance(operand, Pair):
            if isinstance(operand.first, Vec):
                self._note(operand.first)
            elif not isinstance(operand.first, (Reg, Sink)):
                raise PtxError("'|' must be between two registers")
            if not isinstance(operand.second, (Reg, Sink)):
                raise PtxError("'|' must be between two registers")

    def _call(self, text: str) -> Call:
        match = _CALL.fullmatch(text)
        if match is None:
            raise PtxError(f"'call {text.strip()[:60]}' cannot be read")
        results, callee, arguments, prototype = match.groups()
        register = self._scope.register(callee)
        if register is None:
            self.calls.add(callee)
        self.indirect = self.indirect or register is not None
        if register is not None and not prototype:
            raise PtxError(f"the indirect call by {callee} names no prototype or target list")
        return Call(
            self._call_operands(results),
            register if register is not None else callee,
            self._call_operands(arguments),
            self._scope.label(prototype) if register is not None else None,
        )

    def _call_operands(self, text: str | None) -> tuple[Operand, ...]:
        if not text or not text.strip():
            return ()
        found = tuple(self._scope.operand(part.strip()) for part in text.split(","))
        for operand in found:
            if isinstance(operand, (Addr, Vec, Pair, Not, Texel, LabelRef, Call)):
                raise PtxError(f"'({text.strip()[:60]})' cannot be passed to a function")
        return found

    def _directive(self, word: str, rest: str) -> None:
        if word == ".reg":
            self._registers(rest)
        elif word in (".local", ".shared", ".param", ".global", ".const"):
            self._variables(word[1:], rest)
        elif word == ".branchtargets":
            self.body.targets[self._labelled()] = [
                self._scope.label(name) for name in rest.split(",")
            ]
        elif word == ".calltargets":
            names = [name.strip() for name in rest.split(",")]
            self.body.call_targets[self._labelled()] = names
            self.symbols.update(names)
        elif word == ".callprototype":
            self._prototype(rest)
        elif word != ".pragma":
            raise unsupported(
                f"directive '{word}'", "in a function body is not known to the emulated device"
            )

    def _prototype(self, rest: str) -> None:
        match = _PROTOTYPE.fullmatch(rest)
        if match is None:
            raise PtxError("the .callprototype cannot be read")
        prototype: Prototype = parse_prototype(match.group(1) or "", match.group(2) or "")
        prototype.noreturn = match.group(3) is not None
        self.body.prototypes[self._labelled()] = prototype

    def _labelled(self) -> Label:
        """Returns the label before a directive that declares a list or a prototype."""
        if self._last_label is None:
            raise PtxError("a list of targets or a prototype needs a label")
        return self._last_label

    def _registers(self, rest: str) -> None:
        match = re.match(r"\s*\.(\w+)\s*(.*)", rest, re.DOTALL)
        if match is None:
            raise PtxError(f"'.reg{rest[:60]}' cannot be read")
        word, names = match.groups()
        vector = _VECTOR_TYPE.fullmatch(f".{word} {names}")
        if vector is not None and vector.group(2) in TYPES:
            self._vectors(int(vector.group(1)), TYPES[vector.group(2)], vector.group(3))
            return
        if word not in TYPES:
            raise unsupported(f"register type '.{word}'", "is not supported by the emulated device")
        for name in names.split(","):
            found = _REG.fullmatch(name.strip())
            if found is None:
                raise PtxError(f"'{name.strip()[:60]}' is not a register name")
            prefix, count = found.groups()
            if count is None:
                self._scope.declare_register(prefix, TYPES[word])
            elif whole(count, f"{prefix}<{count[:20]}>") > MAX_REGISTERS:
                raise PtxError("too many registers")
            else:
                self._scope.declare_range(prefix, TYPES[word], int(count))

    def _vectors(self, count: int, kind: Type, names: str) -> None:
        for name in map(str.strip, names.split(",")):
            if NAME.fullmatch(name) is None:
                raise PtxError(f"'{name[:60]}' is not a register name")
            self._scope.declare_vector(name, kind, count)

    def _variables(self, space: str, rest: str) -> None:
        lists: dict[str, list[Variable]] = {
            "local": self.body.local,
            "shared": self.body.shared,
            "param": self.body.scratch,
            "global": self.body.globals,
            "const": self.body.globals,
        }
        for variable in parse_variables(rest, space):
            if variable.bytes == 0:
                raise PtxError(f"{variable.name} has no size")
            self._scope.declare_variable(variable)
            lists[space].append(variable)
