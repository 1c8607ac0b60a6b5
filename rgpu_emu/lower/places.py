"""Finds which threads of a warp are together at an `activemask`.

A GPU runs the threads of a warp together, separates them at a branch, and joins them where the
branches meet. Here each thread is a coroutine, so the scheduler has to find out which threads would
be together. A thread that suspends at an `activemask` reports its place as words: one word for each
loop around the place (the loop, and how many rounds of it the thread has begun) and for each
inlined call, the outermost first, then a word for the place itself. Threads with equal words are
together. The scheduler resumes the threads with the lowest words first: threads that are behind
catch up with the others, as on a GPU.

The words are ordered like the control flow, not like the text. A block comes after all blocks that
lead to it, and the code after a loop comes after the whole loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from rgpu_emu.lower.flow import ENDS, targets_of
from rgpu_emu.ptx.errors import unsupported
from rgpu_emu.ptx.operands import Body, Instr, Label

if TYPE_CHECKING:
    from collections.abc import Callable

Word = tuple[int, str]  # a place in the order, and the slot of a loop's count or ""
WORDS: Final = 4  # ThreadState::place
ROUND_BITS: Final = 40
MAX_MEMBERS: Final = 1 << 20  # blocks of all loops of a body together


class Emitter(Protocol):
    """The part of the emitter that the round counts use."""

    def op(self, text: str) -> str: ...

    def line(self, text: str) -> None: ...

    def alloca(self, kind: str, *, align: int = 0, zero: bool = False) -> str: ...


@dataclass(frozen=True, eq=False)
class Loop:
    header: int
    blocks: frozenset[int]


class Blocks:
    """The basic blocks of a body in the order of its control flow, and its loops.

    Attributes:
        spans: for each block its first position and the position after its last.
        after: for each block the blocks that can follow it.
    """

    def __init__(self, body: Body) -> None:
        self.block_of: list[int] = []
        self._starts: list[int] = []
        self._inner: dict[Loop, list[Loop]] = {}
        self._split(body)
        self.spans = list(pairwise([*self._starts, len(body.code)]))
        self.after = self._edges(body)

    def _split(self, body: Body) -> None:
        ended = True
        for position, item in enumerate(body.code):
            if ended or isinstance(item, Label):
                self._starts.append(position)
            self.block_of.append(len(self._starts) - 1)
            ended = isinstance(item, Instr) and item.form.row.lower in ENDS

    def _edges(self, body: Body) -> list[list[int]]:
        after: list[list[int]] = []
        for block, (start, end) in enumerate(self.spans):
            last = body.code[end - 1] if end > start else None
            ends = isinstance(last, Instr) and last.form.row.lower in ENDS
            found = [
                self.block_of[t.position]
                for t in (targets_of(last, body) if isinstance(last, Instr) else ())
            ]
            falls = not ends or (isinstance(last, Instr) and last.guard is not None)
            if falls and block + 1 < len(self._starts):
                found.append(block + 1)
            after.append(list(dict.fromkeys(found)))
        return after

    def _walk(self, order: Callable[[int], list[int]]) -> tuple[list[int], list[tuple[int, int]]]:
        """Returns the blocks in post-order, and the edges that lead back to a block that is being
        visited.
        """
        done: list[int] = []
        backwards: list[tuple[int, int]] = []
        state: dict[int, bool] = {}  # True while it is being visited
        stack = [(0, iter(order(0)))] if self.after else []
        if stack:
            state[0] = True
        while stack:
            block, rest = stack[-1]
            for target in rest:
                if target not in state:
                    state[target] = True
                    stack.append((target, iter(order(target))))
                    break
                if state[target]:
                    backwards.append((block, target))
            else:
                state[block] = False
                done.append(block)
                stack.pop()
        return done, backwards

    @cached_property
    def loops(self) -> list[Loop]:
        """The natural loops, the largest first. All back-edges to one header belong to one loop."""
        done, backwards = self._walk(lambda block: self.after[block])
        before: dict[int, list[int]] = {block: [] for block in done}
        for block in done:
            for target in self.after[block]:
                before[target].append(block)
        members: dict[int, set[int]] = {}
        members_of_all = 0
        for end, header in backwards:
            inside = members.setdefault(header, {header})
            queue = [end]
            size = len(inside)
            while queue:
                block = queue.pop()
                if block not in inside:
                    inside.add(block)
                    queue += before[block]
            members_of_all += len(inside) - size
            if members_of_all > MAX_MEMBERS:
                raise unsupported("activemask", "is in a function with too many nested loops")
        found = [Loop(header, frozenset(inside)) for header, inside in members.items()]
        return sorted(found, key=lambda loop: (-len(loop.blocks), loop.header))

    @cached_property
    def _around(self) -> dict[int, list[Loop]]:
        """The loops of each block, the largest first."""
        found: dict[int, list[Loop]] = {}
        for loop in self.loops:
            for block in loop.blocks:
                found.setdefault(block, []).append(loop)
        return found

    @cached_property
    def _at_header(self) -> dict[int, Loop]:
        return {loop.header: loop for loop in self.loops}

    def _inside(self, loop: Loop) -> list[Loop]:
        """Returns the smaller loops that begin inside a loop."""
        found = self._inner.get(loop)
        if found is None:
            starts = sorted(loop.blocks & self._at_header.keys())
            inner = [self._at_header[block] for block in starts if block != loop.header]
            found = [i for i in inner if len(i.blocks) < len(loop.blocks)]
            self._inner[loop] = found
        return found

    def _ordered(self) -> list[int]:
        """Returns the blocks so that each comes after all blocks that lead to it, and the exits of
        a loop after the loop.
        """

        def ways_out_first(block: int) -> list[int]:
            around = self._around.get(block, [])
            return sorted(
                self.after[block], key=lambda to: sum(to in loop.blocks for loop in around)
            )

        done, _ = self._walk(ways_out_first)
        return done[::-1]

    @cached_property
    def _first(self) -> dict[int, int]:
        """Block -> number of its first position. Unreachable blocks have the last numbers."""
        first: dict[int, int] = {}
        at = 1
        reached = self._ordered()
        for block in [*reached, *sorted(set(range(len(self._starts))) - set(reached))]:
            first[block] = at
            at += self.spans[block][1] - self.spans[block][0]
        return first

    def around(self, position: int) -> list[Loop]:
        """Returns the loops that contain a position, the outermost first."""
        return self._around.get(self.block_of[position], [])

    def order(self, position: int) -> int:
        """Returns the position's number, from 1, in the order of the control flow."""
        block = self.block_of[position]
        return self._first[block] + position - self._starts[block]

    def order_of_loop(self, loop: Loop) -> int:
        return self.order(self._starts[loop.header])

    def rounds(self, position: int, target: int) -> tuple[Loop | None, list[Loop]]:
        """Returns the loop that starts another round when control goes from `position` to `target`,
        and the loops inside it.
        """
        loop = self._at_header.get(self.block_of[target])
        if loop is None or self.block_of[position] not in loop.blocks:
            return None, []
        return loop, self._inside(loop)


class Places:
    """The places of a body where its threads meet, while the body is emitted."""

    def __init__(self, e: Emitter, body: Body, outer: list[Word]) -> None:
        self._e = e
        self._outer = outer
        self._blocks = Blocks(body)
        self._counts: dict[Loop, str] = {}
        for position, item in enumerate(body.code):
            if isinstance(item, Instr) and _meets(item):
                for loop in self._blocks.around(position):
                    if loop not in self._counts:
                        self._counts[loop] = e.alloca("i64", zero=True)

    def begin(self) -> None:
        """Resets the round counts at the beginning of the body, because an inlined body may run
        many times.
        """
        for slot in self._counts.values():
            self._e.line(f"store i64 0, ptr {slot}")

    def go(self, position: int, target: int) -> None:
        """Updates the round counts when control passes from one position to another."""
        loop, inner = self._blocks.rounds(position, target)
        if loop in self._counts:
            slot = self._counts[loop]
            rounds = self._e.op(f"load i64, ptr {slot}")
            self._e.line(f"store i64 {self._e.op(f'add i64 {rounds}, 1')}, ptr {slot}")
        for other in inner:
            if other in self._counts:
                self._e.line(f"store i64 0, ptr {self._counts[other]}")

    def words(self, position: int) -> list[Word]:
        """Returns the words of `position`. If there are more than `WORDS`, `values` leaves the
        innermost loops out.
        """
        around = self._blocks.around(position)
        loops = [(self._blocks.order_of_loop(loop), self._counts[loop]) for loop in around]
        return [*self._outer, *loops, (self._blocks.order(position), "")]

    def values(self, position: int) -> list[str]:
        """Returns `words` as IR values, at most WORDS of them."""
        words = self.words(position)
        return [self._value(word) for word in [*words[:-1][: WORDS - 1], words[-1]]]

    def _value(self, word: Word) -> str:
        order, slot = word
        if not slot:
            return str(order << ROUND_BITS)
        return self._e.op(f"add i64 {self._e.op(f'load i64, ptr {slot}')}, {order << ROUND_BITS}")


def _meets(item: Instr) -> bool:
    """Returns True if threads may meet at this instruction, or in a function that it calls."""
    return item.form.row.lower in ("activemask", "call")
