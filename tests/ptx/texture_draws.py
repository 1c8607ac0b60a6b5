"""Textures, coordinates and layers that tests draw, and what they must read there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.texel import Sampler, check
from ptx.texture import Texture, execute

Array = npt.NDArray[Any]
GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d", "cube", "acube")
FLAT = GEOMETRIES[:5]
AXES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 3, "acube": 3}
DTYPES = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "s8": np.int8, "s16": np.int16, "s32": np.int32,
    "f16": np.float16, "f32": np.float32, "unorm1010102": np.uint32,
}  # fmt: skip
SIZES = {"1d": (1, 1, 13), "2d": (1, 7, 12), "3d": (5, 6, 7), "a1d": (4, 1, 11), "a2d": (3, 6, 9), "cube": (6, 8, 8),
         "acube": (18, 4, 4), "buffer": (1, 1, 50)}  # fmt: skip


def texels(kind: str, shape: Sequence[int], seed: int = 1) -> Array:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[kind]
    if np.issubdtype(dtype, np.floating):
        return rng.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def texture(
    shape: str, kind: str = "f32", channels: int = 1, levels: int = 1, **options: Any
) -> Texture:
    slices, rows, columns = SIZES[shape]
    if levels > 1:
        rows, columns = max(rows, 16) if rows > 1 else 1, 32
        if shape in ("cube", "acube"):
            rows = columns = 16
    data = []
    for n in range(levels):
        depth = max(slices >> n, 1) if shape == "3d" else slices
        data.append(
            texels(kind, (depth, max(rows >> n, 1), max(columns >> n, 1), channels), seed=n)
        )
    return Texture(shape, kind, data, **options)


def places(t: Texture, count: int, seed: int, *, unit: bool | None = None) -> Array:
    """Coordinates inside and outside, some of them on the borders of texels."""
    rng = np.random.default_rng(seed)
    axes = AXES.get(t.shape, 1)
    if t.shape in ("cube", "acube"):
        return rng.normal(size=(count, 3)).astype(np.float32)
    sizes = np.array(t.extent(0)[:axes], np.float64)
    at = rng.uniform(-1.6, 2.6, (count, axes)) * sizes
    at[::5] = np.round(at[::5] * 2) / 2
    at[1::2] = rng.uniform(0, 1, at[1::2].shape) * sizes
    return (at / sizes if (t.normalized if unit is None else unit) else at).astype(np.float32)


def pack(t: Texture, geometry: str, at: Array, layers: Array) -> tuple[Array, str]:
    """The words of the coordinates, and the operand."""
    columns = [at[:, n].view(np.uint32) for n in range(at.shape[1])]
    if geometry.startswith("a"):
        columns = [layers.astype(np.uint32), *columns]
    if len(columns) == 3:
        columns.append(columns[-1])
    return np.stack(columns, 1), "{" + ", ".join(f"%w{n}" for n in range(len(columns))) + "}"


def layers_of(t: Texture, count: int) -> tuple[Array, Array]:
    """Layers as given, some of them too high, and as read."""
    items = t.layers // 6 if t.shape in ("cube", "acube") else t.layers
    given = np.arange(count) % (items + 2)
    return given, np.minimum(given, items - 1)


def compare(t: Texture, geometry: str, count: int = 96, seed: int = 3) -> None:
    at = places(t, count, seed)
    given, layers = layers_of(t, count)
    words, operand = pack(t, geometry, at, given)
    got = execute(f"tex.{geometry}.v4.f32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}];", t, words)
    sampler = Sampler(t)
    check(
        t, got, [sampler.read(list(map(float, a)), int(n)) for a, n in zip(at, layers, strict=True)]
    )
