"""wmma, ldmatrix, stmatrix and movmatrix on the device, and warps that do not all take part."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptx.matrix import BITS, SHAPE, Number, chain, check_float, counted, decode, draw, whole
from ptx.test_matrix_forms import PRODUCTS, product_name

from emu.device import Device, expect, on_device
from emu.kernels import U64, load

HEAD = ".version 8.4\n.target sm_80\n.address_size 64\n"
SUB_BYTE = ("s4", "u4", "b1")
REGISTERS = {
    ("f16", "ab"): 8, ("f16", "cd"): 4, ("f32", "cd"): 8, ("s32", "cd"): 8, ("tf32", "ab"): 4,
    ("f64", "ab"): 1, ("f64", "cd"): 2, ("s4", "ab"): 1, ("u4", "ab"): 1, ("b1", "ab"): 1,
}  # fmt: skip


def count(kind: str, matrix: str, shape: str) -> int:
    """The registers of a fragment, by the manual's tables."""
    if kind in ("s8", "u8", "bf16") and matrix in "ab":
        rows = {"m16n16k16": 16, "m8n32k16": 8, "m32n8k16": 32}[shape]
        rows = rows if matrix == "a" else 256 // rows
        return rows // 8 if kind != "bf16" else rows // 4
    if kind == "s32" and shape.startswith("m8n8"):
        return 2
    return REGISTERS[kind, "ab" if matrix in "ab" else "cd"]


class Matrix:
    """A matrix in memory with a leading dimension."""

    def __init__(
        self, kind: str, rows: int, columns: int, layout: str, pad: int, seed: int
    ) -> None:
        self.kind, self.rows, self.columns, self.layout = kind, rows, columns, layout
        self.stride = (columns if layout == "row" else rows) + pad
        rng = np.random.default_rng(seed)
        lines = rows if layout == "row" else columns
        self.bits = draw(rng, kind, lines * self.stride)

    def raw(self) -> bytes:
        size = BITS[self.kind]
        whole_ = sum(v << n * size for n, v in enumerate(self.bits))
        return whole_.to_bytes((len(self.bits) * size + 7) // 8, "little")

    def at(self, row: int, column: int) -> int:
        line, place = (row, column) if self.layout == "row" else (column, row)
        return self.bits[line * self.stride + place]

    def value(self, row: int, column: int) -> Number:
        return decode(self.at(row, column), self.kind)

    def write(self, raw: bytes) -> None:
        size, all_ = BITS[self.kind], int.from_bytes(raw, "little")
        self.bits = [all_ >> n * size & (1 << size) - 1 for n in range(len(self.bits))]


def names(prefix: str, kind: str, n: int) -> str:
    return "{" + ", ".join(f"%{prefix}{'d' if kind == 'f64' else ''}{i}" for i in range(n)) + "}"


def kernel(
    number: int, case: tuple[str, str, str, str], matrices: list[Matrix], extra: str, space: str
) -> str:
    """wmma.load of A, B and C, the product, and wmma.store of D. Copies to shared memory first."""
    shape, a, d, c = case
    am, bm, _, dm = matrices
    fragments = [names(p, k, count(k, p, shape)) for p, k in zip("abc", (a, a, c), strict=True)]
    fragments.append(names("x", d, count(d, "d", shape)))
    where = f".{space}" if space else ""
    lines = []
    for n, (letter, matrix) in enumerate(zip("abc", matrices, strict=False)):
        stride = (
            ""
            if matrix.stride in (0, matrix.columns if matrix.layout == "row" else matrix.rows)
            else f", {matrix.stride}"
        )
        lines.append(
            f"wmma.load.{letter}.sync.aligned.{matrix.layout}.{shape}{where}.{matrix.kind} {fragments[n]}, [%m{n}]{stride};"
        )
    product = product_name(shape, a, d, c, f"{am.layout}.{bm.layout}", extra)
    lines.append(f"{product} {fragments[3]}, {fragments[0]}, {fragments[1]}, {fragments[2]};")
    lines.append(
        f"wmma.store.d.sync.aligned.{dm.layout}.{shape}.global.{d} [%m3], {fragments[3]}, %stride;"
    )
    return f"""
.visible .entry k{number}(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
.reg .b64 %m<4>; .reg .b32 %stride, %a<8>, %b<8>, %c<8>, %x<8>; .reg .b64 %ad<8>, %bd<8>, %cd<8>, %xd<8>;
ld.param.u64 %m0, [a]; ld.param.u64 %m1, [b]; ld.param.u64 %m2, [c]; ld.param.u64 %m3, [d];
mov.u32 %stride, {dm.stride};
{chr(10).join(lines)}
ret;
}}
"""


def check(case: tuple[str, str, str, str], matrices: list[Matrix], extra: str) -> None:
    shape, a, d, _ = case
    am, bm, cm, dm = matrices
    found = SHAPE.fullmatch(shape)
    assert found is not None
    m, n, k = map(int, found.groups())
    av = [[am.value(i, p) for p in range(k)] for i in range(m)]
    bv = [[bm.value(p, j) for p in range(k)] for j in range(n)]
    for i in range(m):
        for j in range(n):
            pairs = list(zip(av[i], bv[j], strict=True))
            got, c = dm.value(i, j), cm.value(i, j)
            where = f"{case} {extra} ({i}, {j})"
            if a == "b1":
                assert got == counted(c, pairs, extra), where
            elif d == "s32":
                assert got == whole(c, pairs, saturates=extra == "satfinite"), where
            elif d == "f64":
                assert got == chain(c, pairs, extra or "rn"), where
            else:
                check_float(where, d, got, c, pairs)


def extras(a: str) -> list[str]:
    if a == "b1":
        return ["xor", "and"]
    if a == "f64":
        return ["", "rn", "rz", "rm", "rp"]
    return ["", "satfinite"] if a in ("s8", "u8", "s4", "u4") else [""]


def run_products(cuda: Device, cases: list[tuple[str, str, str, str]]) -> None:
    cuda.open()
    todo = []
    for seed, case in enumerate(cases):
        shape, a, d, c = case
        found = SHAPE.fullmatch(shape)
        assert found is not None
        m, n, k = map(int, found.groups())
        layouts = (
            [("row", "col")]
            if a in SUB_BYTE
            else [(x, y) for x in ("row", "col") for y in ("row", "col")]
        )
        for turn, (la, lb) in enumerate(layouts):
            for extra in extras(a):
                pad = (0, 16)[turn % 2] if a not in SUB_BYTE else 128 * (seed % 2)
                c_kind = "f16" if c == "f16" else c
                matrices = [
                    Matrix(a, m, k, la, pad, seed),
                    Matrix(a, k, n, lb, pad, seed + 100),
                    Matrix(c_kind, m, n, ("row", "col")[turn // 2 % 2], 4 * (turn % 2), seed + 200),
                    Matrix(d, m, n, ("col", "row")[turn % 2], 8 * (turn // 2), seed + 300),
                ]
                if c == "f32" and d == "f16":
                    half = np.array(
                        draw(np.random.default_rng(seed), "f16", len(matrices[2].bits)), np.uint16
                    )
                    matrices[2].bits = [
                        int(w) for w in half.view(np.float16).astype(np.float32).view(np.uint32)
                    ]
                todo.append((case, matrices, extra, "" if turn == 1 else "global"))
    text = HEAD + "".join(kernel(i, *entry) for i, entry in enumerate(todo))
    module = load(cuda, text)
    places = [cuda.alloc(65536) for _ in range(4)]
    for number, (case, matrices, extra, _) in enumerate(todo):
        for place, matrix in zip(places, matrices, strict=True):
            cuda.write(place, matrix.raw())
        cuda.launch(cuda.function(module, f"k{number}"), [U64(p) for p in places], block=32)
        matrices[3].write(cuda.read(places[3], len(matrices[3].raw())))
        check(case, matrices, extra)


@on_device()
def test_products_of_half_precision(cuda: Device) -> None:
    run_products(cuda, [p for p in PRODUCTS if p[1] == "f16"])


@pytest.mark.full
@on_device()
def test_products_of_other_types(cuda: Device) -> None:
    run_products(cuda, [p for p in PRODUCTS if p[1] != "f16"])


ROWS = """
.visible .entry rows(.param .u64 in, .param .u64 out)
{
.reg .b64 %in, %out, %t, %g; .reg .b32 %i, %s, %q, %r<8>; .reg .pred %p;
.shared .align 16 .b8 box[2048];
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;
mul.wide.u32 %t, %i, 16; add.u64 %in, %in, %t; ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%in];
mov.u32 %s, box; shl.b32 %q, %i, 4; add.u32 %s, %s, %q; st.shared.v4.b32 [%s], {%r0, %r1, %r2, %r3};
bar.warp.sync -1;
setp.ge.u32 %p, %i, USED; @%p mov.u32 %s, 0xfffffff0;
BODY
mul.wide.u32 %t, %i, 16; add.u64 %out, %out, %t; st.global.v4.b32 [%out], {%r4, %r5, %r6, %r7};
ret;
}
"""


def halves(words: list[int], count: int) -> np.ndarray:
    """The matrices in a warp's registers, by the manual's figure: thread t has elements 2 * (t % 4)
    and the next one of row t / 4.
    """
    out = np.zeros((count, 8, 8), np.uint16)
    for lane in range(32):
        for n in range(count):
            word = words[lane * 4 + n]
            out[n, lane // 4, lane % 4 * 2] = word & 0xFFFF
            out[n, lane // 4, lane % 4 * 2 + 1] = word >> 16
    return out


@on_device()
def test_rows_of_matrices_in_shared_memory(cuda: Device) -> None:
    cuda.open()
    rng = np.random.default_rng(4)
    data = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    stored = data.view(np.uint16).reshape(4, 8, 8)  # row n of matrix m is what thread 8 * m + n has
    given, out = cuda.alloc(512), cuda.alloc(512)
    cuda.write(given, data.tobytes())
    for count_ in (1, 2, 4):
        for turn in ("", ".trans"):
            for space in (".shared", ""):
                names_ = ", ".join(f"%r{4 + n}" for n in range(count_))
                back = ", ".join(f"%r{n}" for n in range(count_))
                generic = "cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;"
                base = "%s" if space else "%g"
                load_ = (
                    f"ldmatrix.sync.aligned.m8n8.x{count_}{turn}{space}.b16 {{{names_}}}, [{base}];"
                )
                text = ROWS.replace("BODY", generic + load_).replace("USED", str(8 * count_))
                cuda("cuMemsetD8_v2", out, 0, 512)
                cuda.launch(
                    cuda.function(load(cuda, HEAD + text), "rows"), [U64(given), U64(out)], block=32
                )
                got = halves(list(struct.unpack("<128I", cuda.read(out, 512))), count_)
                want = stored[:count_].transpose(0, 2, 1) if turn else stored[:count_]
                np.testing.assert_array_equal(got, want)
                store = f"stmatrix.sync.aligned.m8n8.x{count_}{turn}{space}.b16 [{base}], {{{back}}}; bar.warp.sync -1;"
                reload = "mov.u32 %s, box; add.u32 %s, %s, %q; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%s];"
                text = ROWS.replace("BODY", generic + store + reload).replace(
                    "USED", str(8 * count_)
                )
                cuda.launch(
                    cuda.function(load(cuda, HEAD + text), "rows"), [U64(given), U64(out)], block=32
                )
                got = np.frombuffer(cuda.read(out, 512), np.uint16).reshape(4, 8, 8)
                held = halves(data.tolist(), count_)
                want = held.transpose(0, 2, 1) if turn else held
                np.testing.assert_array_equal(got[:count_], want)
                np.testing.assert_array_equal(got[count_:], stored[count_:])
    text = ROWS.replace("BODY", "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r0;").replace(
        "USED", "32"
    )
    cuda.launch(cuda.function(load(cuda, HEAD + text), "rows"), [U64(given), U64(out)], block=32)
    got = halves(list(struct.unpack("<128I", cuda.read(out, 512))), 1)
    np.testing.assert_array_equal(got[0], halves(data.tolist(), 1)[0].T)


SHARED = """
.visible .entry k(.param .u64 in, .param .u64 out)
{
.reg .b64 %in, %out, %t; .reg .b32 %i, %s, %v, %r<8>; .shared .align 16 .b8 box[2304];
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mov.u32 %s, box;
mul.wide.u32 %t, %i, 4; add.u64 %in, %in, %t; shl.b32 %v, %i, 2; add.u32 %s, %s, %v; add.u32 %s, %s, 256;
LOOP
bar.warp.sync -1;
wmma.load.c.sync.aligned.row.m16n16k16SPACE.s32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [FROM], 32;
wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%out], {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};
ret;
}
"""


@on_device()
def test_a_matrix_in_shared_memory(cuda: Device) -> None:
    """16 rows of 32 words, of which the first 16 are loaded, and stored column by column."""
    cuda.open()
    data = np.random.default_rng(2).integers(0, 1 << 32, (16, 32), dtype=np.uint32)
    given, out = cuda.alloc(2048), cuda.alloc(1024)
    cuda.write(given, data.tobytes())
    fill = "".join(
        f"ld.global.b32 %v, [%in+{128 * n}]; st.shared.b32 [%s+{128 * n}], %v;" for n in range(16)
    )
    generic = "mov.u64 %t, box; cvta.shared.u64 %t, %t; add.u64 %t, %t, 256;"
    for space, where, before in ((".shared", "box+256", ""), ("", "%t", generic)):
        text = SHARED.replace("LOOP", fill + before).replace("SPACE", space).replace("FROM", where)
        cuda.launch(cuda.function(load(cuda, HEAD + text), "k"), [U64(given), U64(out)], block=32)
        got = np.frombuffer(cuda.read(out, 1024), np.uint32).reshape(16, 16)
        np.testing.assert_array_equal(got.T, data[:, :16])


MMA = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3}, {%r4}, {%r0, %r1};"
ALONE = """
.visible .entry k(.param .u64 in, .param .u64 out)
{ .reg .b32 %i, %r<8>; .reg .pred %p; .reg .b64 %a; mov.u32 %i, %tid.x; ld.param.u64 %a, [in]; BODY ret; }
"""


def ends_with(cuda: Device, result: int, body: str, threads: int = 32) -> None:
    cuda.open()
    module = load(cuda, HEAD + ALONE.replace("BODY", body))
    cuda.launch(cuda.function(module, "k"), [U64(0), U64(0)], block=threads)
    expect(result, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_a_warp_with_fewer_than_32_threads_ends_the_launch(cuda: Device) -> None:
    ends_with(cuda, 719, MMA, threads=48)


@on_device()
def test_an_exited_thread_ends_the_launch(cuda: Device) -> None:
    ends_with(cuda, 719, f"setp.eq.u32 %p, %i, 3; @%p exit; {MMA}")


@on_device()
def test_threads_at_two_instructions_of_one_shape_are_a_deadlock(cuda: Device) -> None:
    body = f"setp.lt.u32 %p, %i, 16; @%p bra one; {MMA} bra done; one: {MMA} done:"
    ends_with(cuda, 702, body)


@on_device()
def test_threads_at_a_barrier_and_at_a_product_are_a_deadlock(cuda: Device) -> None:
    body = f"setp.lt.u32 %p, %i, 16; @%p bra one; {MMA} bra done; one: bar.warp.sync -1; done:"
    ends_with(cuda, 702, body)


@on_device()
def test_a_matrix_outside_memory_is_an_illegal_address(cuda: Device) -> None:
    body = "wmma.load.a.sync.aligned.row.m16n16k8.tf32 {%r0, %r1, %r2, %r3}, [%a], 64;"
    ends_with(cuda, 700, body)


@on_device()
def test_a_row_outside_the_shared_window_is_an_illegal_address(cuda: Device) -> None:
    body = "mov.u32 %r1, 0x7ffffff0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1];"
    ends_with(cuda, 700, body)


@on_device()
def test_a_matrix_outside_the_shared_window_is_an_illegal_address(cuda: Device) -> None:
    body = """.shared .b32 box[8]; mov.u32 %r5, box;
    wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32 {%r0, %r1, %r2, %r3}, [%r5], 1000000;"""
    ends_with(cuda, 700, body)
