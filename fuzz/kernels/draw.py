"""Random programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernels.operations import BITS, GROUPS, Operation
from kernels.program import (
    COUNT,
    Atomic,
    Call,
    Do,
    Exchange,
    If,
    Loop,
    Memory,
    Node,
    Program,
    Warp,
    Wild,
)

if TYPE_CHECKING:
    import random

EDGES: Final = (0, 1, 2, 31, 32, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF)
WARPS: Final = (
    ("activemask.b32", "r", ""),
    ("shfl.sync.idx.b32", "r", "rik"),
    ("shfl.sync.bfly.b32", "r", "rik"),
    ("shfl.sync.up.b32", "r", "riz"),
    ("shfl.sync.down.b32", "r", "rik"),
    ("vote.sync.ballot.b32", "r", "p"),
    ("vote.sync.all.pred", "p", "p"),
    ("vote.sync.any.pred", "p", "p"),
    ("vote.sync.uni.pred", "p", "p"),
    ("match.any.sync.b32", "r", "r"),
    ("redux.sync.add.u32", "r", "r"),
    ("redux.sync.min.s32", "r", "r"),
    ("redux.sync.max.u32", "r", "r"),
    ("redux.sync.xor.b32", "r", "r"),
)
ATOMICS: Final = (
    "add.u32",
    "min.s32",
    "max.s32",
    "min.u32",
    "max.u32",
    "and.b32",
    "or.b32",
    "xor.b32",
    "exch.b32",
    "inc.u32",
    "dec.u32",
    "cas.b32",
)
# Where nothing of the session is: null, another process' usual places, both ends of every address.
NOWHERE: Final = (
    0,
    8,
    0x400000,
    0x555555554000,
    0x7F0000000000,
    0x7FFFFFFDE000,
    0x1FFFFFFFFFFC,
    0x203FFFFFFFFC,
    0x204000000000,
    0x800000000000,
    0xFFFFFFFFFF600000,
    0xFFFFFFFFFFFFFFF8,
)


class Drawing:
    """Draws one program from a generator of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._together = rng.random() < 0.7
        self._calls = 0  # how many calls the drawn node is inside of

    def program(self) -> Program:
        rng = self._rng
        body = [self._top() for _ in range(rng.randrange(4, 24))]
        if rng.random() < 0.12:
            body.insert(rng.randrange(len(body) + 1), self._wild())
        return Program(
            tuple(body), rng.choice((1, 2)), rng.choice((1, 7, 32, 40, 64)), self._together
        )

    def _top(self) -> Node:
        """Draws a node for a place that all threads of a block reach: it may contain barriers."""
        pick = self._rng.random()
        if pick < 0.1 and self._together:
            return Exchange(self._register("r"), self._register("r"), self._register("r"))
        if pick < 0.14:
            body = tuple(self._round() for _ in range(self._rng.randrange(1, 4)))
            return Loop(self._rng.randrange(0, 4), body)
        return self._anywhere(2)

    def _round(self) -> Node:
        if self._rng.random() < 0.3 and self._together:
            return Exchange(self._register("r"), self._register("r"), self._register("r"))
        return self._anywhere(2)

    def _anywhere(self, depth: int) -> Node:
        rng = self._rng
        pick = rng.random()
        if depth and pick < 0.12:
            then, other = (self._block(depth), self._block(depth) if rng.random() < 0.7 else ())
            return If(self._register("p"), then, other)
        if depth and pick < 0.18:
            return Loop(self._register("r"), self._block(depth))
        if depth and self._calls < 2 and pick < 0.21:
            return self._call(depth)
        if pick < 0.28 and not self._calls:
            space = rng.choice(("in", "own", "shared", "generic", "local"))
            store = space != "in" and rng.random() < 0.5
            return Memory(space, self._register("r"), self._register("r"), store)
        if pick < 0.36 and self._together:
            return self._warp()
        if pick < 0.39 and not self._calls:
            return self._atomic()
        return self._do()

    def _call(self, depth: int) -> Call:
        """Draws a call. In a function that is called by pointer no thread waits for another one."""
        rng, together = self._rng, self._together
        by_pointer = rng.random() < 0.4
        self._calls, self._together = self._calls + 1, together and not by_pointer
        body = self._block(depth)
        self._calls, self._together = self._calls - 1, together
        values = (self._register("r"), self._register("q"))
        return Call(body, values, self._register("r"), by_pointer)

    def _atomic(self) -> Atomic:
        name = self._rng.choice(ATOMICS)
        values = tuple(self._register("r") for _ in range(2 if "cas" in name else 1))
        return Atomic(name, self._register("r"), self._register("r"), values)

    def _block(self, depth: int) -> tuple[Node, ...]:
        return tuple(self._anywhere(depth - 1) for _ in range(self._rng.randrange(1, 6)))

    def _do(self) -> Do:
        rng = self._rng
        group = rng.choice(
            ("arithmetic", "arithmetic", "bits", "predicates", "floats", "conversions", "carry")
        )
        operation = rng.choice(GROUPS[group])
        guard = self._register("p") if rng.random() < 0.15 else ""
        sources = tuple(self._source(operation, k) for k in range(len(operation.sources)))
        target = self._register(operation.target)
        return Do(operation, target, sources, guard, rng.random() < 0.5)

    def _source(self, operation: Operation, at: int) -> str | int:
        rng, kind = self._rng, operation.sources[at]
        if kind == "i":
            return rng.randrange(256)
        # An integer source may be a literal. The first source is a register, or the compiler could
        # compute the result.
        if kind in "hrq" and at and rng.random() < 0.25:
            value = rng.choice(EDGES)
            return value & (1 << BITS[kind] - 1) - 1
        return self._register(kind)

    def _warp(self) -> Warp:
        name, target, sources = self._rng.choice(WARPS)
        found: list[str | int] = []
        for kind in sources:
            if kind == "i":
                found.append(self._rng.randrange(32))
            elif kind == "k":
                found.append(self._rng.choice((31, 0x101F, 0x181F, 0x1C1F)))
            elif kind == "z":
                found.append(self._rng.choice((0, 0x1000, 0x1800)))
            else:
                found.append(self._register(kind))
        return Warp(name, self._register(target), tuple(found))

    def _wild(self) -> Node:
        rng = self._rng
        space = rng.choice(("global", "", "behind", "shared", "local"))
        address = {
            "behind": rng.choice((0, 4, 4092)),
            "shared": rng.choice((1 << 20, 0x7FFFFFF0)),
            "local": rng.choice((1 << 24, 0x7FFFFFF0)),
        }.get(space, rng.choice(NOWHERE))
        wild = Wild(space, address, rng.random() < 0.5)
        if rng.random() < 0.5:
            return If(self._register("p"), (wild,), ())
        return wild

    def _register(self, kind: str) -> str:
        return f"{kind}{self._rng.randrange(COUNT[kind])}"
