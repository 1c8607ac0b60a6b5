"""The Python copy of device/kernel_abi.h: offsets, operation numbers, kinds. Change both
together.
"""

from __future__ import annotations

from typing import Final

KERNEL_ABI: Final = 7

KIND_LOOP: Final = 0
KIND_COROUTINE: Final = 1
FLAG_BAR_ONLY: Final = 1

OP: Final[dict[str, int]] = {
    name: number
    for number, name in enumerate(
        [
            "running",
            "bar.sync",
            "bar.arrive",
            "bar.red.popc",
            "bar.red.and",
            "bar.red.or",
            "shfl.idx",
            "shfl.up",
            "shfl.down",
            "shfl.bfly",
            "vote.all",
            "vote.any",
            "vote.uni",
            "vote.ballot",
            "match.any",
            "match.all",
            "redux.add",
            "redux.min.s",
            "redux.max.s",
            "redux.min.u",
            "redux.max.u",
            "redux.and",
            "redux.or",
            "redux.xor",
            "warp.sync",
            "activemask",
            "yield",
            "matrix",
            "together",
        ]
    )
}

THREAD_BYTES: Final = 64
THREAD: Final = {"op": 0, "mask": 4, "a": 8, "b": 12, "value": 16, "result": 24, "place": 32}

MATRIX_KIND: Final = {
    name: number
    for number, name in enumerate(
        (
            "mma",
            "quads",
            "wmma",
            "load.a",
            "load.b",
            "load.c",
            "store.d",
            "ldmatrix",
            "stmatrix",
            "movmatrix",
        )
    )
}
MATRIX_TYPE: Final = {
    name: number
    for number, name in enumerate(
        ("f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "u8", "s8", "u4", "s4", "b1", "s32")
    )
}
MATRIX_FLAG: Final = {
    name: 1 << number
    for number, name in enumerate(
        ("satfinite", "sparse", "and", "col.a", "col.b", "shared", "trans")
    )
}
MATRIX_BYTES: Final = 160
MATRIX: Final = {"stride": 12, "a": 16, "b": 80, "c": 112, "metadata": 144, "address": 152}

RUNTIME: Final = {
    "trap": 0,
    "assertfail": 8,
    "vprintf": 16,
    "malloc": 24,
    "free": 32,
    "globaltimer": 40,
    "function_address": 48,
    "texture": 56,
}

TEXTURE_OP: Final = {
    name: number
    for number, name in enumerate(
        (
            "read",
            "level",
            "gradient",
            "gather",
            "query",
            "is.texture",
            "is.surface",
            "surface.query",
            "load",
            "store",
            "store.texel",
            "reduce",
            "reduce.texel",
        )
    )
}
TEXTURE_GEOMETRY: Final = {
    name: number for number, name in enumerate(("1d", "2d", "3d", "a1d", "a2d", "cube", "acube"))
}
TEXTURE_ATTRIBUTE: Final = {
    name: number
    for number, name in enumerate(
        (
            "width",
            "height",
            "depth",
            "channel_data_type",
            "channel_order",
            "normalized_coords",
            "array_size",
            "num_mipmap_levels",
            "num_samples",
            "force_unnormalized_coords",
            "filter_mode",
            "addr_mode_0",
            "addr_mode_1",
            "addr_mode_2",
            "memory_layout",
        )
    )
}
TRAP_STACK_FULL: Final = 719 | 1 << 16  # kTrapStackFull
SURFACE_OUTSIDE: Final = {name: number for number, name in enumerate(("trap", "clamp", "zero"))}
SURFACE_REDUCTION: Final = {
    name: number
    for number, name in enumerate(("add", "and", "or", "min.u", "max.u", "min.s", "max.s"))
}
TEXTURE_BYTES: Final = 112
TEXTURE: Final = {
    "object": 0,
    "op": 8,
    "layer": 16,
    "at": 20,
    "offset": 32,
    "lod": 44,
    "dx": 48,
    "dy": 60,
    "data": 72,
}

# name: (offset, IR type)
LAUNCH: Final = {
    "band_base": (0, "i64"),
    "band_bytes": (8, "i64"),
    "globals": (16, "ptr"),
    "params": (24, "ptr"),
    "runtime": (32, "ptr"),
    "stop": (40, "ptr"),
    "functions": (48, "ptr"),
    "grid.x": (56, "i32"),
    "grid.y": (60, "i32"),
    "grid.z": (64, "i32"),
    "block.x": (68, "i32"),
    "block.y": (72, "i32"),
    "block.z": (76, "i32"),
    "dynamic_shared": (80, "i32"),
    "grid_id": (84, "i32"),
    "sm_count": (88, "i32"),
    "grid_workspace": (96, "i64"),
}
BLOCK: Final = {
    "launch": (0, "ptr"),
    "shared_base": (8, "i64"),
    "shared_bytes": (16, "i32"),
    "local_bytes": (20, "i32"),
    "local_base": (24, "i64"),
    "threads": (32, "ptr"),
    "ctaid.x": (40, "i32"),
    "ctaid.y": (44, "i32"),
    "ctaid.z": (48, "i32"),
    "thread_count": (52, "i32"),
    "smid": (56, "i32"),
}

FUNCTION_TOKEN: Final = 0x7267 << 48
PARAM_PADDING: Final = 64
# The first arguments of every emitted function.
ENV_TYPES: Final = ("ptr", "i32", "i32", "i32", "i64")
ENV_NAMES: Final = ("%bi", "%tx", "%ty", "%tz", "%lsp")
