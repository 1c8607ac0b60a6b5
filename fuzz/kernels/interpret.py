"""What a program writes, computed thread by thread: the model that the device is held against.

The threads of a warp go together, as on a GPU: at a branch those of one way go first, then those of
the other, and behind it all go on together.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kernels import values as n
from kernels.operations import BITS
from kernels.program import (
    IN_WORDS,
    LOCAL_WORDS,
    OUT_BYTES,
    OWN_WORDS,
    SAVED,
    SHARED_WORDS,
    Atomic,
    Call,
    Do,
    Exchange,
    If,
    Loop,
    Memory,
    Program,
    Warp,
    Wild,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.program import Node, Source

WARP: Final = 32


class IllegalAddress(Exception):
    """A thread made an access where nothing is."""


class Thread:
    """Registers and memory of one thread."""

    def __init__(self, tid: int, number: int, words: Sequence[int]) -> None:
        self.tid, self.number, self.flag = tid, number, 0
        self.own = list(range(OWN_WORDS))
        self.local = [3 * k for k in range(LOCAL_WORDS)]
        self.registers: dict[str, int] = {}
        for k, name in enumerate(SAVED):
            word = words[number + 37 * k & IN_WORDS - 1]
            self.registers[name] = word & n.mask(BITS[name[0]])

    def read(self, source: Source) -> int:
        return self.registers[source] if isinstance(source, str) else source

    def write(self, target: str, value: int) -> None:
        self.registers[target] = value & n.mask(BITS[target[0]])

    def saved(self) -> bytes:
        """What the thread leaves in its part of `out`."""
        parts = []
        for name in SAVED:
            value, kind = self.registers[name], {"f": "f32", "d": "f64"}.get(name[0])
            if kind is not None and n.is_nan(value, kind):
                value = n.NAN[kind]
            parts.append(struct.pack("<Q", value))
        return b"".join(parts) + struct.pack(f"<{OWN_WORDS}I", *self.own)


class Block:
    """One block that runs."""

    def __init__(self, program: Program, index: int, words: Sequence[int]) -> None:
        size = program.block
        self.words = words
        self.threads = [Thread(t, index * size + t, words) for t in range(size)]
        self.shared = [t if t < size else 0 for t in range(SHARED_WORDS)]

    def run(self, nodes: tuple[Node, ...], threads: list[Thread]) -> None:
        for node in nodes if threads else ():
            if isinstance(node, Do):
                for thread in threads:
                    _do(node, thread)
            elif isinstance(node, If):
                yes = [t for t in threads if t.registers[node.test]]
                no = [t for t in threads if not t.registers[node.test]]
                self.run(node.then, yes)
                self.run(node.other, no)
            elif isinstance(node, Loop):
                self._loop(node, threads)
            elif isinstance(node, Memory):
                for thread in threads:
                    self._memory(node, thread)
            elif isinstance(node, Exchange):
                self._exchange(node, threads)
            elif isinstance(node, Atomic):
                for thread in threads:
                    _atomic(node, thread)
            elif isinstance(node, Call):
                self._call(node, threads)
            elif isinstance(node, Warp):
                for first in range(0, len(self.threads), WARP):
                    lanes = [t for t in threads if first <= t.tid < first + WARP]
                    if lanes:
                        _warp(node, {t.tid % WARP: t for t in lanes})
            elif isinstance(node, Wild):
                raise IllegalAddress

    def _loop(self, node: Loop, threads: list[Thread]) -> None:
        left = {
            t.tid: t.read(node.rounds) & 3 if isinstance(node.rounds, str) else node.rounds
            for t in threads
        }
        while threads := [t for t in threads if left[t.tid] > 0]:
            self.run(node.body, threads)
            for thread in threads:
                left[thread.tid] -= 1

    def _call(self, node: Call, threads: list[Thread]) -> None:
        """Each function has registers and a carry flag of its own."""
        outside = {t.tid: (t.registers, t.flag) for t in threads}
        for t in threads:
            given = [t.registers[name] for name in node.values]
            t.registers, t.flag = dict.fromkeys(SAVED, 0), 0
            t.registers["r0"], t.registers["q0"] = given
        self.run(node.body, threads)
        for t in threads:
            result = t.registers["r0"]
            t.registers, t.flag = outside[t.tid]
            t.write(node.target, result)

    def _memory(self, node: Memory, thread: Thread) -> None:
        index = thread.registers[node.index]
        if node.space == "in":
            word = self.words[index % (2 * IN_WORDS) // 2]
            thread.write(node.register, word >> 32 * (index & 1))
            return
        place, at = {
            "own": (thread.own, index % OWN_WORDS),
            "local": (thread.local, index % LOCAL_WORDS),
        }.get(node.space, (self.shared, thread.tid))
        if node.store:
            place[at] = thread.registers[node.register]
        else:
            thread.write(node.register, place[at])

    def _exchange(self, node: Exchange, threads: list[Thread]) -> None:
        for thread in threads:
            self.shared[thread.tid] = thread.registers[node.value]
        for thread in threads:
            at = thread.registers[node.index] % len(self.threads)
            thread.write(node.target, self.shared[at])


def _do(node: Do, thread: Thread) -> None:
    if node.guard and bool(thread.registers[node.guard]) == node.negated:
        return
    operation = node.operation
    values = [thread.read(source) for source in node.sources]
    if not operation.flag:
        thread.write(node.target, int(operation.compute(*values)))
        return
    total = operation.compute(*values, thread.flag)
    if ".cc." in operation.name:
        thread.flag = total >> BITS[operation.target]
    thread.write(node.target, total)


def _atomic(node: Atomic, thread: Thread) -> None:
    at = thread.registers[node.index] % OWN_WORDS
    old, value = thread.own[at], thread.registers[node.values[0]]
    signed, other = n.signed(old, 32), n.signed(value, 32)
    thread.own[at] = {
        "add.u32": old + value,
        "min.s32": min(signed, other),
        "max.s32": max(signed, other),
        "min.u32": min(old, value),
        "max.u32": max(old, value),
        "and.b32": old & value,
        "or.b32": old | value,
        "xor.b32": old ^ value,
        "exch.b32": value,
        "inc.u32": 0 if old >= value else old + 1,
        "dec.u32": value if old == 0 or old > value else old - 1,
        "cas.b32": thread.registers[node.values[-1]] if old == value else old,
    }[node.name] & n.mask(32)
    thread.write(node.target, old)


def _warp(node: Warp, lanes: dict[int, Thread]) -> None:
    family, _, rest = node.name.partition(".")
    values = {lane: [t.read(s) for s in node.sources] for lane, t in lanes.items()}
    if family == "activemask":
        results = dict.fromkeys(lanes, sum(1 << lane for lane in lanes))
    elif family == "shfl":
        results = {lane: _shuffle(rest.split(".")[1], lane, values) for lane in lanes}
    elif family == "vote":
        results = dict.fromkeys(lanes, _vote(rest.split(".")[1], values))
    elif family == "match":
        results = {
            lane: sum(1 << other for other in lanes if values[other] == values[lane])
            for lane in lanes
        }
    else:
        results = dict.fromkeys(lanes, _reduce(rest, [v[0] for v in values.values()]))
    for lane, thread in lanes.items():
        thread.write(node.target, results[lane])


def _shuffle(mode: str, lane: int, values: dict[int, list[int]]) -> int:
    """The manual's pseudo code; a lane that does not take part gives the reader its own value
    (rgpu_emu/device/exec/warp_ops.cc: PTX leaves it open)."""
    _, by, c = values[lane]
    segment, clamp = c >> 8 & 31, c & 31
    most = lane & segment | clamp & ~segment
    if mode == "up":
        source = lane - by
        good = source >= most
    else:
        source = {
            "down": lane + by,
            "bfly": lane ^ by,
            "idx": lane & segment | by & ~segment,
        }[mode]
        good = source <= most
    return values.get(source if good else lane, values[lane])[0]


def _vote(mode: str, values: dict[int, list[int]]) -> int:
    said = [v[0] for v in values.values()]
    return {
        "ballot": sum(v[0] << lane for lane, v in values.items()),
        "all": int(all(said)),
        "any": int(any(said)),
        "uni": int(len(set(said)) == 1),
    }[mode]


def _reduce(rest: str, values: list[int]) -> int:
    name = rest.split(".", 1)[1]
    if name == "add.u32":
        return sum(values)
    if name == "min.s32":
        return min(n.signed(v, 32) for v in values)
    if name == "max.u32":
        return max(values)
    total = 0
    for v in values:
        total ^= v
    return total


def interpret(program: Program, words: Sequence[int]) -> bytes:
    """What all threads leave in `out`.

    Raises:
        IllegalAddress: some thread makes an access where nothing is.
    """
    out = bytearray(program.out_bytes())
    for index in range(program.grid):
        block = Block(program, index, words)
        block.run(program.body, block.threads)
        for thread in block.threads:
            at = thread.number * OUT_BYTES
            out[at : at + OUT_BYTES] = thread.saved()
    return bytes(out)
