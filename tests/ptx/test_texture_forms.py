"""Texture instructions against NumPy: every form, every geometry, format, filter and addressing mode."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.program import source
from ptx.texel import Sampler, as_words, check, reads_floats
from ptx.texture import MODES, Texture, execute, library, result_of

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

Array = npt.NDArray[Any]
GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d", "cube", "acube")
FLAT = GEOMETRIES[:5]
AXES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 3, "acube": 3}
FORMS = [
    *(
        f"tex{mip}.{geometry}.{types}.{c}"
        for mip in ("", ".base", ".level", ".grad")
        for c in ("f32", "s32")
        for geometry in (GEOMETRIES if c == "f32" else FLAT)
        for types in ("v4.f32", "v4.u32", "v4.s32", "v4.f16", "v2.f16x2")
        if not (mip == ".grad" and c == "s32")
    ),
    *(
        f"tld4.{c}.{g}.v4.{t}.f32"
        for c in "rgba"
        for g in ("2d", "a2d", "cube", "acube")
        for t in ("f32", "u32", "s32")
    ),
    *(
        f"txq.{q}.b32"
        for q in (
            "width",
            "height",
            "depth",
            "channel_data_type",
            "channel_order",
            "normalized_coords",
        )
    ),
    *(
        f"txq.{q}.b32"
        for q in ("array_size", "num_mipmap_levels", "num_samples", "force_unnormalized_coords")
    ),
    *(f"txq.{q}.b32" for q in ("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2")),
    *(f"txq.level.{q}.b32" for q in ("width", "height", "depth")),
    *(f"istypep.{q}" for q in ("texref", "samplerref", "surfref")),
]
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
    while len(columns) == 3:
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


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("kind", [k for k in DTYPES if k != "unorm1010102"])
def test_formats(kind: str, channels: int) -> None:
    compare(texture("2d", kind, channels), "2d")
    if kind in ("u8", "u16", "s8", "s16"):
        compare(texture("2d", kind, channels, normalized_float=True), "2d")
        compare(texture("2d", kind, channels, normalized_float=True, linear=True), "2d")


def test_packed_and_srgb() -> None:
    compare(texture("2d", "unorm1010102", normalized_float=True, linear=True), "2d")
    compare(texture("2d", "u8", 4, normalized_float=True, srgb=True), "2d")
    compare(texture("2d", "u8", 4, normalized_float=True, srgb=True, linear=True), "2d")


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_geometries_by_texels(geometry: str, linear: bool) -> None:
    for mode in ("clamp", "border"):
        compare(
            texture(
                geometry, "f32", 2, linear=linear, address=(mode,) * 3, border=(0.25, -3, 7, 9)
            ),
            geometry,
        )


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_geometries_normalized(geometry: str, linear: bool) -> None:
    for n, mode in enumerate(MODES):
        modes = (mode, MODES[(n + 1) % 4], MODES[(n + 2) % 4])
        compare(
            texture(
                geometry,
                "f32",
                4,
                linear=linear,
                normalized=True,
                address=modes,
                border=(0.5, 2, -1, 3),
            ),
            geometry,
        )


def test_integers_are_not_filtered() -> None:
    compare(texture("2d", "s16", 2, linear=True), "2d")


def test_weights_have_eight_bits() -> None:
    """The guide: tex(x) = (1 - a) T[i] + a T[i + 1] with a in 1/256."""
    data = np.array([0, 65536], np.float32).reshape(1, 1, 2, 1)
    at = np.linspace(0.5, 1.5, 1025, dtype=np.float32).reshape(-1, 1)
    got = execute(
        "tex.1d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0}];",
        Texture("1d", "f32", [data], linear=True),
        at,
    )
    want = np.floor((at[:, 0].astype(np.float64) - 0.5) * 256 + 0.5) * 256
    np.testing.assert_array_equal(got[:, 0].view(np.float32), want)


def test_a_table_is_looked_up() -> None:
    """TL(x) = tex((N - 1) / R * x + 0.5) interpolates a table."""
    table = np.cumsum(np.arange(9)).astype(np.float32)
    x = np.arange(0, 33) / 4
    got = execute(
        "tex.1d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0}];",
        Texture("1d", "f32", [table.reshape(1, 1, -1, 1)], linear=True),
        (x + 0.5).astype(np.float32).reshape(-1, 1),
    )
    np.testing.assert_array_equal(got[:, 0].view(np.float32), np.interp(x, np.arange(9), table))


@pytest.mark.parametrize("geometry", FLAT)
@pytest.mark.parametrize("mode", ["clamp", "border"])
def test_integer_coordinates(geometry: str, mode: str) -> None:
    for shape in {geometry, "buffer"} if geometry == "1d" else {geometry}:
        t = texture(shape, "s32", 2, address=(mode,) * 3, border=(1.5, 0, 2, 0), linear=True)
        rng = np.random.default_rng(5)
        axes = AXES[geometry]
        at = rng.integers(-3, np.array(t.extent(0)[:axes]) + 3, (96, axes)).astype(np.int32)
        at[0] = 2**31 - 1
        at[1] = -(2**31)
        given, layers = layers_of(t, 96)
        words, operand = pack(t, geometry, at, given)
        got = execute(
            f"tex.{geometry}.v4.s32.s32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}];", t, words
        )
        sampler = Sampler(t)
        want = [
            sampler.texel(0, 0 if shape == "buffer" else int(n), [int(v) for v in a])
            for a, n in zip(at, layers, strict=True)
        ]
        check(t, got, want)


@pytest.mark.parametrize("geometry", FLAT)
def test_offsets(geometry: str) -> None:
    axes = AXES[geometry]
    for options in (
        {"normalized": True, "address": ("wrap", "mirror", "border")},
        {"address": ("border",) * 3},
    ):
        t = texture(geometry, "f32", 1, linear=True, **options)
        at = places(t, 64, 9)
        given, layers = layers_of(t, 64)
        words, operand = pack(t, geometry, at, given)
        offset = np.random.default_rng(2).integers(-8, 8, (64, 4)).astype(np.int32)
        names = [f"%w{words.shape[1] + n}" for n in range({1: 1, 2: 2, 3: 4}[axes])]
        got = execute(
            f"tex.{geometry}.v4.f32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}], {{{', '.join(names)}}};",
            t,
            np.hstack([words, offset.view(np.uint32)]),
        )
        sampler = Sampler(t)
        want = [
            sampler.read(list(map(float, a)), int(n), offset=[int(v) for v in o])
            for a, n, o in zip(at, layers, offset, strict=True)
        ]
        # x + offset / N of the reference rounds, which may move a weight by one step of 1/256.
        have = got.view(np.float32).astype(np.float64)
        assert np.mean(np.isclose(have, want, rtol=2**-23, atol=1e-30)) > 0.97
        np.testing.assert_allclose(have, want, atol=np.ptp(t.levels[0]) * axes / 200)


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


def test_halves() -> None:
    t = texture("1d", "f32", 4)
    at = np.arange(13, dtype=np.float32).reshape(-1, 1)
    want = t.levels[0][0, 0].astype(np.float16).view(np.uint16)
    got = execute(
        "tex.1d.v4.f16.f32 {%h0, %h1, %h2, %h3}, [%t, {%w0}]; mov.b32 %x0, {%h0, %h1}; mov.b32 %x1, {%h2, %h3};",
        t,
        at,
        2,
    )
    np.testing.assert_array_equal(got.view(np.uint16), want)
    got = execute("tex.1d.v2.f16x2.f32 {%x0, %x1}, [%t, {%w0}];", t, at, 2)
    np.testing.assert_array_equal(got.view(np.uint16), want)


def test_the_predicate_says_resident_and_sinks_drop_results() -> None:
    t = texture("2d", "u32", 4)
    text = "tex.2d.v4.u32.f32 {_, %x1, _, %x0}|%p1, [%t, {%w0, %w1}]; selp.u32 %x2, 1, 0, %p1;"
    got = execute(text, t, np.array([[3, 2]], np.float32), 3)
    assert got[0].tolist() == [*t.levels[0][0, 2, 3, [3, 1]].tolist(), 1]


def test_scalar_and_literal_coordinates() -> None:
    t = texture("1d", "u32")
    got = execute(
        "tex.1d.v4.u32.s32 {%x0, _, _, _}, [%t, %w0]; tex.1d.v4.u32.s32 {%x1, _, _, _}, [%t, {5}];",
        t,
        np.array([[4]], np.int32),
        2,
    )
    assert got[0].tolist() == t.levels[0][0, 0, [4, 5], 0].tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_any_coordinates_read_a_texel_or_the_border(geometry: str, value: float) -> None:
    for normalized, mode, linear in itertools.product((False, True), MODES, (False, True)):
        if not normalized and mode in ("wrap", "mirror"):
            continue
        t = texture(
            geometry,
            "f32",
            1,
            linear=linear,
            normalized=normalized,
            address=(mode,) * 3,
            seamless=linear,
        )
        at = np.full((4, AXES[geometry]), value, np.float32)
        at[1, 0], at[2, -1], at[3] = (
            0.5,
            -0.25,
            np.random.default_rng(1).normal(size=AXES[geometry]) * value,
        )
        words, operand = pack(t, geometry, at, np.array([0, 2**32 - 1, 1, 2]))
        got = execute(
            f"tex.{geometry}.v4.f32.f32 {{%x0, %x1, %x2, %x3}}, [%t, {operand}];", t, words
        )
        assert (np.abs(got[:, 0].view(np.float32)) <= np.abs(t.levels[0]).max()).all()


QUERIES = {
    "width": 32, "height": 16, "depth": 1, "channel_data_type": 0x10D2, "channel_order": 0x10B5, "normalized_coords": 1,
    "array_size": 0, "num_mipmap_levels": 3, "num_samples": 0, "force_unnormalized_coords": 0, "filter_mode": 1,
    "addr_mode_0": 0, "addr_mode_1": 1, "addr_mode_2": 4,
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_queries(query: str) -> None:
    t = texture(
        "2d",
        "u8",
        4,
        3,
        normalized_float=True,
        normalized=True,
        linear=True,
        address=("wrap", "mirror", "border"),
    )
    got = execute(f"txq.{query}.b32 %x0, [%t];", t, np.zeros((1, 1), np.uint32), 1)
    assert got[0, 0] == QUERIES[query]


@pytest.mark.parametrize(
    ("shape", "count"), [("a1d", 4), ("a2d", 3), ("acube", 3), ("cube", 0), ("3d", 0)]
)
def test_queries_of_arrays(shape: str, count: int) -> None:
    got = execute("txq.array_size.b32 %x0, [%t];", texture(shape), np.zeros((1, 1), np.uint32), 1)
    assert got[0, 0] == count


def test_queries_of_levels() -> None:
    t = texture("3d", "f16", 2, 3)
    text = "".join(
        f"txq.level.{q}.b32 %x{n}, [%t], %w0;" for n, q in enumerate(("width", "height", "depth"))
    )
    got = execute(text, t, np.array([[0], [1], [2], [3]], np.uint32), 3)
    assert got.tolist() == [*([*t.extent(n)] for n in range(3)), [0, 0, 0]]


NUMBERS = {"u8": 0x10DA, "u16": 0x10DB, "u32": 0x10DC, "s8": 0x10D7, "s16": 0x10D8, "s32": 0x10D9, "f16": 0x10DD, "f32": 0x10DE}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_queries_of_formats(kind: str) -> None:
    for channels, order in ((1, 0x10B0), (2, 0x10B2), (4, 0x10B5)):
        text = "txq.channel_data_type.b32 %x0, [%t]; txq.channel_order.b32 %x1, [%t];"
        got = execute(text, texture("1d", kind, channels), np.zeros((1, 1), np.uint32), 2)
        assert got[0].tolist() == [NUMBERS[kind], order]


def test_types_of_objects() -> None:
    text = "".join(
        f"istypep.{k} %p1, %t; selp.u32 %x{n}, 1, 0, %p1;"
        for n, k in enumerate(("texref", "samplerref", "surfref"))
    )
    for surface, want in ((False, [1, 0, 0]), (True, [0, 0, 1])):
        assert (
            execute(text, texture("1d", surface=surface), np.zeros((1, 1), np.uint32), 3)[
                0
            ].tolist()
            == want
        )


READ = "tex.1d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0}];"


@pytest.mark.parametrize(
    "value", [0, 1, 7 << 60, (7 << 60) | (1 << 20), 2**64 - 1, (7 << 60) | (3 << 20) | 1023]
)
def test_values_that_are_no_objects_end_the_launch(value: int) -> None:
    for text in (
        READ,
        "txq.width.b32 %x0, [%t];",
        "suld.b.1d.b32.zero %x0, [%t, {%w0}];",
        "suq.width.b32 %x0, [%t];",
    ):
        assert result_of(text, value, np.zeros(1, np.uint32)) == 700


def test_withdrawn_objects_and_other_geometries_end_the_launch() -> None:
    from ptx.harness import Arena

    arena = Arena()
    handle = texture("2d").place(arena)
    wrong = "tex.3d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w0, %w0, %w0}];"
    right = "tex.2d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w0}];"
    zero = np.zeros(1, np.uint32)
    assert result_of(right, handle, zero, arena) == 0
    assert result_of(wrong, handle, zero, arena) == 700
    assert result_of("suld.b.2d.b32.zero %x0, [%t, {%w0, %w0}];", handle, zero, arena) == 700
    library().Withdraw(handle)
    assert result_of(right, handle, zero, arena) == 700


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5}], %f6;",
            "tex.1d.v4.f32.f32 with a depth compare operand",
        ),
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], {%r1,%r2}, %f6;",
            "depth compare operand",
        ),
        (
            "tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], %f6;",
            "depth compare operand",
        ),
        ("tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, %rd2, {%f5}];", "a separate sampler"),
        (
            "tex.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r4}];",
            "'tex.2dms.v4.f32.s32'",
        ),
        (
            "tex.a2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r4}];",
            "'tex.a2dms.v4.f32.s32'",
        ),
    ],
)
def test_refused_by_name_at_load(text: str, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        link([source(text)])
    assert caught.value.result == 801
    assert caught.value.line > 4


assert reads_floats(Texture("1d", "f32", [np.zeros((1, 1, 1, 1), np.float32)]))
