"""Texture instructions against NumPy: every geometry, format, filter and addressing mode."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ptx.texel import Sampler, check, reads_floats
from ptx.texture import MODES, Texture, execute
from ptx.texture_draws import (
    AXES,
    DTYPES,
    FLAT,
    GEOMETRIES,
    compare,
    layers_of,
    pack,
    places,
    texture,
)

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


assert reads_floats(Texture("1d", "f32", [np.zeros((1, 1, 1, 1), np.float32)]))
