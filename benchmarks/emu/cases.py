"""What each kernel of `kernels.cu` computes: its inputs, its geometry, and NumPy's way to do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel.

    kernel: its name in `kernels.cu` and in `reference.c`.
    arguments: arrays, and numbers that are passed by value; an array named by `result` is written.
    grid, block: the launch.
    numpy: computes the result with NumPy, or nothing where NumPy has no way to do it.
    tolerance: how far results may be from those of the C code, relative to 1 + their size.
    changes: the kernel reads what it writes, so its result is compared after the first run only.
    """

    kernel: str
    arguments: tuple[Array | np.float32 | np.int32, ...]
    grid: tuple[int, int]
    block: tuple[int, int]
    result: int = -1
    numpy: Callable[[], object] | None = None
    tolerance: float = 0.0
    changes: bool = False


def _blocks(count: int, block: int) -> tuple[int, int]:
    return -(-count // block), 1


def _saxpy(random: np.random.Generator, kernel: str, n: int, grid: tuple[int, int]) -> Case:
    x, y = (random.random(n, np.float32) for _ in range(2))
    factor = np.float32(1.5)

    def with_numpy() -> None:
        np.multiply(x, factor, out=scratch)
        np.add(scratch, y, out=scratch)

    scratch = np.empty_like(x)
    return Case(
        kernel, (factor, x, y, np.int32(n)), grid, (256, 1), 2, with_numpy, 1e-6, changes=True
    )


def _reduction(random: np.random.Generator, kernel: str, n: int) -> Case:
    x = random.random(n, np.float32)
    sums = np.zeros(n // 256, np.float32)
    by_block = x.reshape(-1, 256)
    return Case(
        kernel,
        (x, sums, np.int32(n)),
        _blocks(n, 256),
        (256, 1),
        1,
        lambda: by_block.sum(axis=1),
        1e-5,
    )


def _scan(random: np.random.Generator, n: int) -> Case:
    x = random.integers(0, 100, n, np.int32)
    by_block = x.reshape(-1, 256)
    return Case(
        "scan",
        (x, np.zeros_like(x), np.int32(n)),
        _blocks(n, 256),
        (256, 1),
        1,
        lambda: np.cumsum(by_block, axis=1, dtype=np.int32),
    )


def _product(random: np.random.Generator, kernel: str, n: int, edge: int) -> Case:
    left, right = (random.random((n, n), np.float32) for _ in range(2))
    return Case(
        kernel,
        (left, right, np.zeros_like(left), np.int32(n)),
        (n // edge, n // edge),
        (16, 16),
        2,
        lambda: left @ right,
        1e-4,
    )


def _bodies(random: np.random.Generator, n: int) -> Case:
    body = random.random((n, 4), np.float32)

    def with_numpy() -> Vector:
        way = body[None, :, :3] - body[:, None, :3]
        square = (way * way).sum(axis=2) + np.float32(0.01)
        scale = body[None, :, 3] / (square * np.sqrt(square))
        force: Vector = (way * scale[:, :, None]).sum(axis=1)
        return force

    arguments = (body, np.zeros_like(body), np.int32(n))
    return Case("bodies", arguments, _blocks(n, 128), (128, 1), 1, with_numpy, 1e-4)


def _histogram(random: np.random.Generator, n: int) -> Case:
    x = random.integers(0, 256, n, np.uint32)
    return Case(
        "histogram",
        (x, np.zeros(256, np.uint32), np.int32(n)),
        (64, 1),
        (256, 1),
        1,
        lambda: np.bincount(x, minlength=256),
        changes=True,
    )


def _mandelbrot(n: int) -> Case:
    def with_numpy() -> NDArray[np.int32]:
        axis = np.arange(n, dtype=np.float32) * np.float32(3 / n)
        cx, cy = np.meshgrid(axis - np.float32(2), axis - np.float32(1.5))
        x, y = np.zeros_like(cx), np.zeros_like(cy)
        steps = np.zeros(cx.shape, np.int32)
        for _ in range(256):
            inside = x * x + y * y < 4
            steps += inside
            x, y = (
                np.where(inside, x * x - y * y + cx, x),
                np.where(inside, 2 * x * y + cy, y),
            )
        return steps

    # A last bit of x decides at the edge of the set, so a few points differ by many steps.
    return Case(
        "mandelbrot",
        (np.zeros((n, n), np.int32), np.int32(n)),
        (n // 16, n // 16),
        (16, 16),
        0,
        with_numpy,
        tolerance=np.inf,
    )


def _black_scholes(random: np.random.Generator, n: int) -> Case:
    price, strike = (random.uniform(10, 100, n).astype(np.float32) for _ in range(2))
    years = random.uniform(0.25, 5, n).astype(np.float32)
    # NumPy has no erfc.
    return Case(
        "black_scholes",
        (price, strike, years, np.zeros_like(price), np.int32(n)),
        _blocks(n, 256),
        (256, 1),
        3,
        None,
        1e-3,
    )


def cases(quick: bool) -> list[Case]:
    """All kernels with their inputs; `quick` makes the inputs a quarter as large."""
    random = np.random.default_rng(1)
    share = 4 if quick else 1
    million = (1 << 20) // share
    edge = 256 if quick else 512
    return [
        Case("empty", (), (1, 1), (32, 1)),
        _saxpy(random, "saxpy", 4 * million, _blocks(4 * million, 256)),
        _saxpy(random, "saxpy_stride", 4 * million, (64, 1)),
        _reduction(random, "reduce_shared", 2 * million),
        _reduction(random, "reduce_shuffle", 2 * million),
        _scan(random, million),
        _product(random, "product_tiled", edge, 16),
        _product(random, "product_registers", edge, 64),
        _bodies(random, 2048),
        _histogram(random, 2 * million),
        _mandelbrot(edge),
        _black_scholes(random, million),
    ]
