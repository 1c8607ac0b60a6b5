"""mma as the PTX manual describes it: fragments by the manual's formulas, and exact arithmetic.

Nothing here is shared with the lowering or with the device.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

Place = Callable[[int, int], "tuple[int, int]"]
Number = Fraction | int
BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8,
    "u8": 8, "s8": 8, "u4": 4, "s4": 4, "b1": 1, "s32": 32,
}  # fmt: skip
SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def _a16(bits: int, depth: int, lane: int, i: int) -> tuple[int, int]:
    """The rows and columns of A for m16n8: the manual's cases, by shape and element."""
    group, thread = lane >> 2, lane % 4
    if bits == 64:
        column = {4: 0, 8: i // 2 * 4, 16: i * 2 if i % 2 == 0 else i * 2 - 2}[depth]
        return group + 8 * (i % 2), column + thread
    if bits == 32:
        return (group if i in (0, 2) else group + 8), (thread if i < 2 else thread + 4)
    if bits == 16:
        upper = 0 <= i < 2 or 4 <= i < 6
        return (group if upper else group + 8), thread * 2 + (i & 1) + (8 if i >= 4 else 0)
    each = 32 // bits
    upper = 0 <= i < each or 2 * each <= i < 3 * each
    column = thread * each + i % each + (4 * each if i >= 2 * each else 0)
    return (group if upper else group + 8), column


def _a8(bits: int, lane: int, i: int) -> tuple[int, int]:
    return lane >> 2, lane % 4 * max(32 // bits, 1) + i


def _b(bits: int, lane: int, i: int) -> tuple[int, int]:
    thread, column = lane % 4, lane >> 2
    if bits >= 32:
        return thread + 4 * i, column
    each = 32 // bits
    return thread * each + i % each + 4 * each * (i // each), column


def _c(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def decode(raw: int, kind: str) -> Number:
    """The exact value of a finite element."""
    if kind in ("u8", "u4", "b1"):
        return raw
    if kind in ("s8", "s4", "s32"):
        return signed(raw, BITS[kind])
    if kind == "f64":
        return Fraction(struct.unpack("<d", struct.pack("<Q", raw))[0])
    if kind in ("f32", "tf32"):
        raw &= 0xFFFFFFFF if kind == "f32" else 0xFFFFE000
        return Fraction(struct.unpack("<f", struct.pack("<I", raw))[0])
    if kind == "bf16":
        return decode(raw << 16, "f32")
    if kind == "e4m3":
        exponent, mantissa = raw >> 3 & 15, raw & 7
        size = (
            Fraction(mantissa, 512)
            if not exponent
            else Fraction(8 + mantissa) * Fraction(2) ** (exponent - 10)
        )
        return -size if raw >> 7 else size
    return Fraction(float(np.uint16(raw << 8 if kind == "e5m2" else raw).view(np.float16)))


def draw(rng: np.random.Generator, kind: str, count: int) -> list[int]:
    """Random finite elements as bits; sums of their products do not overflow the type."""
    if kind in ("u8", "s8", "u4", "s4", "b1"):
        return [int(v) for v in rng.integers(0, 1 << BITS[kind], count)]
    if kind == "s32":
        return [int(v) for v in rng.integers(0, 1 << 32, count)]
    if kind == "e4m3":
        return [int(v) & 0xBF for v in rng.integers(0, 256, count)]
    if kind == "e5m2":
        return [int(v) & 0xBF for v in rng.integers(0, 256, count)]
    values = rng.normal(size=count) * 2.0 ** rng.integers(-4, 4, count)
    if kind == "f16":
        words = values.astype(np.float16).view(np.uint16)
        tiny = rng.random(count) < 0.1
        return [int(w) & 0x83FF if t else int(w) for w, t in zip(words, tiny, strict=True)]
    if kind == "f64":
        return [int(v) for v in values.view(np.uint64)]
    words = (values * 2.0 ** rng.integers(-20, 20, count)).astype(np.float32).view(np.uint32)
    return [int(w) >> 16 if kind == "bf16" else int(w) for w in words]


class Form:
    """One mma instruction: its matrices, and where each thread has its elements."""

    def __init__(self, name: str) -> None:
        self.name = name
        parts = name.split(".")
        at = next(n for n, part in enumerate(parts) if SHAPE.fullmatch(part))
        found = SHAPE.fullmatch(parts[at])
        assert found is not None
        self.m, self.n, self.k = map(int, found.groups())
        self.sparse = parts[1].startswith("sp")
        self.layouts = parts[at + 1 : at + 3]
        types = [p for p in parts[at + 3 :] if p in BITS]
        self.d, self.a, self.b, self.c = types
        self.saturates = "satfinite" in parts
        self.bit_operation = parts[-2] if parts[-1] == "popc" else ""
        self.quads = parts[at] == "m8n8k4" and self.a == "f16"
        self.stored = self.k // 2 if self.sparse else self.k
        self.products = 4 if self.quads else 1

    def elements(self, matrix: str) -> int:
        """How many elements of a matrix each thread has."""
        size = {"a": self.m * self.stored, "b": self.k * self.n}.get(matrix, self.m * self.n)
        return size * self.products // 32

    def words(self, matrix: str) -> int:
        return max(self.elements(matrix) * BITS[getattr(self, matrix)] // 32, 1)

    def place(self, matrix: str, lane: int, i: int) -> tuple[int, int]:
        if self.quads:
            return self._quad(matrix, lane, i)
        if matrix == "a":
            bits = BITS[self.a]
            return _a16(bits, self.stored, lane, i) if self.m == 16 else _a8(bits, lane, i)
        return _b(BITS[self.b], lane, i) if matrix == "b" else _c(lane, i)

    def _quad(self, matrix: str, lane: int, i: int) -> tuple[int, int]:
        low, high = lane % 4, 0 if lane < 16 else 4
        if matrix == "a":
            return (low + high, i) if self.layouts[0] == "row" else (i % 4 + high, low)
        if matrix == "b":
            return (low, i + high) if self.layouts[1] == "row" else (i, low + high)
        if getattr(self, matrix) == "f16":
            return low + high, i
        return (lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)

    def product(self, lane: int) -> int:
        """The number of the product that a thread takes part in."""
        return lane % 16 // 4 if self.quads else 0

    def gather(
        self, matrix: str, registers: Sequence[Sequence[int]]
    ) -> dict[tuple[int, int, int], int]:
        """Elements by product, row and column."""
        kind = getattr(self, matrix)
        out = {}
        for lane, words in enumerate(registers):
            whole = sum(word << 32 * n for n, word in enumerate(words))
            for i in range(self.elements(matrix)):
                bits = whole >> i * BITS[kind] & (1 << BITS[kind]) - 1
                out[(self.product(lane), *self.place(matrix, lane, i))] = bits
        return out


def metadata_place(form: Form, row: int, column: int, selector: int) -> tuple[int, int]:
    """The lane and the lowest bit of the four bits for the chunk that begins at a column: the
    manual's figures of the metadata.
    """
    group = row % 8 * 4
    size = BITS[form.a]
    if size >= 16:
        columns = 8 if size == 32 else 16  # of a thread
        chunk = column % columns // (2 if size == 32 else 4)
        if form.k == columns:
            return group + selector, 4 * chunk + (16 if row >= 8 else 0)
        return group + 2 * selector + column // columns, 4 * chunk + (16 if row >= 8 else 0)
    columns = 32 if size == 8 else 64
    chunk = column % columns // (4 if size == 8 else 8)
    first = 2 * selector if form.k == columns else column // columns * 2
    return group + first + (1 if row >= 8 else 0), 4 * chunk


def indices(form: Form, rng: np.random.Generator) -> dict[tuple[int, int], int]:
    """Random metadata: four bits by row and the first column of the chunk."""
    width = {32: 2, 4: 8}.get(BITS[form.a], 4)
    valid = [0b0100, 0b1110] if width == 2 else [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]
    return {
        (row, column): valid[rng.integers(len(valid))]
        for row in range(16)
        for column in range(0, form.k, width)
    }


def expand(
    form: Form, stored: dict[tuple[int, int, int], int], where: dict[tuple[int, int], int]
) -> dict[tuple[int, int, int], int]:
    """The elements of a sparse A by row and column of the whole matrix."""
    out = {}
    for (row, column), bits in where.items():
        if BITS[form.a] == 32:
            out[(0, row, column + (bits >> 1 & 1))] = stored[(0, row, column // 2)]
            continue
        pairs = 2 if BITS[form.a] == 4 else 1
        for half in range(2):
            index = bits >> 2 * half & 3
            for e in range(pairs):
                out[(0, row, column + index * pairs + e)] = stored[
                    (0, row, column // 2 + half * pairs + e)
                ]
    return out


def rounded(value: Fraction, mode: str) -> float:
    """A rational number as a double."""
    near = float(value)
    exact = Fraction(near)
    if mode == "rn" or exact == value:
        return near
    up = mode == "rp" or (mode == "rz" and value < 0)
    if up:
        return near if exact > value else math.nextafter(near, math.inf)
    return near if exact < value else math.nextafter(near, -math.inf)


def chain(c: Number, pairs: Sequence[tuple[Number, Number]], mode: str = "rn") -> Fraction:
    """Fused multiply-adds of doubles in order."""
    total = Fraction(c)
    for a, b in pairs:
        total = Fraction(rounded(total + Fraction(a) * Fraction(b), mode))
    return total


def whole(c: int, pairs: Sequence[tuple[int, int]], *, saturates: bool) -> int:
    total = c + sum(a * b for a, b in pairs)
    if saturates:
        return max(-(1 << 31), min((1 << 31) - 1, total))
    return signed(total & 0xFFFFFFFF, 32)


def counted(c: int, pairs: Sequence[tuple[int, int]], operation: str) -> int:
    both = sum((a & b) if operation == "and" else (a ^ b) for a, b in pairs)
    return signed((c + both) & 0xFFFFFFFF, 32)


def check_float(
    form: str, kind: str, got: Number, c: Number, pairs: Sequence[tuple[Number, Number]]
) -> None:
    """The result is the exact sum, rounded once from a sum in double."""
    exact = c + sum((a * b for a, b in pairs), Fraction(0))
    size = abs(c) + sum((abs(a * b) for a, b in pairs), Fraction(0))
    digits, least = (11, -24) if kind == "f16" else (24, -149)
    exponent = math.frexp(float(got))[1] if got else least
    ulp = Fraction(2) ** max(exponent - digits, least)
    bound = ulp / 2 + size * (len(pairs) + 1) * Fraction(1, 1 << 53)
    assert abs(Fraction(got) - exact) <= bound, f"{form}: {float(got)}, not {float(exact)}"


def expected(
    form: Form, a: dict, b: dict, c: dict
) -> dict[tuple[int, int, int], Callable[[int], None]]:  # type: ignore[type-arg]
    """For each element of D a check of its bits."""
    out: dict[tuple[int, int, int], Callable[[int], None]] = {}
    av = {key: decode(bits, form.a) for key, bits in a.items()}
    bv = {key: decode(bits, form.b) for key, bits in b.items()}
    for (p, row, column), bits in c.items():
        pairs = [(av[p, row, k], bv[p, k, column]) for k in range(form.k) if (p, row, k) in av]
        out[p, row, column] = partial(_check, form, decode(bits, form.c), pairs)
    return out


def _check(form: Form, c: Number, pairs: list[tuple[Number, Number]], bits: int) -> None:
    if form.d == "f16" and bits & 0x7FFF == 0x7C00:
        exact = c + sum((x * y for x, y in pairs), Fraction(0))
        assert (-exact if bits >> 15 else exact) >= 65519, form.name
        return
    got = decode(bits, form.d)
    if form.bit_operation:
        assert got == counted(int(c), pairs, form.bit_operation), form.name  # type: ignore[arg-type]
    elif form.d == "s32":
        assert got == whole(int(c), pairs, saturates=form.saturates), form.name  # type: ignore[arg-type]
    elif form.d == "f64":
        assert got == chain(c, pairs), form.name
    else:
        check_float(form.name, form.d, got, c, pairs)
