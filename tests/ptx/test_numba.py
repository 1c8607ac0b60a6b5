"""Kernels as numba-cuda compiles them, run in the reference runner and compared with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from numba import cuda, float32, float64, int32, uint32
from ptx.harness import Kernel

Array = npt.NDArray[Any]


def compile_kernel(function: Callable[..., None], signature: str) -> Kernel:
    """numba's own PTX for a signature such as `f4[:], i4`."""
    arguments = numba.core.sigutils.normalize_signature(f"void({signature})")[0]
    ptx, _ = cuda.compile_ptx(function, arguments, cc=(8, 0))
    return Kernel(ptx)


def run(
    kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any
) -> list[Array]:
    """Launches with numba's array layout; the arrays as the kernel left them."""
    packed: list[Any] = []
    arrays: list[tuple[int, Array]] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            address = kernel.arena.put(value)
            arrays.append((address, value))
            packed += [0, 0, value.size, value.itemsize, address, *value.shape, *value.strides]
        else:
            packed.append(value)
    kernel.launch(grid, block, *[np.uint64(v) if isinstance(v, int) else v for v in packed])
    return [kernel.arena.get(address, value) for address, value in arrays]


def floats(*shape: int, seed: int = 0, kind: str = "f4") -> Array:
    return np.random.default_rng(seed).random(shape).astype(kind)


def test_saxpy() -> None:
    def saxpy(a: Any, x: Any, y: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a * x[i] + y[i]

    x, y = floats(1000), floats(1000, seed=1)
    out = run(
        compile_kernel(saxpy, "f4, f4[:], f4[:], f4[:]"), (4,), (256,), np.float32(2.5), x, y, x * 0
    )[2]
    np.testing.assert_allclose(out, np.float32(2.5) * x + y, rtol=1e-6)


def test_grid_stride_reduction_with_shared_memory() -> None:
    def reduce(x: Any, out: Any) -> None:
        part = cuda.shared.array(128, float32)
        t = cuda.threadIdx.x
        total = float32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total += x[i]
        part[t] = total
        cuda.syncthreads()
        k = 64
        while k > 0:
            if t < k:
                part[t] += part[t + k]
            cuda.syncthreads()
            k //= 2
        if t == 0:
            cuda.atomic.add(out, 0, part[0])

    kernel = compile_kernel(reduce, "f4[:], f4[:]")
    assert (kernel.lowered.kind, kernel.lowered.flags) == (1, 1)
    x = floats(50_000)
    out = run(kernel, (4,), (128,), x, np.zeros(1, "f4"))[1]
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)


def test_tiled_matrix_product() -> None:
    def matmul(a: Any, b: Any, c: Any) -> None:
        sa = cuda.shared.array((8, 8), float32)
        sb = cuda.shared.array((8, 8), float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        total = float32(0)
        for i in range((a.shape[1] + 7) // 8):
            sa[ty, tx] = 0
            sb[ty, tx] = 0
            if y < a.shape[0] and tx + i * 8 < a.shape[1]:
                sa[ty, tx] = a[y, tx + i * 8]
            if x < b.shape[1] and ty + i * 8 < b.shape[0]:
                sb[ty, tx] = b[ty + i * 8, x]
            cuda.syncthreads()
            for j in range(8):
                total += sa[ty, j] * sb[j, tx]
            cuda.syncthreads()
        if y < c.shape[0] and x < c.shape[1]:
            c[y, x] = total

    a, b = floats(30, 21), floats(21, 37, seed=3)
    kernel = compile_kernel(matmul, "f4[:,:], f4[:,:], f4[:,:]")
    out = run(kernel, (5, 4), (8, 8), a, b, np.zeros((30, 37), "f4"))[2]
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_histogram_with_shared_and_global_atomics() -> None:
    def histogram(x: Any, bins: Any) -> None:
        local = cuda.shared.array(16, int32)
        t = cuda.threadIdx.x
        if t < 16:
            local[t] = 0
        cuda.syncthreads()
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            cuda.atomic.add(local, x[i] % 16, 1)
        cuda.syncthreads()
        if t < 16:
            cuda.atomic.add(bins, t, local[t])

    x = np.random.default_rng(5).integers(0, 1000, 5000).astype("i4")
    out = run(compile_kernel(histogram, "i4[:], i4[:]"), (3,), (64,), x, np.zeros(16, "i4"))[1]
    np.testing.assert_array_equal(out, np.bincount(x % 16, minlength=16))


def test_shuffle_reduction() -> None:
    def shuffle(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        value = x[i] if i < x.size else float32(0)
        offset = 16
        while offset > 0:
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
            offset //= 2
        if cuda.laneid == 0:
            cuda.atomic.add(out, 0, value)

    x = floats(1000)
    out = run(compile_kernel(shuffle, "f4[:], f4[:]"), (4,), (256,), x, np.zeros(1, "f4"))[1]
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)


def test_votes_and_match() -> None:
    def votes(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        out[i, 0] = cuda.ballot_sync(0xFFFFFFFF, x[i] > 3)
        out[i, 1] = cuda.all_sync(0xFFFFFFFF, x[i] >= 0)
        out[i, 2] = cuda.any_sync(0xFFFFFFFF, x[i] > 5)
        out[i, 3] = cuda.match_any_sync(0xFFFFFFFF, x[i])
        out[i, 4] = cuda.eq_sync(0xFFFFFFFF, x[i] > 100)
        out[i, 5] = cuda.activemask()

    x = np.random.default_rng(2).integers(0, 7, 64).astype("i4")
    out = run(compile_kernel(votes, "i4[:], u4[:,:]"), (1,), (64,), x, np.zeros((64, 6), "u4"))[1]
    for warp in (x[:32], x[32:]):
        rows = out[:32] if warp is x[:32] or np.shares_memory(warp, x[:32]) else out[32:]
        bits = lambda flags: sum(1 << n for n, f in enumerate(flags) if f)  # noqa: E731
        assert set(rows[:, 0]) == {bits(warp > 3)}
        assert set(rows[:, 1]) == {1}
        assert set(rows[:, 2]) == {int((warp > 5).any())}
        assert rows[:, 3].tolist() == [bits(warp == v) for v in warp]
        assert set(rows[:, 4]) == {1}
        assert set(rows[:, 5]) == {0xFFFFFFFF}


MATH: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (name, getattr(math, name), getattr(np, numpy_name))
    for name, numpy_name in (
        ("sin", "sin"),
        ("cos", "cos"),
        ("tan", "tan"),
        ("exp", "exp"),
        ("log", "log"),
        ("log2", "log2"),
        ("log10", "log10"),
        ("sqrt", "sqrt"),
        ("asin", "arcsin"),
        ("acos", "arccos"),
        ("atan", "arctan"),
        ("sinh", "sinh"),
        ("cosh", "cosh"),
        ("tanh", "tanh"),
        ("expm1", "expm1"),
        ("log1p", "log1p"),
        ("floor", "floor"),
        ("ceil", "ceil"),
        ("fabs", "abs"),
    )
]


@pytest.mark.parametrize("kind", ["f8", "f4"])
def test_math_functions(kind: str) -> None:
    functions = [f for _, f, _ in MATH]
    (
        sin,
        cos,
        tan,
        exp,
        log,
        log2,
        log10,
        sqrt,
        asin,
        acos,
        atan,
        sinh,
        cosh,
        tanh,
        expm1,
        log1p,
        floor,
        ceil,
        fabs,
    ) = functions

    def everything(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            v = x[i]
            out[0, i], out[1, i], out[2, i], out[3, i], out[4, i] = (
                sin(v),
                cos(v),
                tan(v),
                exp(v),
                log(v),
            )
            out[5, i], out[6, i], out[7, i], out[8, i], out[9, i] = (
                log2(v),
                log10(v),
                sqrt(v),
                asin(v),
                acos(v),
            )
            out[10, i], out[11, i], out[12, i], out[13, i] = atan(v), sinh(v), cosh(v), tanh(v)
            out[14, i], out[15, i], out[16, i], out[17, i], out[18, i] = (
                expm1(v),
                log1p(v),
                floor(v),
                ceil(v),
                fabs(v),
            )

    x = floats(500, kind=kind) * np.dtype(kind).type(0.98) + np.dtype(kind).type(0.01)
    kernel = compile_kernel(everything, f"{kind}[:], {kind}[:,:]")
    out = run(kernel, (4,), (128,), x, np.zeros((len(MATH), x.size), kind))[1]
    for row, (name, _, reference) in zip(out, MATH, strict=True):
        expected = reference(x.astype("f8"))
        np.testing.assert_allclose(
            row,
            expected,
            rtol=1e-14 if kind == "f8" else 2e-6,
            atol=2e-7 if kind == "f4" else 1e-15,
            err_msg=name,
        )


def test_two_argument_math() -> None:
    def binary(x: Any, y: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = math.pow(x[i], y[i])
            out[1, i] = math.atan2(x[i], y[i])
            out[2, i] = math.fmod(x[i], y[i])
            out[3, i] = math.hypot(x[i], y[i])
            out[4, i] = math.copysign(x[i], y[i])
            out[5, i] = x[i] // y[i]
            out[6, i] = math.erf(x[i])
            out[7, i] = math.lgamma(x[i] + 1.0)

    x, y = floats(300, kind="f8") * 20 + 0.1, floats(300, kind="f8", seed=9) * 8 - 4
    out = run(
        compile_kernel(binary, "f8[:], f8[:], f8[:,:]"), (3,), (128,), x, y, np.zeros((8, 300))
    )[2]
    rows = [
        np.power(x, y),
        np.arctan2(x, y),
        np.fmod(x, y),
        np.hypot(x, y),
        np.copysign(x, y),
        x // y,
        np.array([math.erf(v) for v in x]),
        np.array([math.lgamma(v + 1) for v in x]),
    ]
    for have, want in zip(out, rows, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-12, atol=1e-13)


def test_large_arguments_reduce_by_payne_hanek() -> None:
    def trig(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = math.sin(x[i])
            out[1, i] = math.cos(x[i])

    for kind in ("f8", "f4"):
        x = np.array([1e5, 1e10, 1e22, 3.7e30, 12345678.9], kind)
        out = run(
            compile_kernel(trig, f"{kind}[:], {kind}[:,:]"), (1,), (32,), x, np.zeros((2, 5), kind)
        )[1]
        tolerance = 1e-15 if kind == "f8" else 1e-6
        np.testing.assert_allclose(out[0], np.sin(x.astype("f8")), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(out[1], np.cos(x.astype("f8")), rtol=tolerance, atol=tolerance)


def test_local_arrays() -> None:
    def sort(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        local = cuda.local.array(8, float64)
        for j in range(8):
            local[j] = x[i, j]
        for j in range(8):
            for k in range(7 - j):
                if local[k] > local[k + 1]:
                    local[k], local[k + 1] = local[k + 1], local[k]
        for j in range(8):
            out[i, j] = local[(j + i) % 8]

    x = floats(64, 8, kind="f8")
    kernel = compile_kernel(sort, "f8[:,:], f8[:,:]")
    assert kernel.lowered.local_bytes >= 64
    out = run(kernel, (2,), (32,), x, np.zeros((64, 8)))[1]
    expected = np.sort(x, axis=1)
    turned = np.take_along_axis(expected, (np.arange(8) + np.arange(64)[:, None]) % 8, axis=1)
    np.testing.assert_array_equal(out, turned)


def test_integer_operations() -> None:
    def integers(x: Any, y: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = x[i] // y[i]
            out[1, i] = x[i] % y[i]
            out[2, i] = cuda.popc(x[i])
            out[3, i] = cuda.clz(x[i])
            out[4, i] = cuda.brev(uint32(x[i]))
            out[5, i] = (x[i] << 3) ^ (y[i] >> 1)
            out[6, i] = x[i] * y[i]

    rng = np.random.default_rng(1)
    x = rng.integers(-(2**31), 2**31, 200).astype("i4")
    y = rng.integers(1, 1000, 200).astype("i4") * np.where(rng.random(200) < 0.5, -1, 1).astype(
        "i4"
    )
    out = run(
        compile_kernel(integers, "i4[:], i4[:], i8[:,:]"),
        (2,),
        (128,),
        x,
        y,
        np.zeros((7, 200), "i8"),
    )[2]
    u = x.view("u4")
    np.testing.assert_array_equal(out[0], x.astype("i8") // y)
    np.testing.assert_array_equal(out[1], x.astype("i8") % y)
    np.testing.assert_array_equal(out[2], [f"{v:b}".count("1") for v in u.tolist()])
    np.testing.assert_array_equal(out[3], [32 - v.bit_length() for v in u.tolist()])
    np.testing.assert_array_equal(
        out[4].astype("u4"), [int(f"{v:032b}"[::-1], 2) for v in u.tolist()]
    )
    np.testing.assert_array_equal(out[6], x.astype("i8") * y)


def test_atomics() -> None:
    def atomics(x: Any, ints: Any, doubles: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            cuda.atomic.add(doubles, 0, x[i])
            cuda.atomic.max(doubles, 1, x[i])
            cuda.atomic.min(doubles, 2, x[i])
            cuda.atomic.add(ints, 0, 1)
            cuda.atomic.sub(ints, 1, 2)
            cuda.atomic.or_(ints, 2, 1 << (i % 32))
            cuda.atomic.inc(ints, 3, 100)
            cuda.atomic.cas(ints, 4, 0, 77)

    x = floats(500, kind="f8")
    out = run(
        compile_kernel(atomics, "f8[:], u4[:], f8[:]"),
        (4,),
        (128,),
        x,
        np.zeros(8, "u4"),
        np.full(3, 0.5),
    )
    ints, doubles = out[1], out[2]
    np.testing.assert_allclose(doubles, [0.5 + x.sum(), x.max(), x.min()], rtol=1e-12)
    assert ints[:5].tolist() == [500, 2**32 - 1000, 2**32 - 1, 500 % 101, 77]
