"""Names in a function body: the registers, variables and labels of nested `{ }` scopes. Reads
operands from their text.
"""

from __future__ import annotations

import re
from typing import Final

from rgpu_emu.ptx.constants import constant
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.lex import NAME, literal, split_commas, split_outside_brackets
from rgpu_emu.ptx.operands import (
    Addr,
    Imm,
    Label,
    LabelRef,
    Not,
    Operand,
    Pair,
    Part,
    Reg,
    Sink,
    Special,
    Sym,
    Texel,
    Variable,
    Vec,
)
from rgpu_emu.ptx.types import PRED, Type

MAX_REGISTERS: Final = 1 << 20
MAX_DEPTH: Final = 200
_DIGITS: Final = "0123456789"
_MAX_DIGITS: Final = len(str(MAX_REGISTERS))
# What a constant expression begins with.
_CONSTANT: Final = frozenset("0123456789.+-~!(")
_WORD: Final = re.compile(r"[\w$%]+")
# The inside of an address's brackets: its base, and up to two signed numbers.
_BASE: Final = re.compile(r"[A-Za-z_$%][\w$.]*")
_OFFSETS: Final = re.compile(r"(?:\s*(?:\+\s*(?:-\s*)?|-\s*)\w+){0,2}\s*")
_OFFSET: Final = re.compile(r"([+-])\s*(?:(-)\s*)?(\w+)")
_SYM_INDEX: Final = re.compile(r"([A-Za-z_$%][\w$]*)\s*\[\s*(\w+)\s*\]")
# An element of a variable whose number is in a register: `a[%r1]`, `a[%r1 + 2]`.
_ELEMENT: Final = re.compile(r"([A-Za-z_$%][\w$]*)\s*\[\s*([%\w$]+)\s*(?:([+-])\s*(\w+)\s*)?\]")
_SYM_OFFSET: Final = re.compile(r"([A-Za-z_$%][\w$]*)\s*\+\s*(\w+)")
_SELECTED: Final = re.compile(r"(-?)\s*([^\s.]+)\s*(?:\.([bh]\d+))?")
_VECTORS: Final = frozenset(
    (
        "%tid",
        "%ntid",
        "%ctaid",
        "%nctaid",
        "%clusterid",
        "%nclusterid",
        "%cluster_ctaid",
        "%cluster_nctaid",
    )
)
_DOTTED: Final = frozenset(f"{n}.{c}" for n in _VECTORS for c in "xyzw")
_PLAIN: Final = frozenset(
    [
        "%laneid",
        "%warpid",
        "%nwarpid",
        "%smid",
        "%nsmid",
        "%gridid",
        "%clock",
        "%clock_hi",
        "%clock64",
        "%globaltimer",
        "%globaltimer_lo",
        "%globaltimer_hi",
        "%lanemask_eq",
        "%lanemask_le",
        "%lanemask_lt",
        "%lanemask_ge",
        "%lanemask_gt",
        "%total_smem_size",
        "%dynamic_smem_size",
        "%aggr_smem_size",
        "%reserved_smem_offset_begin",
        "%reserved_smem_offset_end",
        "%reserved_smem_offset_cap",
        "%reserved_smem_offset_0",
        "%reserved_smem_offset_1",
        "%is_explicit_cluster",
        "%cluster_ctarank",
        "%cluster_nctarank",
        "%current_graph_exec",
        "%envreg1",
        "%envreg2",
        *(f"%pm{n}{wide}" for n in range(8) for wide in ("", "_64")),
    ]
)


def wrapped(offset: int) -> int:
    """Returns the signed 64-bit number that is equal to an offset modulo 2^64."""
    return (offset + (1 << 63)) % (1 << 64) - (1 << 63)


class Scope:
    """One `{ }` level. A scope caches operands by their text, because most operands repeat."""

    def __init__(self, parent: Scope | None, counter: list[int]) -> None:
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        if self.depth > MAX_DEPTH:
            raise unsupported("a block", f"lies in more than {MAX_DEPTH} others")
        self.cache: dict[str, Operand] = {}
        self.registers: dict[str, Reg] = {}
        self.ranges: dict[str, tuple[Type, int]] = {}
        self.vectors: dict[str, Vec] = {}
        self.variables: dict[str, Variable] = {}
        self.labels: dict[str, Label] = {}
        self.open: list[LabelRef] = []
        self._counter = counter

    def declare_register(self, name: str, kind: Type) -> Reg:
        if name in self.registers:
            raise PtxError(f"the register {name} is declared twice")
        reg = self.registers[name] = Reg(name, kind, self._counter[0])
        self._counter[0] += 1
        if self._counter[0] > MAX_REGISTERS:
            raise PtxError("too many registers")
        self.cache.clear()
        return reg

    def declare_range(self, prefix: str, kind: Type, count: int) -> None:
        """Declares `.reg .b32 %r<count>`. The registers are made when they are first used."""
        self.ranges[prefix] = (kind, count)
        self.cache.clear()

    def declare_vector(self, name: str, kind: Type, count: int) -> None:
        """Declares `.reg .v4 .b32 %v`: the registers `%v.x` to `%v.w`, together `%v`."""
        parts = [self.declare_register(f"{name}.{c}", kind) for c in "xyzw"[:count]]
        for part, colour in zip(parts, "rgba", strict=False):
            self.registers[f"{name}.{colour}"] = part
        self.vectors[name] = Vec(tuple(parts))

    def vector(self, name: str) -> Vec | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.vectors:
                return scope.vectors[name]
            scope = scope.parent
        return None

    def declare_variable(self, variable: Variable) -> None:
        if variable.name in self.variables:
            raise PtxError(f"{variable.name} is declared twice")
        self.variables[variable.name] = variable
        self.cache.clear()

    def declare_label(self, name: str, index: int) -> Label:
        if name in self.labels:
            raise PtxError(f"the label {name} is defined twice")
        label = self.labels[name] = Label(name, index, -1)
        return label

    def close(self) -> None:
        """Resolves branches to labels of this scope, and passes the others to the parent scope."""
        for ref in self.open:
            ref.target = self.labels.get(ref.name)
            if ref.target is None:
                if self.parent is None:
                    raise PtxError(f"the label {ref.name} is not defined")
                self.parent.open.append(ref)

    def label(self, name: str) -> LabelRef:
        ref = LabelRef(name.strip(), None)
        self.open.append(ref)
        return ref

    def register(self, name: str) -> Reg | None:
        """Returns the register of that name in this or an outer scope."""
        scope: Scope | None = self
        while scope is not None:
            reg = scope.registers.get(name)
            if reg is not None:
                return reg
            kind = scope._ranged(name)
            if kind is not None:
                reg = scope.registers[name] = Reg(name, kind, self._counter[0])
                self._counter[0] += 1
                return reg
            if name in scope.variables:
                return None
            scope = scope.parent
        return None

    def variable(self, name: str) -> Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.parent
        return None

    def _ranged(self, name: str) -> Type | None:
        """Returns the type of a register that `declare_range` declared at this level."""
        if not self.ranges or not name[-1:].isdecimal():
            return None
        first = len(name.rstrip(_DIGITS))
        for at in range(max(first, len(name) - _MAX_DIGITS), len(name)):
            kind, count = self.ranges.get(name[:at], (PRED, 0))
            if int(name[at:]) < count and (name[at] != "0" or at == len(name) - 1):
                return kind
        return None

    def _declares(self, name: str) -> bool:
        """Returns True if a word of an operand is declared at this level."""
        return (
            name in self.registers
            or name in self.variables
            or name in self.vectors
            or self._ranged(name) is not None
        )

    def operand(self, text: str) -> Operand:
        """Returns the operand that `text` denotes, from the cache if it was read before."""
        found = self.cache.get(text)
        if found is None:
            if self.parent is not None and not any(map(self._declares, _WORD.findall(text))):
                found = self.parent.operand(text)
            else:
                found = self._operand(text.strip())
            self.cache[text] = found
        return found

    def part(self, text: str) -> Part:
        """Returns the operand of a video instruction that `text` denotes."""
        text = text.strip()
        match = None if literal(text) else _SELECTED.fullmatch(text)
        if match is None:
            return Part(self.operand(text), "", negated=False)
        minus, name, selector = match.groups()
        return Part(self.operand(name), selector or "", negated=minus == "-")

    def texel(self, text: str) -> Texel:
        """Returns the object and coordinates of a texture or surface instruction: `[a, {x, y}]`."""
        text = text.strip()
        parts = split_outside_brackets(text[1:-1]) if text[:1] == "[" and text[-1:] == "]" else []
        if len(parts) == 3:
            raise unsupported(
                "a separate sampler",
                "is not supported: no call of the driver API makes one, and texture objects hold "
                "their own",
            )
        if len(parts) != 2:
            raise PtxError(f"'{text[:60]}' is not [object, coordinates]")
        found, coordinates = (self.operand(part.strip()) for part in parts)
        if not isinstance(found, (Reg, Sym, Imm)):
            raise PtxError(f"'{text[:60]}' names no object")
        if not isinstance(coordinates, (Reg, Imm, Special, Vec)):
            raise PtxError(f"'{text[:60]}' has no coordinates")
        return Texel(found, coordinates)

    def _operand(self, text: str) -> Operand:
        first = text[:1]
        if first == "%" and (reg := self.register(text)) is not None:
            return reg
        if first == "[":
            return self._address(text.removesuffix(".unified").rstrip())
        if first == "{":
            if not text.endswith("}"):
                return self._vector_and_predicate(text)
            return Vec(tuple(self.operand(part.strip()) for part in split_commas(text[1:-1])))
        if first in _CONSTANT and (number := literal(text) or constant(text)) is not None:
            return number
        if first == "!":
            reg = self.register(text[1:].strip())
            if reg is None or reg.type is not PRED:
                raise PtxError(f"'{text}' does not negate a predicate register")
            return Not(reg)
        if "|" in text:
            one, two = text.split("|", 1)
            return Pair(self.operand(one.strip()), self.operand(two.strip()))
        return self._name(text)

    def _vector_and_predicate(self, text: str) -> Operand:
        vector, bar, predicate = text.rpartition("|")
        if not bar or not vector.rstrip().endswith("}"):
            raise PtxError(f"'{text[:60]}' has a '{{' that is not closed")
        return Pair(self.operand(vector.strip()), self.operand(predicate.strip()))

    def _name(self, text: str) -> Operand:
        if text == "_":
            return Sink()
        if text == "WARP_SZ":
            return Imm(32, 0)
        if text in _DOTTED or text in _PLAIN:
            return Special(text)
        if (parts := self.vector(text)) is not None:
            return parts
        if (reg := self.register(text)) is not None:
            return reg
        if NAME.fullmatch(text):
            reg = self.register(text)
            if reg is not None:
                return reg
            if text in _VECTORS:
                return Vec(tuple(Special(f"{text}.{c}") for c in "xyzw"))
            if text.startswith("%"):
                self._refuse_special(text)
            return Sym(text, 0, self.variable(text))
        match = _SYM_OFFSET.fullmatch(text)
        if match:
            offset = literal(match.group(2))
            if offset is not None and not offset.float_bits:
                return Sym(match.group(1), wrapped(offset.value), self.variable(match.group(1)))
        indexed = _SYM_INDEX.fullmatch(text)
        if indexed and (variable := self.variable(indexed.group(1))) is not None:
            index = literal(indexed.group(2))
            if index is not None and not index.float_bits:
                return Sym(indexed.group(1), wrapped(index.value * variable.type.bytes), variable)
        element = _ELEMENT.fullmatch(text)
        if element and (counter := self.register(element.group(2))) is not None:
            offset = literal(element.group(4)) if element.group(4) else Imm(0, 0)
            if offset is not None and not offset.float_bits:
                value = -offset.value if element.group(3) == "-" else offset.value
                name = element.group(1)
                return Addr(Sym(name, 0, self.variable(name)), wrapped(value), counter)
        if text.startswith("%"):
            self._refuse_special(text)
        raise PtxError(f"'{text[:60]}' is not an operand")

    def _refuse_special(self, text: str) -> None:
        base = text.partition(".")[0]
        if re.fullmatch(r"%(pm\d+(_64)?|envreg\d+)", base):
            raise unsupported(
                f"special register '{text}'", "is not supported by the emulated device"
            )
        raise PtxError(f"the register {text} is not declared")

    def _address(self, text: str) -> Operand:
        inner = text[1:-1].strip()
        name = _BASE.match(inner)
        rest = inner[name.end() :] if name else inner if inner[:1] in "+-" else f"+{inner}"
        if not text.endswith("]") or _OFFSETS.fullmatch(rest) is None:
            raise PtxError(f"'{text[:60]}' is not an address")
        offset = 0
        for sign, minus, number in _OFFSET.findall(rest):
            value = literal(number)
            if value is None or value.float_bits:
                raise PtxError(f"'{text[:60]}' is not an address")
            offset += -value.value if minus or sign == "-" else value.value
        if name is None:
            return Addr(None, wrapped(offset))
        base = self._name(name.group())
        if isinstance(base, (Reg, Sym)):
            return Addr(base, wrapped(offset))
        raise PtxError(f"'{text[:60]}' is not an address")
