"""PTX as Triton writes it: braces around one register, masked accesses, blanks in brackets.

The kernels are ours; `triton/README.md` has their sources. Four warps run each block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.harness import Kernel

FOLDER = Path(__file__).parent / "triton"
SHARED = {"softmax": 16, "layer_norm": 16}
Array = npt.NDArray[Any]


def run(name: str, grid: int, *arguments: Any) -> Array:
    """Launches with arrays and scalars; returns the last array as the kernel left it."""
    kernel = Kernel((FOLDER / f"{name}.ptx").read_text(), name)
    packed: list[Any] = []
    place, last = 0, np.zeros(0)
    for value in arguments:
        if isinstance(value, np.ndarray):
            place, last = kernel.arena.put(value), value
            packed.append(np.uint64(place))
        else:
            packed.append(value)
    missing = len(kernel.program.entry(name).prototype.params) - len(packed)
    packed += [np.uint64(0)] * missing  # Triton's own scratch memory, which these do not use
    kernel.launch((grid,), (128,), *packed, dynamic=SHARED.get(name, 0))
    return kernel.arena.get(place, last)


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("n", [1000, 256, 1])
def test_add(n: int) -> None:
    x, y = floats(n), floats(n + 1)[:n]
    out = run("add", (n + 255) // 256, x, y, np.zeros_like(x), np.int32(n))
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("columns", [128, 100, 1])
def test_softmax(columns: int) -> None:
    x = floats(5, columns)
    out = run("softmax", 5, x, np.zeros_like(x), np.int32(columns))
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=2e-6)


def test_layer_norm() -> None:
    x, w, b = floats(5, 200), floats(200), floats(201)[:200]
    out = run("layer_norm", 5, x, w, b, np.zeros_like(x), np.int32(200), np.float32(1e-5))
    d = x - x.mean(1, keepdims=True, dtype=np.float64)
    expected = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=2e-6)


def test_histogram() -> None:
    x = np.random.default_rng(5).integers(0, 16, 1000).astype(np.int32)
    out = run("histogram", 8, x, np.zeros(16, np.int32), np.int32(1000))
    np.testing.assert_array_equal(out, np.bincount(x, minlength=16))
