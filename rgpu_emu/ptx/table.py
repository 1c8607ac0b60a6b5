"""The instruction table: one row per form. The look-up refuses every other instruction by name.

A row's pattern is a list of slots in order. `name=alt|alt` is required and `name?=alt|alt` is
optional. A bare `word` is a required modifier and `?word` an optional one. A row's operand list has
a letter for each operand:

    d  destination register or `_`      D  destination: register, vector or `_`
    s  source: register, literal, name  S  source: s or vector
    p  source predicate, maybe negated  P  `d` or `d|p`
    q  thread count or predicate        m  `[address]`
    l  label or target list             c  the operands of `call`
    v  source of a video instruction    V  its destination (all its operands are v or V)
    t  `[object, coordinates]`          T  destination vector, maybe with `|p`
    e  vector of offsets                f  depth compare value, which is refused

A `?` after the letter marks an operand that may be left out (only at the end).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.errors import PtxError, unknown, unsupported
from rgpu_emu.ptx.types import TYPES, Type

if TYPE_CHECKING:
    from collections.abc import Collection

ISA: Final = "9.0"  # the version of the manual whose instructions are known
MANUAL: Final = "https://docs.nvidia.com/cuda/parallel-thread-execution/#"


@dataclass(frozen=True)
class Slot:
    name: str
    options: frozenset[str]
    optional: bool


@dataclass(frozen=True)
class Row:
    """One form of an instruction.

    Attributes:
        op: opcode without modifiers.
        pattern: the modifiers, see the module's docstring.
        operands: operand letters.
        lower: name of the function in rgpu_emu.lower that emits the instruction.
        section: anchor of its section in the PTX manual.
    """

    op: str
    pattern: str
    operands: str
    lower: str
    section: str

    @property
    def url(self) -> str:
        return MANUAL + self.section

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(_slot(word) for word in self.pattern.split())

    @cached_property
    def counts(self) -> tuple[int, int]:
        """The least and the greatest number of operands."""
        letters = self.operands.split()
        return sum(not w.endswith("?") for w in letters), len(letters)


@dataclass(frozen=True)
class Refusal:
    """Instructions of the manual that have no row, and why.

    Attributes:
        op: opcode; `*` is any.
        words: the modifiers that such an instruction has (`!word`: lacks). `word*` is a beginning.
        why: the reason, as the rest of a sentence.
    """

    op: str
    words: str
    why: str

    def fits(self, op: str, parts: list[str]) -> bool:
        return self.op in (op, "*") and all(_has(word, parts) for word in self.words.split())


def _has(word: str, parts: list[str]) -> bool:
    if word.startswith("!"):
        return word[1:] not in parts
    if word.endswith("*"):
        return any(part.startswith(word[:-1]) for part in parts)
    return word in parts


@dataclass(frozen=True, eq=False)
class Form:
    """A row with the modifiers of one instruction."""

    name: str
    row: Row
    slots: dict[str, str]

    @cached_property
    def type(self) -> Type:
        return TYPES[self.slots["t"]]

    @cached_property
    def letters(self) -> str:
        return self.row.operands.replace("?", "").replace(" ", "")

    def get(self, slot: str) -> str:
        return self.slots.get(slot, "")

    def has(self, slot: str) -> bool:
        return slot in self.slots


def _slot(word: str) -> Slot:
    name, equals, options = word.partition("=")
    optional = name.endswith("?") if equals else name.startswith("?")
    name = name.strip("?")
    return Slot(name, frozenset(options.split("|")) if equals else frozenset((name,)), optional)


def _match(slots: tuple[Slot, ...], parts: list[str], at: int, found: dict[str, str]) -> bool:
    if not slots:
        return at == len(parts)
    slot, rest = slots[0], slots[1:]
    if at < len(parts) and parts[at] in slot.options:
        found[slot.name] = parts[at]
        if _match(rest, parts, at + 1, found):
            return True
        del found[slot.name]
    return slot.optional and _match(rest, parts, at, found)


def _match_any_order(slots: tuple[Slot, ...], parts: list[str]) -> bool:
    """Returns True if the modifiers fit in some order, each in a slot of its own."""
    if len(parts) > len(slots):
        return False
    if not parts:
        return all(slot.optional for slot in slots)
    part, rest = parts[0], parts[1:]
    return any(
        part in slot.options and _match_any_order(slots[:n] + slots[n + 1 :], rest)
        for n, slot in enumerate(slots)
    )


def _fits_in_another_order(slots: tuple[Slot, ...], parts: list[str]) -> bool:
    """Returns True if the modifiers fit in another order. The order of types has a meaning."""
    kinds = tuple(slot for slot in slots if slot.options & TYPES.keys())
    others = tuple(slot for slot in slots if slot not in kinds)
    types = [part for part in parts if part in TYPES]
    return _match(kinds, types, 0, {}) and _match_any_order(
        others, [part for part in parts if part not in TYPES]
    )


def _ranks(*words: str) -> dict[str, int]:
    return {word: rank for rank, line in enumerate(words) for word in line.split()}


_ATOMIC: Final = _ranks(
    "relaxed acquire release acq_rel",
    "cta cluster gpu sys",
    "global shared shared::cta",
    "and or xor exch cas add min max inc dec",
    "noftz",
    "L2::cache_hint",
)
# Instructions whose modifiers come in any order, with the manual's order in its syntax. Assemblers
# accept others, libraries write `atom.add.acq_rel.gpu.s32`, and the manual's own examples differ.
_RANKS: Final[dict[str, dict[str, int]]] = {
    "atom": _ATOMIC,
    "red": _ATOMIC,
    "wmma": _ranks(
        "mma load store",
        "xor and",
        "popc",
        "a b c d",
        "sync",
        "aligned",
        "row col",
        "m16n16k16 m8n32k16 m32n8k16 m16n16k8 m8n8k4 m8n8k32 m8n8k128",
        "global shared shared::cta",
    ),
    "mbarrier": _ranks(
        "init inval arrive arrive_drop test_wait try_wait complete_tx pending_count",
        "expect_tx noComplete parity",
        "release acquire relaxed",
        "cta cluster",
        "shared shared::cta shared::cluster",
    ),
}


def _in_order(op: str, parts: list[str]) -> list[str]:
    """Returns modifiers in the order of the table. The order of modifiers of one rank stays."""
    ranks = _RANKS.get(op)
    if ranks is None:
        return parts
    return sorted(parts, key=lambda part: ranks.get(part, len(ranks)))


class Table:
    """All rows, indexed by opcode. Caches the forms that were looked up."""

    def __init__(self, rows: tuple[Row, ...], refusals: tuple[Refusal, ...] = ()) -> None:
        self.rows = rows
        self.refusals = refusals
        self._by_op: dict[str, list[Row]] = {}
        for row in rows:
            self._by_op.setdefault(row.op, []).append(row)
        self._forms: dict[str, Form] = {}

    @property
    def known(self) -> Collection[str]:
        """The names that were looked up and found."""
        return self._forms.keys()

    def form(self, name: str) -> Form:
        """Returns the form of a full instruction name such as `add.rn.f32`.

        Raises:
            PtxError: 801 with the name and the reason if the device does not run it; 218 if it is
                not in the PTX manual.
        """
        form = self._forms.get(name)
        if form is None:
            form = self._forms[name] = self._find(name)
        return form

    def _find(self, name: str) -> Form:
        op, *parts = name.split(".")
        parts = _in_order(op, parts)
        rows = self._by_op.get(op, [])
        for row in rows:
            found: dict[str, str] = {}
            if _match(row.slots, parts, 0, found):
                return Form(name, row, found)
        raise self._refusal(name, op, parts)

    def _refusal(self, name: str, op: str, parts: list[str]) -> PtxError:
        """Returns the error for a name without a row."""
        if not op.isidentifier():
            return PtxError(f"'{name}' is not an instruction")
        for refusal in self.refusals:
            if refusal.fits(op, parts):
                return unsupported(f"instruction '{name}'", refusal.why)
        rows = self._by_op.get(op, [])
        if not rows:
            return unknown(f"'{name}' is not an instruction of PTX {ISA}: correct its name")
        if any(_fits_in_another_order(row.slots, parts) for row in rows):
            return unsupported(
                f"instruction '{name}'",
                "has its modifiers in another order than the PTX manual: write them in that order",
            )
        known = {option for row in rows for slot in row.slots for option in slot.options}
        strange = [p for p in parts if p not in known]
        why = (
            f"no form of {op} has .{strange[0]}" if strange else "its modifiers do not go together"
        )
        forms = f"the forms of {op} are in {rows[0].url}"
        return unknown(f"instruction '{name}' is not in PTX {ISA}: {why}; {forms}")
