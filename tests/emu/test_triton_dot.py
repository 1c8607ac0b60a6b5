"""Triton's tl.dot in f16 and tf32, and attention, on the device. The sources are in
ptx/triton/README.md; four warps run each block.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32
from typing import Any

import numpy as np

from emu.device import TESTS, Device, on_device
from emu.kernels import U64, load

SHARED = {"matmul_f16": 4096, "matmul_tf32": 8192, "attention": 4096}
Array = np.ndarray[Any, np.dtype[Any]]


def address(value: Any) -> int:
    return ctypes.addressof(value)


def run(cuda: Device, name: str, grid: tuple[int, int], *arguments: Any) -> Array:
    """Launches with arrays and ctypes scalars; returns the last array as the kernel left it."""
    text = (TESTS / "ptx" / "triton" / f"{name}.ptx").read_text()
    function = cuda.function(load(cuda, text), name.split("_")[0])
    packed, place, last = [], 0, np.zeros(0)
    for value in arguments:
        if isinstance(value, np.ndarray):
            place, last = cuda.alloc(value.nbytes), value
            cuda.write(place, value.tobytes())
            packed.append(U64(place))
        else:
            packed.append(value)
    packed += [U64(0), U64(0)]  # Triton's own scratch memory, which these do not use
    pointers = (U64 * len(packed))(*(address(p) for p in packed))
    cuda("cuLaunchKernel", function, *grid, 1, 128, 1, 1, SHARED[name], 0, pointers, None)
    return np.frombuffer(cuda.read(place, last.nbytes), last.dtype).reshape(last.shape)


def floats(kind: Any, *shape: int) -> Array:
    made: Array = np.random.default_rng(sum(shape)).normal(size=shape).astype(kind)
    return made


def tf32(x: Array) -> Array:
    """What the instruction reads of a float: the low 13 bits do not count."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def product(cuda: Device, name: str, kind: Any, m: int, n: int, k: int) -> None:
    a, b = floats(kind, m, k), floats(kind, k, n)
    grid = ((m + 31) // 32, (n + 31) // 32)
    sizes = [c_int32(v) for v in (m, n, k)]
    out = run(cuda, name, grid, a, b, np.zeros((m, n), np.float32), *sizes)
    x, y = (v.astype(np.float64) for v in ((a, b) if kind is np.float16 else (tf32(a), tf32(b))))
    bound = np.abs(x) @ np.abs(y) * 2.0**-22
    assert np.all(np.abs(out - x @ y) <= bound)


@on_device()
def test_matrix_product_of_halves(cuda: Device) -> None:
    cuda.open()
    for m, n, k in ((32, 32, 32), (64, 96, 128), (50, 41, 77)):
        product(cuda, "matmul_f16", np.float16, m, n, k)


@on_device()
def test_matrix_product_of_tf32(cuda: Device) -> None:
    cuda.open()
    for m, n, k in ((32, 32, 32), (64, 96, 128), (50, 44, 76)):
        product(cuda, "matmul_tf32", np.float32, m, n, k)


@on_device()
def test_attention(cuda: Device) -> None:
    cuda.open()
    n, d = 90, 32
    q, k, v = (floats(np.float16, n + i, d)[:n].copy() for i in range(3))
    scale = 1 / np.sqrt(np.float32(d))
    out = run(
        cuda, "attention", (3, 1), q, k, v, np.zeros((n, d), np.float32), c_int32(n), c_float(scale)
    )
    x, y, z = (m.astype(np.float64) for m in (q, k, v))
    w = np.exp(x @ y.T * scale)
    want = w / w.sum(1, keepdims=True) @ z
    np.testing.assert_allclose(out, want, atol=2e-3)
