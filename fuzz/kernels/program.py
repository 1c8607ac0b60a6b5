"""Programs as trees, and their PTX.

A program is one kernel `k(in, out)`.  Its registers start from the thread's part of `in` and from
its number; at the end each thread writes all its registers to its part of `out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Union

from kernels.operations import BITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernels.operations import Operation

COUNT: Final = {"h": 4, "r": 8, "q": 6, "f": 4, "d": 4, "p": 4}
SHARED_WORDS: Final = 128  # 32-bit words in shared memory
LOCAL_WORDS: Final = 16
OWN_WORDS: Final = 16  # a thread's own words of global memory
IN_WORDS: Final = 256  # of 64 bits, that all threads read
SAVED: Final = [f"{c}{k}" for c in "rqhfdp" for k in range(COUNT[c])]
OUT_BYTES: Final = 8 * len(SAVED) + 4 * OWN_WORDS  # of each thread
Source = Union[str, int]  # noqa: UP007 - a register, or the bits of a literal


@dataclass(frozen=True)
class Do:
    """One instruction; `guard`: a predicate register, `negated`: under its opposite."""

    operation: Operation
    target: str
    sources: tuple[Source, ...]
    guard: str = ""
    negated: bool = False


@dataclass(frozen=True)
class If:
    test: str
    then: tuple[Node, ...]
    other: tuple[Node, ...]


@dataclass(frozen=True)
class Loop:
    """`rounds` times the body; a register: its lowest two bits."""

    rounds: Source
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Memory:
    """A 32-bit load or store at word (`index` modulo the space's size) of a space."""

    space: str  # in, own, shared, generic (shared by a generic address), local
    register: str
    index: str
    store: bool


@dataclass(frozen=True)
class Exchange:
    """Every thread stores a word in shared memory, all meet, and each loads another's."""

    value: str
    index: str
    target: str


@dataclass(frozen=True)
class Warp:
    """activemask, then an operation over those threads: shfl.*, vote.*, match.any, redux.*."""

    name: str
    target: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Atomic:
    """An atomic operation on the thread's own word `index` of global memory."""

    name: str
    target: str
    index: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A call of a function of its own; it gets two registers and returns its %r0.

    All its registers begin with 0, but r0 and q0, which are `values`.
    """

    body: tuple[Node, ...]
    values: tuple[str, str]
    target: str
    by_pointer: bool


@dataclass(frozen=True)
class Wild:
    """An access where nothing is: the kernel ends with an illegal address.

    space: that of the instruction; "behind": global, `address` bytes behind all of `out`.
    """

    space: str
    address: int
    store: bool


Node = Union[Do, If, Loop, Memory, Exchange, Warp, Atomic, Call, Wild]  # noqa: UP007


@dataclass(frozen=True)
class Program:
    """`together`: threads wait for each other (Exchange, Warp), so each is a coroutine; else the
    device runs a block as one loop, which it vectorises."""

    body: tuple[Node, ...]
    grid: int
    block: int
    together: bool = True

    def out_bytes(self) -> int:
        """Whole granules of memory, so that the first byte behind them is nobody's."""
        used = self.grid * self.block * OUT_BYTES
        return (used + 65535) // 65536 * 65536


MODULE: Final = """
.version 8.0
.target sm_80
.address_size 64
"""
REGISTERS: Final = f"""
  .reg .pred %p<{COUNT["p"]}>, %t;
  .reg .b16 %h<{COUNT["h"]}>;
  .reg .b32 %r<{COUNT["r"]}>, %tid, %i, %w, %w1, %m;
  .reg .b64 %q<{COUNT["q"]}>, %in, %out, %x;
  .reg .f32 %f<{COUNT["f"]}>;
  .reg .f64 %d<{COUNT["d"]}>;
"""
HEAD: Final = f"""
.visible .entry k(.param .u64 in, .param .u64 out)
{{{REGISTERS}
  .shared .align 8 .b32 area[{SHARED_WORDS}];
  .local .align 8 .b32 mine[{LOCAL_WORDS}];
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %w, %ctaid.x; mov.u32 %w1, %ntid.x; mov.u32 %tid, %tid.x; mad.lo.u32 %i, %w, %w1, %tid;
  mad.wide.u32 %out, %i, {OUT_BYTES}, %out;
"""


class Writer:
    """The text of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._labels = 0
        self._functions: list[str] = []

    def text(self) -> str:
        lines = [HEAD, *self._start(), *self._nodes(self._program.body)]
        kernel = [*lines, *self._end(), "ret;\n}\n"]
        return "\n".join([MODULE, *self._functions, *kernel])

    def _nodes(self, nodes: tuple[Node, ...]) -> list[str]:
        return [line for node in nodes for line in self._node(node)]

    def _start(self) -> Iterator[str]:
        for k, name in enumerate(SAVED):
            kind, c = f"%{name}", name[0]
            yield (
                f"add.u32 %w, %i, {37 * k}; and.b32 %w, %w, {IN_WORDS - 1}; "
                "mad.wide.u32 %x, %w, 8, %in;"
            )
            if c == "p":
                yield f"ld.global.u32 %w, [%x]; and.b32 %w, %w, 1; setp.ne.u32 {kind}, %w, 0;"
            elif c in "fd":
                yield f"ld.global.f{BITS[c]} {kind}, [%x];"
            else:
                yield f"ld.global.b{BITS[c]} {kind}, [%x];"
        for k in range(OWN_WORDS):
            yield f"st.global.u32 [%out+{8 * len(SAVED) + 4 * k}], {k};"
        for k in range(LOCAL_WORDS):
            yield f"st.local.u32 [mine+{4 * k}], {3 * k};"
        yield "setp.ge.u32 %t, %tid, " + f"{SHARED_WORDS}; @%t bra begin;"
        yield "mov.u32 %w, area; mad.lo.u32 %w, %tid, 4, %w; st.shared.u32 [%w], %tid;"
        yield "begin: bar.sync 0;" if self._program.together else "begin:"

    def _end(self) -> Iterator[str]:
        for k, name in enumerate(SAVED):
            c, at = name[0], 8 * k
            if c == "p":
                yield f"selp.u32 %w, 1, 0, %{name}; st.global.u32 [%out+{at}], %w;"
            elif c in "fd":
                # NaNs carry no particular bits: all are written as one, chosen as an integer.
                word, nan = ("%w", 0x7FC00000) if c == "f" else ("%x", 0x7FF8000000000000)
                bits = BITS[c]
                yield f"setp.nan.f{bits} %t, %{name}, %{name}; mov.b{bits} {word}, %{name};"
                yield f"selp.b{bits} {word}, {nan}, {word}, %t;"
                yield f"st.global.b{bits} [%out+{at}], {word};"
            else:
                yield f"st.global.b{BITS[c]} [%out+{at}], %{name};"

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def _node(self, node: Node) -> list[str]:
        if isinstance(node, Do):
            names = ", ".join(map(_name, (node.target, *node.sources)))
            guard = f"@{'!' * node.negated}%{node.guard} " if node.guard else ""
            return [f"{guard}{node.operation.name} {names};"]
        if isinstance(node, If):
            return self._if(node)
        if isinstance(node, Loop):
            return self._loop(node)
        if isinstance(node, Memory):
            return [_address(node), _access(node)]
        if isinstance(node, Exchange):
            return [
                "mov.u32 %w1, area; mad.lo.u32 %w, %tid, 4, %w1;",
                f"st.shared.u32 [%w], %{node.value}; bar.sync 0;",
                f"mov.u32 %w1, %ntid.x; rem.u32 %w, %{node.index}, %w1;",
                "mov.u32 %w1, area; mad.lo.u32 %w, %w, 4, %w1;",
                f"ld.shared.u32 %{node.target}, [%w]; bar.sync 0;",
            ]
        if isinstance(node, Warp):
            return [_warp(node)]
        if isinstance(node, Atomic):
            values = ", ".join(map(_name, node.values))
            return [
                f"and.b32 %w, %{node.index}, {OWN_WORDS - 1}; mad.wide.u32 %x, %w, 4, %out;",
                f"atom.global.{node.name} %{node.target}, [%x+{8 * len(SAVED)}], {values};",
            ]
        if isinstance(node, Call):
            return self._call(node)
        return [self._wild(node)]

    def _if(self, node: If) -> list[str]:
        other, end = self._label(), self._label()
        then, otherwise = self._nodes(node.then), self._nodes(node.other)
        return [
            f"@!%{node.test} bra {other};",
            *then,
            f"bra {end};",
            f"{other}:",
            *otherwise,
            f"{end}:",
        ]

    def _loop(self, node: Loop) -> list[str]:
        again, end = self._label(), self._label()
        count = f"%count{again}"
        test = f"%more{again}"
        first = (
            f"and.b32 {count}, {_name(node.rounds)}, {3 if isinstance(node.rounds, str) else -1};"
        )
        lines = [f"{{ .reg .b32 {count}; .reg .pred {test};", first, f"{again}:"]
        lines += [f"setp.eq.u32 {test}, {count}, 0; @{test} bra {end};"]
        lines += self._nodes(node.body)
        return [*lines, f"sub.u32 {count}, {count}, 1; bra {again};", f"{end}:", "}"]

    def _call(self, node: Call) -> list[str]:
        name = f"f{len(self._functions)}"
        self._functions.append("")
        zero = {"p": "setp.ne.u32 %p{k}, 0, 0;", "f": "mov.f32 %f{k}, 0f00000000;"}
        zero["d"] = "mov.f64 %d{k}, 0d0000000000000000;"
        start = [
            zero.get(c, f"mov.b{BITS[c]} %{c}{{k}}, 0;").replace("{k}", str(k))
            for c in COUNT
            for k in range(COUNT[c])
        ]
        self._functions[int(name[1:])] = "\n".join(
            [
                f".func (.param .b32 r) {name}(.param .b32 a, .param .b64 b)",
                f"{{{REGISTERS} {' '.join(start)} add.cc.u32 %w, 0, 0;",
                "ld.param.b32 %r0, [a]; ld.param.b64 %q0, [b];",
                *self._nodes(node.body),
                "st.param.b32 [r], %r0; ret; }",
            ]
        )
        callee, more, before = name, "", ""
        if node.by_pointer:
            parameters = "(.param .b32 _) _ (.param .b32 _, .param .b64 _)"
            before = f"mov.u64 %x, {name}; P{name}: .callprototype {parameters};"
            callee, more = "%x", f", P{name}"
        return [
            f"{{ .param .b32 a; .param .b64 b; .param .b32 r; {before}",
            f"st.param.b32 [a], %{node.values[0]}; st.param.b64 [b], %{node.values[1]};",
            f"call (r), {callee}, (a, b){more}; ld.param.b32 %{node.target}, [r]; }}",
        ]

    def _wild(self, node: Wild) -> str:
        if node.space == "behind":
            past = self._program.out_bytes() + node.address
            address, space = f"ld.param.u64 %x, [out]; add.u64 %x, %x, {past};", "global"
        else:
            address, space = f"mov.u64 %x, {node.address};", node.space
        dot = f".{space}" if space else ""
        # A load whose value nobody wants need not be made, so this one is wanted.
        load = f"ld{dot}.u32 %w, [%x]; st.global.u32 [%out+{8 * len(SAVED)}], %w;"
        access = f"st{dot}.u32 [%x], %i;" if node.store else load
        return f"{address} {access}"


def _name(source: Source) -> str:
    return f"%{source}" if isinstance(source, str) else str(source)


def _address(node: Memory) -> str:
    """The address of the word in %x or %w."""
    size = {"in": IN_WORDS * 2, "own": OWN_WORDS, "local": LOCAL_WORDS}.get(node.space, 32)
    pick = f"and.b32 %w, %{node.index}, {size - 1};"
    if node.space == "in":
        return f"{pick} mad.wide.u32 %x, %w, 4, %in;"
    if node.space == "own":
        return f"{pick} mad.wide.u32 %x, %w, 4, %out;"
    if node.space == "local":
        return f"{pick} mov.u64 %x, mine; mad.wide.u32 %x, %w, 4, %x;"
    to = "mov.u64 %x, area; mad.wide.u32 %x, %w, 4, %x;"
    # The thread's own word: what others write is read behind a barrier only (Exchange).
    return f"mov.u32 %w, %tid; {to}" + (
        " cvta.shared.u64 %x, %x;" if node.space == "generic" else ""
    )


def _access(node: Memory) -> str:
    space = {"in": ".global", "own": ".global", "generic": ""}.get(node.space, f".{node.space}")
    offset = f"+{8 * len(SAVED)}" if node.space == "own" else ""
    if node.store:
        return f"st{space}.u32 [%x{offset}], %{node.register};"
    return f"ld{space}.u32 %{node.register}, [%x{offset}];"


def _warp(node: Warp) -> str:
    sources = ", ".join(map(_name, node.sources))
    if node.name == "activemask.b32":
        return f"activemask.b32 %{node.target};"
    return f"activemask.b32 %m; {node.name} %{node.target}, {sources}, %m;"
