"""What a texture instruction must read, by the formulas of the CUDA programming guide ("Texture Fetching", "Cubemap
Textures"), in double precision.  Nothing here is shared with the sampler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.texture import Texture

Array = npt.NDArray[Any]
Colour = list[float]
MOST = {"u8": 255, "s8": 127, "u16": 65535, "s16": 32767}


def reads_floats(t: Texture) -> bool:
    return t.normalized_float or t.kind in ("f16", "f32", "unorm1010102")


def decode(t: Texture, level: int) -> Array:
    """The texels of a level as [slice, row, column, 4]: doubles, or integers."""
    data = t.levels[level]
    if t.kind == "unorm1010102":
        bits = data[..., 0].astype(np.int64)
        parts = [(bits >> 10 * n & 1023) / np.float32(1023) for n in range(3)]
        return (
            np.stack([*parts, (bits >> 30) / np.float32(3)], -1)
            .astype(np.float32)
            .astype(np.float64)
        )
    floats = reads_floats(t)
    out = np.zeros((*data.shape[:3], 4), np.float64 if floats else np.int64)
    out[..., 3] = 1
    values = data.astype(np.float64) if floats else data.astype(np.int64)
    if t.normalized_float and t.kind in MOST:
        values = np.maximum(
            (data.astype(np.float32) / np.float32(MOST[t.kind])).astype(np.float64), -1
        )
    out[..., : data.shape[3]] = values
    if t.srgb:
        rgb = out[..., :3]
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        out[..., :3] = linear.astype(np.float32)
    return out


def index(i: int, n: int, mode: str) -> int | None:
    if mode == "wrap":
        return i % n
    if mode == "mirror":
        return i % n if i // n % 2 == 0 else n - 1 - i % n
    if mode == "border":
        return i if 0 <= i < n else None
    return min(max(i, 0), n - 1)


def border(t: Texture) -> Colour:
    if t.shape == "buffer":
        return [0, 0, 0, 0]
    if reads_floats(t):
        return list(t.border)
    return [int(np.float32(v).view(np.int32)) for v in t.border]


class Sampler:
    """One texture's texels, read at coordinates."""

    def __init__(self, t: Texture) -> None:
        self.t = t
        self.levels = [decode(t, n) for n in range(len(t.levels))]
        self.cube = t.shape in ("cube", "acube")
        self.axes = {"buffer": 1, "1d": 1, "a1d": 1, "3d": 3}.get(t.shape, 2)

    def mode(self, axis: int) -> str:
        if self.t.shape == "buffer":
            return "border"
        return "clamp" if self.cube else self.t.address[axis]

    def texel(self, level: int, layer: int, at: Sequence[int]) -> Colour:
        found = []
        for axis, i in enumerate(at):
            one = index(i, self.t.extent(level)[axis], self.mode(axis))
            if one is None:
                return border(self.t)
            found.append(one)
        x, y, z = [*found, 0, 0][:3]
        return list(self.levels[level][layer + z, y, x])

    def in_texels(
        self, level: int, axis: int, value: float, offset: int, normalized: bool
    ) -> float:
        size = self.t.extent(level)[axis]
        if not normalized:
            return value + offset
        value += offset / size
        mode = self.mode(axis)
        if mode == "wrap":
            value -= math.floor(value)
        elif mode == "mirror":
            whole = math.floor(value)
            value = value - whole if whole % 2 == 0 else 1 - (value - whole)
        return value * size

    def at_level(
        self, level: int, layer: int, at: Sequence[float], offset: Sequence[int], normalized: bool
    ) -> Colour:
        places = [
            self.in_texels(level, axis, float(at[axis]), offset[axis], normalized)
            for axis in range(self.axes)
        ]
        if not (self.t.linear and reads_floats(self.t)):
            return self.texel(level, layer, [math.floor(p) for p in places])
        lower = [math.floor(p - 0.5) for p in places]
        weights = [
            math.floor((p - 0.5 - i) * 256 + 0.5) / 256 for p, i in zip(places, lower, strict=True)
        ]
        total = np.zeros(4)
        for corner in np.ndindex(*[2] * self.axes):
            weight = math.prod(w if up else 1 - w for w, up in zip(weights, corner, strict=True))
            if weight:
                total += weight * np.array(
                    self.texel(level, layer, [i + up for i, up in zip(lower, corner, strict=True)])
                )
        return list(total)

    def levels_of(self, lod: float) -> list[tuple[int, float]]:
        t = self.t
        lod = min(max(lod + t.bias, t.bounds[0]), t.bounds[1])
        lod = min(max(lod, 0), len(t.levels) - 1)
        if not (t.linear_mip and reads_floats(t)):
            return [(math.floor(lod + 0.5), 1.0)]
        lod = math.floor(lod * 256 + 0.5) / 256
        below = math.floor(lod)
        return [(below, 1 - (lod - below)), (min(below + 1, len(t.levels) - 1), lod - below)]

    def read(
        self,
        at: Sequence[float],
        layer: int = 0,
        lod: float | None = None,
        offset: Sequence[int] = (0, 0, 0),
    ) -> Colour:
        normalized = self.t.normalized
        if self.cube:
            face, *at = face_of(at)
            layer, normalized = layer * 6 + face, True
        chosen = [(0, 1.0)] if lod is None else self.levels_of(lod)
        if len(chosen) == 1:
            return self.at_level(chosen[0][0], layer, at, offset, normalized)
        total = np.zeros(4)
        for level, weight in chosen:
            if weight:
                total += weight * np.array(self.at_level(level, layer, at, offset, normalized))
        return list(total)

    def lod(self, dx: Sequence[float], dy: Sequence[float]) -> float:
        sizes = self.t.extent(0) if self.t.normalized else (1, 1, 1)
        longest = max(
            math.sqrt(sum((float(d) * sizes[n]) ** 2 for n, d in enumerate(way[: self.axes])))
            for way in (dx, dy)
        )
        return math.log2(longest) if longest else -math.inf

    def gather(
        self, at: Sequence[float], component: int, layer: int = 0, offset: Sequence[int] = (0, 0)
    ) -> list[float]:
        normalized = self.t.normalized
        if self.cube:
            face, *at = face_of(at)
            layer, normalized = layer * 6 + face, True
        # As for a filter, places are rounded to 1/256 of a texel.
        x, y = (
            math.floor(self.in_texels(0, n, float(at[n]), offset[n], normalized) * 256 - 127.5) >> 8
            for n in range(2)
        )
        corners = ((x, y + 1), (x + 1, y + 1), (x + 1, y), (x, y))
        return [self.texel(0, layer, corner)[component] for corner in corners]


def face_of(direction: Sequence[float]) -> tuple[int, float, float]:
    """The guide's table of faces. Returns the face and the coordinates in it."""
    x, y, z = (float(d) for d in direction[:3])
    ax, ay, az = abs(x), abs(y), abs(z)
    if ax > ay and ax > az:
        face, m, s, t = (0, x, -z, -y) if x >= 0 else (1, -x, z, -y)
    elif ay > az:
        face, m, s, t = (2, y, x, z) if y >= 0 else (3, -y, x, -z)
    else:
        face, m, s, t = (4, z, x, -y) if z >= 0 else (5, -z, -x, -y)
    return face, (s / m + 1) / 2, (t / m + 1) / 2


def as_words(t: Texture, colours: Sequence[Sequence[float]]) -> Array:
    """The registers that hold such results."""
    if reads_floats(t):
        return np.array(colours, np.float64).astype(np.float32).view(np.uint32)
    return (np.array(colours, np.int64) & 0xFFFFFFFF).astype(np.uint32)


def check(t: Texture, got: Array, colours: Sequence[Sequence[float]]) -> None:
    """Integers and single texels are exact; sums are rounded once, from doubles."""
    if not reads_floats(t):
        np.testing.assert_array_equal(got, as_words(t, colours))
        return
    want = np.array(colours, np.float64)
    have = np.ascontiguousarray(got).view(np.float32).astype(np.float64)
    size = np.maximum(np.abs(want), 2.0**-126)
    assert (np.abs(have - want) <= size * 2.0**-23).all(), (have, want)
