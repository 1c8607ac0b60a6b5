"""Texture instructions that choose levels or read several texels, against NumPy: levels, gradients,
anisotropy, gathers and the edges of cube maps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from ptx.texel import Sampler, as_words
from ptx.texture import Texture, execute
from ptx.texture_draws import (
    AXES,
    FLAT,
    GEOMETRIES,
    Array,
    layers_of,
    pack,
    places,
    texture,
)


@pytest.mark.parametrize("linear_mip", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_levels(geometry: str, linear_mip: bool) -> None:
    for bias, bounds in ((0, (0, 100)), (0.75, (0.5, 2.25))):
        t = texture(
            geometry, "f32", 2, 5 if "cube" in geometry else 4, linear=True, linear_mip=linear_mip, normalized=True,
            address=("wrap", "clamp", "mirror"), bias=bias, bounds=bounds,
        )  # fmt: skip
        at = places(t, 64, 11)
        given, layers = layers_of(t, 64)
        words, operand = pack(t, geometry, at, given)
        lod = np.random.default_rng(3).uniform(-2, 7, 64).astype(np.float32)
        lod[:4] = (np.nan, np.inf, -np.inf, 1.5)
        got = execute(
            f"tex.level.{geometry}.v4.f32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}], %w{words.shape[1]};",
            t,
            np.hstack([words, lod.view(np.uint32).reshape(-1, 1)]),
        )
        sampler = Sampler(t)
        want = [
            sampler.read(list(map(float, a)), int(n), 0.0 if np.isnan(v) else float(v))
            for a, n, v in zip(at, layers, lod, strict=True)
        ]
        check_close(got, want)


def check_close(got: Array, want: Sequence[Sequence[float]]) -> None:
    """Two filtered levels are rounded twice at most."""
    np.testing.assert_allclose(got.view(np.float32).astype(np.float64), want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("geometry", FLAT)
def test_gradients_choose_levels(geometry: str) -> None:
    t = texture(
        geometry, "f32", 1, 4, linear=True, linear_mip=True, normalized=True, address=("wrap",) * 3
    )
    at = places(t, 64, 13)
    given, layers = layers_of(t, 64)
    words, operand = pack(t, geometry, at, given)
    axes = AXES[geometry]
    width = {1: 1, 2: 2, 3: 4}[axes]
    by = (np.random.default_rng(4).normal(size=(64, 2 * width)) * 0.1).astype(np.float32)
    by[0] = 0
    names = [f"%w{words.shape[1] + n}" for n in range(2 * width)]
    dx, dy = ("{" + ", ".join(part) + "}" for part in (names[:width], names[width:]))
    got = execute(
        f"tex.grad.{geometry}.v4.f32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}], {dx}, {dy};",
        t,
        np.hstack([words, by.view(np.uint32)]),
    )
    sampler = Sampler(t)
    want = [
        sampler.read(list(map(float, a)), int(n), sampler.lod(g[:axes], g[width : width + axes]))
        for a, n, g in zip(at, layers, by, strict=True)
    ]
    check_close(got, want)


@pytest.mark.parametrize("geometry", ["cube", "acube"])
def test_gradients_of_directions(geometry: str) -> None:
    """The level is that of the change on the face, which a small difference of directions gives."""
    t = texture(geometry, "f32", 1, 5, linear_mip=True, normalized=True)
    t.levels = [np.full_like(level, n) for n, level in enumerate(t.levels)]
    at = places(t, 64, 17)
    given, _ = layers_of(t, 64)
    words, operand = pack(t, geometry, at, given)
    by = (np.random.default_rng(4).normal(size=(64, 8)) * 0.3).astype(np.float32)
    names = [f"%w{words.shape[1] + n}" for n in range(8)]
    dx, dy = ("{" + ", ".join(part) + "}" for part in (names[:4], names[4:]))
    got = execute(
        f"tex.grad.{geometry}.v4.f32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}], {dx}, {dy};",
        t,
        np.hstack([words, by.view(np.uint32)]),
    )
    size, step = t.extent(0)[0], 1e-6
    axes = np.argmax(np.abs(at), 1)
    for a, axis, g, value in zip(
        at.astype(float), axes, by.astype(float), got[:, 0].view(np.float32), strict=True
    ):
        lengths = []
        for way in (g[:3], g[4:7]):
            moved = a + way * step
            minor = [n for n in range(3) if n != axis]
            change = [(moved[n] / abs(moved[axis]) - a[n] / abs(a[axis])) / 2 / step for n in minor]
            lengths.append(np.hypot(*change) * size)
        assert abs(value - np.clip(np.log2(max(lengths)), 0, 4)) < 0.01


def test_anisotropy_averages_along_the_longer_gradient() -> None:
    """A stripe pattern along y: four samples along x see the mean of the stripes that they meet."""
    data = np.zeros((1, 1, 16, 1), np.float32)
    data[0, 0, ::2] = 1
    t = Texture(
        "2d", "f32", [np.repeat(data, 16, 1)], normalized=True, anisotropy=4, address=("wrap",) * 3
    )
    at = np.array([[0.5 + 0.5 / 16, 0.5]], np.float32)
    by = np.array([[8 / 16, 0, 0, 1 / 16]], np.float32)
    words = np.hstack([at, by]).view(np.uint32)
    text = "tex.grad.2d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w1}], {%w2, %w3}, {%w4, %w5};"
    steps = at[0, 0] * 16 + 8 * (np.arange(1, 5) / 5 - 0.5)
    want = np.mean(data[0, 0, np.floor(steps).astype(int) % 16, 0])
    assert execute(text, t, words)[0, 0].view(np.float32) == want
    t.anisotropy = 1
    assert execute(text, t, words)[0, 0].view(np.float32) == 1


@pytest.mark.parametrize("geometry", ["2d", "a2d", "cube", "acube"])
def test_gathers(geometry: str) -> None:
    for kind, component in itertools.product(("f32", "u8"), range(4)):
        t = texture(geometry, kind, 4, normalized=True, address=("wrap", "mirror", "clamp"))
        at = places(t, 64, 19)
        given, layers = layers_of(t, 64)
        words, operand = pack(t, geometry, at, given)
        got = execute(
            f"tld4.{'rgba'[component]}.{geometry}.v4.u32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}];",
            t,
            words,
        )
        sampler = Sampler(t)
        want = [
            sampler.gather(list(map(float, a)), component, int(n))
            for a, n in zip(at, layers, strict=True)
        ]
        np.testing.assert_array_equal(got, as_words(t, want))


def test_gather_with_offset() -> None:
    t = texture("2d", "f32", 1, address=("border",) * 3, border=(9, 0, 0, 0))
    at = np.floor(places(t, 64, 23)) + np.float32(0.75)
    text = "tld4.r.2d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w1}], {%w2, %w3};"
    offset = np.random.default_rng(2).integers(-8, 8, (64, 2)).astype(np.int32)
    got = execute(text, t, np.hstack([at.view(np.uint32), offset.view(np.uint32)]))
    sampler = Sampler(t)
    want = [
        sampler.gather(list(map(float, a)), 0, 0, [int(v) for v in o])
        for a, o in zip(at, offset, strict=True)
    ]
    np.testing.assert_array_equal(got, as_words(t, want))


def test_seamless_cubemaps_filter_over_edges() -> None:
    """Every face holds x + 10 y + 100 z of the directions of its texels, so a filter that reads the right texels
    gives nearly this sum everywhere, also at edges; a filter that ends at the face does not."""
    size = 16
    data = np.zeros((6, size, size, 1), np.float32)
    c = (2 * np.arange(size) + 1) / size - 1
    s, r = np.meshgrid(c, c)
    one = np.ones_like(s)
    faces = [(one, -r, -s), (-one, -r, s), (s, one, r), (s, -one, -r), (s, -r, one), (-s, -r, -one)]
    for face, (x, y, z) in enumerate(faces):
        data[face, :, :, 0] = (x + 10 * y + 100 * z) / np.maximum(
            np.maximum(abs(x), abs(y)), abs(z)
        )
    text = "tex.cube.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w1, %w2, %w3}];"
    rng = np.random.default_rng(7)
    at = rng.uniform(-1, 1, (256, 4)).astype(np.float32)
    axes = rng.permuted(np.tile(np.arange(3), (256, 1)), axis=1)
    for n, (a, b, _) in enumerate(axes):
        at[n, a] = np.sign(at[n, a]) or 1
        at[n, b] = np.sign(at[n, b]) * 0.999  # beside an edge
    errors = []
    for seamless in (False, True):
        t = Texture("cube", "f32", [data], linear=True, seamless=seamless)
        got = execute(text, t, at)[:, 0].view(np.float32)
        want = (at[:, 0] + 10 * at[:, 1] + 100 * at[:, 2]) / np.abs(at[:, :3]).max(1)
        errors.append(np.abs(got - want).max())
    assert errors[1] < 110 / size / 2 + 1  # half a texel of the neighbouring face, at most
    assert errors[0] < 110 / size + 2


def test_seamless_edges_and_corners_exactly() -> None:
    """Constant faces: the middle of an edge is the mean of two faces, a corner that of three."""
    data = np.repeat(np.arange(1, 7, dtype=np.float32), 64).reshape(6, 8, 8, 1)
    t = Texture("cube", "f32", [data], linear=True, seamless=True)
    at = np.array(
        [[1, 0.9999999, 0, 0], [0, -1, 0.9999999, 0], [1, 0.9999999, 0.9999998, 0]], np.float32
    )
    got = execute("tex.cube.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w1, %w2, %w3}];", t, at)[
        :, 0
    ].view(np.float32)
    np.testing.assert_allclose(got, [(1 + 3) / 2, (4 + 5) / 2, (1 + 3 + 5) / 3], rtol=1e-6)
