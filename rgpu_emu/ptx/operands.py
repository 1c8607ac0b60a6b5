"""Typed operands and instructions: the output of the body parser, the input of the
lowering passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import builtins

    from rgpu_emu.ptx.table import Form
    from rgpu_emu.ptx.types import Type


@dataclass(eq=False)
class Reg:
    """A virtual register. Each object is one register; `index` is unique in its function."""

    __slots__ = ("index", "name", "type")
    name: str
    type: Type
    index: int


@dataclass(frozen=True)
class Imm:
    """A literal. Integers are 64-bit two's complement values. For a literal 0f or 0d, `float_bits`
    is 32 or 64 and `value` is the bit pattern.
    """

    __slots__ = ("float_bits", "value")
    value: int
    float_bits: int


@dataclass(frozen=True)
class Special:
    """A special register with its component, for example `%tid.x`."""

    __slots__ = ("name",)
    name: str


@dataclass(eq=False)
class Variable:
    """A declared variable. `space`: global, const, shared, local or param. `bytes` is 0 for an
    extern variable without a size.
    """

    __slots__ = (
        "align",
        "bytes",
        "extern",
        "initial",
        "name",
        "relocations",
        "space",
        "type",
        "visible",
        "weak",
    )
    name: str
    space: str
    type: Type
    align: int
    bytes: int
    visible: bool
    extern: bool
    weak: bool
    initial: builtins.bytes
    relocations: list[tuple[int, str, int]]  # offset, symbol, addend


@dataclass(frozen=True)
class Sym:
    """A name that is not a register, plus an offset: variable, function or parameter."""

    __slots__ = ("name", "offset", "variable")
    name: str
    offset: int
    variable: Variable | None


@dataclass(frozen=True, slots=True)
class Addr:
    """`[base + offset]`. A base of None means an absolute address.

    index: of `variable[index + offset]`, which counts elements of the variable.
    """

    base: Reg | Sym | None
    offset: int
    index: Reg | None = None


@dataclass(frozen=True)
class Vec:
    __slots__ = ("parts",)
    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`d|p`: two destinations."""

    __slots__ = ("first", "second")
    first: Operand
    second: Operand


@dataclass(frozen=True)
class Not:
    """`!p`: a negated predicate source."""

    __slots__ = ("reg",)
    reg: Reg


@dataclass(frozen=True)
class Part:
    """An operand of a video instruction: `-%r1.h0`. `selector` names the bytes or half-words, or is
    empty.
    """

    __slots__ = ("negated", "operand", "selector")
    operand: Operand
    selector: str
    negated: bool


@dataclass(frozen=True)
class Texel:
    """`[a, c]`: a texture or surface object, and the coordinates in it."""

    __slots__ = ("coordinates", "object")
    object: Operand
    coordinates: Operand


@dataclass(eq=False)
class Label:
    """A branch target. `position` is the index in Body.code once defined."""

    __slots__ = ("index", "name", "position")
    name: str
    index: int
    position: int


@dataclass(eq=False)
class LabelRef:
    """A use of a label, resolved when its scope closes."""

    __slots__ = ("name", "target")
    name: str
    target: Label | None


@dataclass(frozen=True)
class Sink:
    """`_`: the result is dropped."""

    __slots__ = ()


@dataclass(frozen=True)
class Call:
    """Operands of `call`: results, callee, arguments, and the prototype or target list of an
    indirect call.
    """

    __slots__ = ("arguments", "callee", "prototype", "results")
    results: tuple[Operand, ...]
    callee: Reg | str
    arguments: tuple[Operand, ...]
    prototype: LabelRef | None


Operand = Union[  # noqa: UP007 - 3.10 runtime alias
    Reg, Imm, Special, Sym, Addr, Vec, Pair, Not, Part, Texel, LabelRef, Sink, Call
]


@dataclass(eq=False)
class Instr:
    """One instruction. `guard`: its predicate register; `negated`: the guard is negated. `pos`: its
    offset in the module's text.
    """

    __slots__ = ("form", "guard", "negated", "operands", "pos")
    form: Form
    guard: Reg | None
    negated: bool
    operands: tuple[Operand, ...]
    pos: int


@dataclass(eq=False)
class Prototype:
    """The parameter lists of a function, an entry or a call prototype."""

    params: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    noreturn: bool = False

    def signature(self) -> str:
        """Returns a text that is equal for a call and a function that fit together."""

        def one(v: Variable) -> str:
            return f"{v.bytes}"

        return ",".join(map(one, self.params)) + "->" + ",".join(map(one, self.results))


@dataclass(eq=False)
class Body:
    """A parsed function body: its instructions and labels in order, and its declarations."""

    code: list[Instr | Label] = field(default_factory=list)
    registers: int = 0
    shared: list[Variable] = field(default_factory=list)
    local: list[Variable] = field(default_factory=list)
    globals: list[Variable] = field(default_factory=list)
    scratch: list[Variable] = field(default_factory=list)
    targets: dict[Label, list[LabelRef]] = field(default_factory=dict)
    call_targets: dict[Label, list[str]] = field(default_factory=dict)
    prototypes: dict[Label, Prototype] = field(default_factory=dict)
