"""What kernels ask of texture objects, and values that are none."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import source
from ptx.texture import execute, library, result_of
from ptx.texture_draws import (
    texture,
)

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

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
