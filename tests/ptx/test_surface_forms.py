"""Surface instructions against NumPy: every form, geometry, format and rule for places outside."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.harness import Arena
from ptx.texture import Texture, entry, execute, library, result_of
from ptx.texture_draws import AXES, DTYPES, FLAT, SIZES, texels

from rgpu_emu.ptx.link import link

Array = npt.NDArray[Any]
MODES = ("trap", "clamp", "zero")
_SHORT = ("1d", "2d", "3d")
_REDUCTIONS = {
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32",), "or": ("b32",),
}  # fmt: skip
FORMS = [
    *(
        f"suld.b.{g}{cop}{vec}.{t}{mode}"
        for g in FLAT
        for cop in ("", ".ca", ".cg", ".cs", ".cv")
        for vec in ("", ".v2", ".v4")
        for t in ("b8", "b16", "b32", "b64")
        for mode in ("", ".trap", ".clamp", ".zero")
    ),
    *(
        f"sust.b.{g}{cop}{vec}.{t}{mode}"
        for g in FLAT
        for cop in ("", ".wb", ".cg", ".cs", ".wt")
        for vec in ("", ".v2", ".v4")
        for t in ("b8", "b16", "b32", "b64")
        for mode in ("", ".trap", ".clamp", ".zero")
    ),
    *(
        f"sust.p.{g}{vec}.b32.{mode}"
        for g in _SHORT
        for vec in ("", ".v2", ".v4")
        for mode in MODES
    ),
    *(
        f"sured.b.{op}.{g}.{t}.{m}"
        for op, ts in _REDUCTIONS.items()
        for g in _SHORT
        for t in ts
        for m in MODES
    ),
    *(f"sured.p.{op}.{g}.b32.{mode}" for op in _REDUCTIONS for g in _SHORT for mode in MODES),
    *(f"sured.p.{op}.{g}.b64.{mode}" for op in ("min", "max") for g in _SHORT for mode in MODES),
    *(
        f"suq.{q}.b32"
        for q in ("width", "height", "depth", "channel_data_type", "channel_order", "array_size")
    ),
    "suq.memory_layout.b32",
]


def surface(shape: str, kind: str = "u32", channels: int = 1) -> Texture:
    slices, rows, columns = SIZES[shape]
    return Texture(shape, kind, [texels(kind, (slices, rows, columns, channels))], surface=True)


def operand(geometry: str) -> tuple[str, int]:
    """The operand with the coordinates in the first words, and how many they are."""
    count = AXES[geometry] + geometry.startswith("a")
    padded = 4 if count == 3 else count
    return "[%t, {" + ", ".join(f"%w{n}" for n in range(padded)) + "}]", padded


def bytes_of(t: Texture, data: Array | None = None) -> Array:
    """The bytes as [slice, row, byte]."""
    level = t.levels[0] if data is None else data
    return np.ascontiguousarray(level).view(np.uint8).reshape(*level.shape[:2], -1)


def places(
    t: Texture, geometry: str, size: int, count: int, *, inside: bool, seed: int = 1
) -> Array:
    """Words of coordinates: the layer first, the column in bytes."""
    rng = np.random.default_rng(seed)
    slices, rows, width = bytes_of(t).shape
    slack = 0 if inside else 2
    columns = rng.integers(-slack, width // size + slack, count) * size
    lines = rng.integers(-slack, rows + slack, count)
    layers = rng.integers(-slack if geometry == "3d" else 0, slices + slack, count)
    ways = {"1d": (columns,), "2d": (columns, lines), "3d": (columns, lines, layers, layers), "a1d": (layers, columns),
            "a2d": (layers, columns, lines, lines)}  # fmt: skip
    return np.stack(ways[geometry], 1).astype(np.int32)


def resolve(
    t: Texture, geometry: str, at: Array, size: int, *, clamp: bool
) -> tuple[int, int, int] | None:
    """Slice, row and byte of an access; None if it is outside."""
    slices, rows, width = bytes_of(t).shape
    first = 1 if geometry.startswith("a") else 0
    column, line = int(at[first]), int(at[first + 1]) if AXES[geometry] > 1 else 0
    layer = int(at[0]) if first else int(at[2]) if geometry == "3d" else 0
    limits = (slices - 1, rows - 1, (width // size - 1) * size)
    moved = tuple(
        min(max(v, 0), most) for v, most in zip((layer, line, column), limits, strict=True)
    )
    return moved if clamp or moved == (layer, line, column) else None  # type: ignore[return-value]


VECTORS = ((1, ""), (2, ".v2"), (4, ".v4"))


@pytest.mark.full
@pytest.mark.parametrize("geometry", FLAT)
@pytest.mark.parametrize("mode", MODES)
def test_loads(geometry: str, mode: str) -> None:
    t = surface(geometry, "u32", 4)
    raw = bytes_of(t)
    place, words = operand(geometry)
    for bits, (count, vector) in itertools.product((8, 16, 32, 64), VECTORS):
        size = bits // 8 * count
        at = places(t, geometry, size, 64, inside=mode == "trap")
        assert at.shape[1] == words
        names = [
            {8: "%h{}", 16: "%h{}", 32: "%x{}", 64: "%q{}"}[bits].format(n) for n in range(count)
        ]
        unpack = {
            8: "cvt.u32.u16 %x{0}, %h{0};", 16: "cvt.u32.u16 %x{0}, %h{0};", 32: "",
            64: "mov.b64 {{%x{1}, %x{2}}}, %q{0};",
        }[bits]  # fmt: skip
        rest = "".join(unpack.format(n, 2 * n, 2 * n + 1) for n in range(count))
        results = count * (2 if bits == 64 else 1)
        target = names[0] if count == 1 else "{" + ", ".join(names) + "}"
        got = execute(
            f"suld.b.{geometry}{vector}.b{bits}.{mode} {target}, {place}; {rest}", t, at, results
        )
        for a, have in zip(at, got, strict=True):
            found = resolve(t, geometry, a, size, clamp=mode == "clamp")
            want = (
                np.zeros(size, np.uint8)
                if found is None
                else raw[found[0], found[1], found[2] : found[2] + size]
            )
            wide = np.frombuffer(want.tobytes(), f"u{min(bits, 32) // 8}").astype(np.uint32)
            assert have.tolist() == wide.tolist(), (a, found)


def stored(instruction: str, t: Texture, words: Array) -> Array:
    """The surface after one thread after the other has run the instruction."""
    from ptx.harness import Kernel

    made = Kernel(entry(instruction, words.shape[1], 1))
    made.arena = Arena()
    handle = t.place(made.arena)
    given, out = made.arena.put(words.view(np.uint32)), made.arena.put(np.zeros(64, np.uint32))
    assert len(words) == 32
    made.launch((1,), (32,), np.uint64(handle), np.uint64(given), np.uint64(out))
    library().Withdraw(handle)
    return t.texels(made.arena)


@pytest.mark.full
@pytest.mark.parametrize("geometry", FLAT)
@pytest.mark.parametrize("mode", MODES)
def test_stores(geometry: str, mode: str) -> None:
    place, words = operand(geometry)
    for bits, (count, vector) in itertools.product((8, 16, 32, 64), VECTORS):
        t = surface(geometry, "u32", 4)
        size = bits // 8 * count
        at = places(t, geometry, size, 32, inside=mode == "trap", seed=bits + count)
        data = np.random.default_rng(bits).integers(0, 2**32, (32, 8), np.uint32)
        pick = {
            8: "cvt.u16.u32 %h{0}, %w{1};", 16: "cvt.u16.u32 %h{0}, %w{1};", 32: "mov.b32 %x{0}, %w{1};",
            64: "mov.b64 %q{0}, {{%w{2}, %w{3}}};",
        }[bits]  # fmt: skip
        before = "".join(
            pick.format(n, words + n, words + 2 * n, words + 2 * n + 1) for n in range(count)
        )
        names = [
            {8: "%h{}", 16: "%h{}", 32: "%x{}", 64: "%q{}"}[bits].format(n) for n in range(count)
        ]
        value = names[0] if count == 1 else "{" + ", ".join(names) + "}"
        have = stored(
            f"{before} sust.b.{geometry}{vector}.b{bits}.{mode} {place}, {value};",
            t,
            np.hstack([at.view(np.uint32), data]),
        )
        want = bytes_of(t).copy()
        for a, row in zip(at, data, strict=True):
            found = resolve(t, geometry, a, size, clamp=mode == "clamp")
            source = row[: count * 2] if bits == 64 else row[:count].astype(f"u{bits // 8}")
            if found is not None:
                want[found[0], found[1], found[2] : found[2] + size] = source.view(np.uint8)
        np.testing.assert_array_equal(bytes_of(t, have), want)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("kind", [*DTYPES])
def test_formatted_stores(kind: str, channels: int) -> None:
    """sust.p converts words to the surface's format: floats are rounded, integers limited."""
    if kind == "unorm1010102" and channels != 1:
        return
    t = surface("2d", kind, channels)
    rng = np.random.default_rng(8)
    number = np.arange(32, dtype=np.int32)
    at = np.stack([number % 12, number // 12], 1)
    floats = kind in ("f16", "f32", "unorm1010102")
    data = rng.normal(size=(32, 4)).astype(np.float32).view(np.uint32)
    if not floats:
        data = (
            (rng.integers(-(2**31), 2**31, (32, 4)) >> rng.integers(0, 31, (32, 4)))
            .astype(np.int32)
            .view(np.uint32)
        )
    have = stored(
        "sust.p.2d.v4.b32.trap [%t, {%w0, %w1}], {%w2, %w3, %w4, %w5};",
        t,
        np.hstack([at.view(np.uint32), data]),
    )
    want = t.levels[0].copy()
    for (x, y), row in zip(at, data, strict=True):
        if kind == "unorm1010102":
            parts = np.clip(row.view(np.float32).astype(np.float64), 0, 1)
            packed = [
                int(np.rint(p * most)) for p, most in zip(parts, (1023, 1023, 1023, 3), strict=True)
            ]
            want[0, y, x, 0] = sum(v << 10 * n for n, v in enumerate(packed))
        elif floats:
            want[0, y, x] = row.view(np.float32)[:channels].astype(DTYPES[kind])
        else:
            values = row.view(np.int32) if kind.startswith("s") else row
            info = np.iinfo(DTYPES[kind])
            want[0, y, x] = np.clip(values[:channels].astype(np.int64), info.min, info.max)
    np.testing.assert_array_equal(have.view(np.uint8), want.view(np.uint8))


def test_formatted_stores_of_fewer_elements() -> None:
    t = surface("1d", "u16", 4)
    words = np.stack([np.arange(32) % 13, np.arange(32)], 1).astype(np.uint32)
    have = stored("sust.p.1d.b32.trap [%t, {%w0}], %w1;", t, words)
    assert have[0, 0, :, 0].tolist() == [26, 27, 28, 29, 30, 31, *range(19, 26)]
    assert not have[0, 0, :, 1:].any()


OPERATIONS = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


@pytest.mark.parametrize("geometry", _SHORT)
@pytest.mark.parametrize("mode", MODES)
def test_reductions(geometry: str, mode: str) -> None:
    place, words = operand(geometry)
    for op, types in _REDUCTIONS.items():
        for kind in types:
            size = int(kind[1:]) // 8
            t = surface(geometry, "u32", 2)
            at = places(t, geometry, size, 32, inside=mode == "trap", seed=size)
            data = np.random.default_rng(3).integers(0, 2**32, (32, 2), np.uint32)
            value = (
                f"mov.b64 %q0, {{%w{words}, %w{words + 1}}};"
                if size == 8
                else f"mov.b32 %x0, %w{words};"
            )
            register = "%q0" if size == 8 else "%x0"
            have = stored(
                f"{value} sured.b.{op}.{geometry}.{kind}.{mode} {place}, {register};",
                t,
                np.hstack([at.view(np.uint32), data]),
            )
            want = bytes_of(t).copy()
            dtype = f"{'i' if kind[0] == 's' else 'u'}{size}"
            for a, row in zip(at, data, strict=True):
                found = resolve(t, geometry, a, size, clamp=mode == "clamp")
                if found is None:
                    continue
                cell = want[found[0], found[1], found[2] : found[2] + size]
                old, new = (int(np.frombuffer(v.tobytes()[:size], dtype)[0]) for v in (cell, row))
                result = OPERATIONS[op](old, new) % (1 << 8 * size)
                cell[:] = np.frombuffer(result.to_bytes(size, "little"), np.uint8)
            np.testing.assert_array_equal(bytes_of(t, have), want)


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("op", _REDUCTIONS)
def test_reductions_of_texels(op: str, kind: str) -> None:
    """sured.p counts texels, and takes the type of the numbers from the surface."""
    t = surface("2d", kind)
    at = np.random.default_rng(2).integers(0, (12, 7), (32, 2)).astype(np.int32)
    data = np.random.default_rng(3).integers(0, 2**32, (32, 1), np.uint32)
    have = stored(
        f"sured.p.{op}.2d.b32.trap [%t, {{%w0, %w1}}], %w2;",
        t,
        np.hstack([at.view(np.uint32), data]),
    )
    want = t.levels[0].copy()
    for (x, y), value in zip(at, data[:, 0].view(DTYPES[kind]), strict=True):
        result = OPERATIONS[op](int(want[0, y, x, 0]), int(value)) % 2**32
        want[0, y, x, 0] = np.uint32(result).view(DTYPES[kind])
    np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize(
    ("kind", "op"), [("u32", "min"), ("u32", "max"), ("s32", "min"), ("s32", "max")]
)
def test_wide_reductions_of_texels(kind: str, op: str) -> None:
    t = surface("1d", kind, 2)
    at = np.random.default_rng(2).integers(0, 13, (32, 1)).astype(np.int32)
    data = np.random.default_rng(3).integers(0, 2**32, (32, 2), np.uint32)
    text = f"mov.b64 %q0, {{%w1, %w2}}; sured.p.{op}.1d.b64.trap [%t, {{%w0}}], %q0;"
    have = stored(text, t, np.hstack([at.view(np.uint32), data]))
    dtype = "u8" if kind == "u32" else "i8"
    want = t.levels[0].copy()
    cells = want.view(dtype)
    for x, value in zip(at[:, 0], np.ascontiguousarray(data).view(dtype)[:, 0], strict=True):
        cells[0, 0, x, 0] = OPERATIONS[op](int(cells[0, 0, x, 0]), int(value))
    np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("shape", ["cube", "acube"])
def test_faces_of_cubes_are_layers(shape: str) -> None:
    t = surface(shape)
    words = np.array([[n, 8, 3, 0] for n in range(t.layers)], np.uint32)
    got = execute("suld.b.a2d.b32.trap %x0, [%t, {%w0, %w1, %w2, %w3}];", t, words, 1)
    assert got[:, 0].tolist() == t.levels[0][:, 3, 2, 0].tolist()


QUERIES = {"width": 9, "height": 6, "depth": 1, "channel_data_type": 0x10D9, "channel_order": 0x10B2, "array_size": 3, "memory_layout": 0}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_queries(query: str) -> None:
    t = surface("a2d", "s32", 2)
    assert (
        execute(f"suq.{query}.b32 %x0, [%t];", t, np.zeros((1, 1), np.uint32), 1)[0, 0]
        == QUERIES[query]
    )


OUTSIDE = [(-1, 0), (2**31 - 4, 0), (-(2**31), 0), (48, 0), (0, 7), (0, -1)]


@pytest.mark.parametrize(
    "text",
    [
        "suld.b.2d.b32 %x0, [%t, {%w0, %w1}];",
        "suld.b.2d.b32.trap %x0, [%t, {%w0, %w1}];",
        "sust.b.2d.b32.trap [%t, {%w0, %w1}], %i;",
        "sured.b.add.2d.u32.trap [%t, {%w0, %w1}], %i;",
    ],
)
def test_places_outside_end_the_launch(text: str) -> None:
    for x, y in OUTSIDE:
        arena = Arena()
        handle = surface("2d").place(arena)
        want = 716 if x == -1 else 700
        assert result_of(text, handle, np.array([x, y], np.int32), arena) == want


def test_misaligned_offsets_end_the_launch() -> None:
    for text in (
        "suld.b.1d.b64.zero %q0, [%t, {%w0}];",
        "sust.b.1d.v2.b32.clamp [%t, {%w0}], {%i, %i};",
    ):
        arena = Arena()
        assert result_of(text, surface("1d").place(arena), np.array([4], np.int32), arena) == 716


@pytest.mark.parametrize(
    ("kind", "channels", "bits"), [("u8", 4, 32), ("f32", 1, 32), ("u32", 2, 32), ("u32", 1, 64)]
)
def test_reductions_of_other_texels_end_the_launch(kind: str, channels: int, bits: int) -> None:
    arena = Arena()
    handle = surface("1d", kind, channels).place(arena)
    text = f"sured.p.min.1d.b{bits}.trap [%t, {{%w0}}], {'%t' if bits == 64 else '%i'};"
    assert result_of(text, handle, np.zeros(1, np.uint32), arena) == 719


def test_textures_are_no_surfaces() -> None:
    arena = Arena()
    t = surface("1d")
    handle = t.place(arena)
    text = "tex.1d.v4.f32.s32 {%x0, %x1, %x2, %x3}, [%t, {%w0}];"
    assert result_of(text, handle, np.zeros(1, np.uint32), arena) == 700


def test_the_forms_are_all_known() -> None:
    link([entry("ret;", 1, 1)])
    from rgpu_emu.ptx.instructions import TABLE

    assert len({TABLE.form(name).name for name in FORMS}) == len(FORMS)
