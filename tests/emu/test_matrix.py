"""Every form of mma, wmma, ldmatrix, stmatrix and movmatrix on the device, against exact arithmetic."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptx.matrix import (
    BITS,
    Form,
    decode,
    draw,
    expand,
    expected,
    indices,
    metadata_place,
)
from ptx.test_matrix_forms import HALF, INTEGER, OTHER, SPARSE

from emu.device import Device, on_device
from emu.kernels import U64, load

HEAD = ".version 8.4\n.target sm_80\n.address_size 64\n"
Words = list[list[int]]  # of each lane


def registers(name: str, words: int, wide: bool) -> list[str]:
    return [f"%{name}{'d' if wide else ''}{n}" for n in range(words // (2 if wide else 1))]


def entry(number: int, form: Form, selector: int) -> str:
    """A kernel that reads the registers of one instruction, runs it and writes the result."""
    lines, operands, at = [], {}, 0
    for matrix in "abc":
        wide = BITS[getattr(form, matrix)] == 64
        names = registers(matrix, form.words(matrix), wide)
        operands[matrix] = "{" + ", ".join(names) + "}"
        for n, name in enumerate(names):
            lines.append(
                f"ld.global.b{64 if wide else 32} {name}, [%in+{at + n * (8 if wide else 4)}];"
            )
        at += 4 * form.words(matrix)
    wide = BITS[form.d] == 64
    results = registers("x", form.words("d"), wide)
    sparse = f", %e, {selector}" if form.sparse else ""
    lines.append(f"ld.global.b32 %e, [%in+{at}];")
    lines.append(
        f"{form.name} {{{', '.join(results)}}}, {operands['a']}, {operands['b']}, {operands['c']}{sparse};"
    )
    for n, name in enumerate(results):
        lines.append(f"st.global.b{64 if wide else 32} [%out+{n * (8 if wide else 4)}], {name};")
    body = "\n".join(lines)
    return f"""
.visible .entry k{number}(.param .u64 in, .param .u64 out)
{{
.reg .b64 %in, %out, %t; .reg .b32 %i, %e;
.reg .b32 %a<16>, %b<16>, %c<16>, %x<16>; .reg .b64 %ad<8>, %bd<8>, %cd<8>, %xd<8>;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;
mul.wide.u32 %t, %i, 256; add.u64 %in, %in, %t; add.u64 %out, %out, %t;
{body}
ret;
}}
"""


def random_words(form: Form, matrix: str, rng: np.random.Generator) -> Words:
    kind, count = getattr(form, matrix), form.elements(matrix)
    bits = BITS[kind]
    out = []
    for _ in range(32):
        whole = sum(v << n * bits for n, v in enumerate(draw(rng, kind, count)))
        out.append([whole >> 32 * n & 0xFFFFFFFF for n in range(form.words(matrix))])
    return out


class Case:
    """One instruction with random matrices."""

    def __init__(self, name: str, seed: int) -> None:
        self.form = form = Form(name)
        rng = np.random.default_rng(seed)
        self.words = {matrix: random_words(form, matrix, rng) for matrix in "abc"}
        if form.d == "s32" and seed % 3 == 0:  # near the ends of the range
            for lane in self.words["c"]:
                lane[:] = [int(rng.choice([0x7FFFFFF0, 0x80000010])) for _ in lane]
        self.metadata = [0] * 32
        self.where: dict[tuple[int, int], int] = {}
        self.selector = 0
        if form.sparse:
            self._choose(rng)

    def _choose(self, rng: np.random.Generator) -> None:
        form = self.form
        width = {32: 8, 4: 32}.get(BITS[form.a], 16)  # elements along k for each thread of a row
        self.selector = int(rng.integers(4 // (form.k // width)))
        self.metadata = [int(v) for v in rng.integers(0, 1 << 32, 32)]  # most of it is not used
        self.where = indices(form, rng)
        for (row, column), bits in self.where.items():
            lane, low = metadata_place(form, row, column, self.selector)
            self.metadata[lane] = self.metadata[lane] & ~(15 << low) | bits << low

    def input(self) -> bytes:
        rows = []
        for lane in range(32):
            row = [w for matrix in "abc" for w in self.words[matrix][lane]] + [self.metadata[lane]]
            rows.append(struct.pack("<64I", *row, *[0] * (64 - len(row))))
        return b"".join(rows)

    def check(self, data: bytes) -> None:
        form = self.form
        words = struct.unpack("<2048I", data)
        count = form.words("d")
        got = form.gather("d", [list(words[64 * n : 64 * n + count]) for n in range(32)])
        a, b, c = (form.gather(matrix, self.words[matrix]) for matrix in "abc")
        if form.sparse:
            a = expand(form, a, self.where)
        checks = expected(form, a, b, c)
        assert checks.keys() == got.keys(), form.name
        for place, check in checks.items():
            check(got[place])


def run_all(cuda: Device, names: list[str], *, rounds: int = 1) -> None:
    cuda.open()
    given, out = cuda.alloc(8192), cuda.alloc(8192)
    cases = [Case(name, n * rounds + r) for n, name in enumerate(names) for r in range(rounds)]
    text = HEAD + "".join(entry(n, case.form, case.selector) for n, case in enumerate(cases))
    module = load(cuda, text)
    for number, case in enumerate(cases):
        cuda.write(given, case.input())
        cuda("cuMemsetD8_v2", out, 0xEE, 8192)
        cuda.launch(cuda.function(module, f"k{number}"), [U64(given), U64(out)], block=32)
        case.check(cuda.read(out, 8192))


@on_device()
def test_half_precision(cuda: Device) -> None:
    run_all(cuda, HALF)


@on_device()
def test_other_floating_point_types(cuda: Device) -> None:
    run_all(cuda, OTHER)


@on_device()
def test_integers_and_bits(cuda: Device) -> None:
    run_all(cuda, INTEGER)


@pytest.mark.full
@on_device()
def test_sparse_matrices(cuda: Device) -> None:
    run_all(cuda, SPARSE)


def one(cuda: Device, name: str, words: dict[str, Words]) -> list[int]:
    """Runs one instruction; returns the bits of all elements of D by row and column."""
    case = Case(name, 0)
    case.words |= words
    cuda.open()
    given, out = cuda.alloc(8192), cuda.alloc(8192)
    cuda.write(given, case.input())
    module = load(cuda, HEAD + entry(0, case.form, 0))
    cuda.launch(cuda.function(module, "k0"), [U64(given), U64(out)], block=32)
    data = struct.unpack("<2048I", cuda.read(out, 8192))
    count = case.form.words("d")
    found = case.form.gather("d", [list(data[64 * n : 64 * n + count]) for n in range(32)])
    return [found[key] for key in sorted(found)]


@on_device()
def test_infinity_and_nan_reach_only_their_elements(cuda: Device) -> None:
    """Row 0 of A has infinity, column 1 of B zero in its place, and C row 2 a NaN."""
    name = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    a = [[0x7C003C00 if lane == 0 else 0x3C003C00, 0x3C003C00] for lane in range(32)]
    b = [[0x00003C00 if lane == 4 else 0x3C003C00] for lane in range(32)]
    c = [[0xFFC12345 if lane == 8 else 0, 0, 0, 0] for lane in range(32)]
    got = one(cuda, name, {"a": a, "b": b, "c": c})
    infinity, nan = 0x7F800000, 0x7FFFFFFF
    assert got[:8] == [infinity, nan, *[infinity] * 6]
    assert got[16] == nan
    assert got[17] == struct.unpack("<I", struct.pack("<f", 7.0))[0]
    assert decode(got[8], "f32") == 8
