"""Carry chains in every mixture of operation and width against Python's integers.

A chain is three instructions; each result is stored.  The model computes a subtraction as a + ~b + carry, so its flag
after a subtraction means that nothing was borrowed.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.forms import EDGES, bits, value
from ptx.harness import HEADER, Kernel
from ptx.nvrtc import compile_cuda

Array = npt.NDArray[Any]
TYPES = ("u32", "s32", "u64", "s64")
FIRST = ("add.cc", "sub.cc", "mad.lo.cc", "mad.hi.cc")
NEXT = ("addc", "subc", "madc.lo", "madc.hi")
BATCH = 50  # chains of one kernel
THREADS = 64


@dataclass(frozen=True)
class Step:
    """One instruction. sources: which of a thread's four inputs are its operands."""

    op: str
    kind: str
    sources: tuple[int, int, int]

    def text(self, target: str) -> str:
        names = [f"%{'w' if bits(self.kind) == 32 else 'x'}{k}" for k in self.sources]
        if not self.op.startswith("mad"):
            names = names[:2]
        return f"{self.op}.{self.kind} {target}, {', '.join(names)};"

    def run(self, inputs: tuple[int, ...], flag: int) -> tuple[int, int]:
        """The result and the carry out."""
        width = bits(self.kind)
        full = (1 << width) - 1
        a, b, c = (inputs[k] & full for k in self.sources)
        family = self.op.partition(".")[0]
        if family.startswith("mad"):
            product = value(a, self.kind) * value(b, self.kind)
            a, b = (product >> width if ".hi" in self.op else product) & full, c
        elif family.startswith("sub"):
            b ^= full
        carry = flag if family.endswith("c") else int(family == "sub")
        total = a + b + carry
        return total & full, total >> width


def chains() -> list[tuple[Step, Step, Step]]:
    """All mixtures of operations in one type, and a seeded draw of mixtures of types."""
    rng = random.Random(12)
    found = []
    for n, ops in enumerate(itertools.product(FIRST, NEXT, NEXT)):
        ops = (ops[0], ops[1] + ".cc", ops[2])
        kinds = [(t, t, t) for t in TYPES] + [
            tuple(rng.choice(TYPES) for _ in ops) for _ in range(3)
        ]
        for chosen in kinds:
            places = [tuple(rng.randrange(4) for _ in range(3)) for _ in ops]
            if n % 2:
                places = [(0, 1, 2), (1, 2, 3), (2, 3, 0)]
            found.append(tuple(Step(*row) for row in zip(ops, chosen, places, strict=True)))
    return found  # type: ignore[return-value]


def source(found: list[tuple[Step, Step, Step]]) -> str:
    lines = [
        HEADER,
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .b32 %i, %w<4>;\n"
        ".reg .b64 %in, %out, %at, %x<4>;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n"
        f"mov.u32 %i, %tid.x;\nmad.wide.u32 %in, %i, 32, %in;\nmad.wide.u32 %out, %i, {len(found) * 24}, %out;\n",
    ]
    for k in range(4):
        lines.append(f"ld.global.u64 %x{k}, [%in+{k * 8}];\ncvt.u32.u64 %w{k}, %x{k};\n")
    for n, chain in enumerate(found):
        # Results are stored after the chain, so that no other instruction is between its
        # instructions.
        lines.append("{\n.reg .b32 %r<3>;\n.reg .b64 %q<3>;\n")
        names = [f"%{'r' if bits(step.kind) == 32 else 'q'}{k}" for k, step in enumerate(chain)]
        lines += [step.text(name) + "\n" for step, name in zip(chain, names, strict=True)]
        for k, (step, name) in enumerate(zip(chain, names, strict=True)):
            lines.append(f"st.global.b{bits(step.kind)} [%out+{(n * 3 + k) * 8}], {name};\n")
        lines.append("}\n")
    return "".join([*lines, "ret;\n}\n"])


def inputs() -> list[tuple[int, ...]]:
    rng = random.Random(5)
    edges = EDGES[64] + EDGES[32] + [0xFFFFFFFF00000000, 0x7FFFFFFFFFFFFFFE]
    rows = [tuple(rng.choice(edges) for _ in range(4)) for _ in range(THREADS // 2)]
    return rows + [tuple(rng.getrandbits(64) for _ in range(4)) for _ in range(THREADS // 2)]


@pytest.mark.full
def test_every_mixture_of_carry_operations() -> None:
    every, rows = chains(), inputs()
    # Several kernels, because the time to compile one grows faster than its length.
    for first in range(0, len(every), BATCH):
        check_chains(every[first : first + BATCH], rows)


def check_chains(found: list[tuple[Step, Step, Step]], rows: list[tuple[int, ...]]) -> None:
    kernel = Kernel(source(found))
    out = np.zeros((THREADS, len(found), 3), np.uint64)
    place = kernel.arena.put(out)
    given = np.array(rows, np.uint64)
    kernel.launch((1,), (THREADS,), np.uint64(kernel.arena.put(given)), np.uint64(place))
    got = kernel.arena.get(place, out).tolist()
    for row, mine in zip(rows, got, strict=True):
        for chain, have in zip(found, mine, strict=True):
            flag, want = 0, []
            for step in chain:
                result, flag = step.run(row, flag)
                want.append(result)
            text = " ".join(step.text("d") for step in chain)
            assert have == want, f"{text} {[hex(v) for v in row]}: {have}, not {want}"


def test_a_predicated_step_leaves_the_flag_alone() -> None:
    body = """
    .reg .pred %p; .reg .b32 %i, %a, %b, %c; .reg .b64 %out;
    ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mad.wide.u32 %out, %i, 8, %out;
    setp.eq.u32 %p, %i, 1;
    add.cc.u32 %a, -1, 1;
    @%p sub.cc.u32 %b, 0, 1;
    addc.u32 %c, 0, 0;
    st.global.u32 [%out], %c;
    add.cc.u32 %a, 0, 0;
    subc.u32 %c, 0, 0;
    st.global.u32 [%out+4], %c;
    ret;"""
    kernel = Kernel(f"{HEADER}.visible .entry k(.param .u64 out)\n{{{body}\n}}\n")
    out = np.zeros((2, 2), np.uint32)
    place = kernel.arena.put(out)
    kernel.launch((1,), (2,), np.uint64(place))
    assert kernel.arena.get(place, out).tolist() == [[1, 0xFFFFFFFF], [0, 0xFFFFFFFF]]


SOURCE = r"""
template <class T> __device__ void all(const T* a, const T* b, T* out) {
  int i = threadIdx.x, n = blockDim.x;
  out[i] = a[i] / b[i];
  out[n + i] = a[i] % b[i];
  out[2 * n + i] = a[i] * b[i];
  out[3 * n + i] = a[i] - b[i];
  out[4 * n + i] = a[i] < b[i];
}
extern "C" __global__ void with_sign(const __int128* a, const __int128* b, __int128* out) { all(a, b, out); }
extern "C" __global__ void without(const unsigned __int128* a, const unsigned __int128* b, unsigned __int128* out) {
  all(a, b, out);
}
"""
PAIRS = 192


def wide(words: list[int]) -> bytes:
    return b"".join((w & (1 << 128) - 1).to_bytes(16, "little") for w in words)


def pairs(*, with_sign: bool) -> tuple[list[int], list[int]]:
    """Dividends and divisors of every length, the pair that was first seen wrong among them."""
    rng = random.Random(3)
    left, right = [152399032, 1 << 127, (1 << 128) - 1, 0], [3, (1 << 64) + 1, 1, 7]
    while len(left) < PAIRS:
        left.append(rng.getrandbits(rng.randrange(1, 129)))
        right.append(rng.getrandbits(rng.randrange(1, 129)) or 1)
    if not with_sign:
        return left, right
    kinds = [[v - (1 << 128) if v >> 127 else v for v in side] for side in (left, right)]
    for n in range(4, PAIRS):
        kinds[0][n] *= 1 if n & 1 or kinds[0][n] == -(1 << 127) else -1
        kinds[1][n] *= 1 if n & 2 or kinds[1][n] == -(1 << 127) else -1
    return kinds[0], kinds[1]


def expected(a: int, b: int) -> list[int]:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return [quotient, a - quotient * b, a * b, a - b, int(a < b)]


def run_int128(kernel: Kernel, left: list[int], right: list[int]) -> list[list[int]]:
    places = [kernel.arena.put(np.frombuffer(wide(side), np.uint8)) for side in (left, right)]
    out = np.zeros((5, PAIRS, 16), np.uint8)
    place = kernel.arena.put(out)
    kernel.launch((1,), (PAIRS,), *(np.uint64(p) for p in (*places, place)))
    got = kernel.arena.get(place, out)
    return [[int.from_bytes(cell.tobytes(), "little") for cell in row] for row in got]


def test_int128_division_as_nvcc_compiles_it() -> None:
    ptx = compile_cuda(SOURCE, "--device-int128")
    assert "addc.u32" in ptx
    for name in ("with_sign", "without"):
        left, right = pairs(with_sign=name == "with_sign")
        got = run_int128(Kernel(ptx, name), left, right)
        for n, (a, b) in enumerate(zip(left, right, strict=True)):
            want = [v & (1 << 128) - 1 for v in expected(a, b)]
            have = [row[n] for row in got]
            assert have == want, f"{a} and {b}, {name}: {have}, not {want}"
