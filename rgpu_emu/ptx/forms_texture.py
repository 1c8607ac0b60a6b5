"""Rows for texture and surface instructions. Data only."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

T_: Final = "texture-instructions-"
S_: Final = "surface-instructions-"
_TYPES: Final = ("vec=v4 d=u32|s32|f32|f16", "vec=v2 d=f16x2")
_FLAT: Final = "geom=1d|2d|3d|a1d|a2d"
_ALL: Final = f"{_FLAT}|cube|acube"
# Mipmap level, operands, coordinates.
_READS: Final = (
    ("mip?=base", "T t e? f?", (f"{_ALL} {{}} c=f32", f"{_FLAT} {{}} c=s32")),
    ("mip=level", "T t s e? f?", (f"{_ALL} {{}} c=f32", f"{_FLAT} {{}} c=s32")),
    ("mip=grad", "T t S S e? f?", (f"{_ALL} {{}} c=f32",)),
)
_EXTENTS: Final = "width|height|depth"
_TEXTURE_QUERIES: Final = (
    f"{_EXTENTS}|channel_data_type|channel_order|normalized_coords|array_size|num_mipmap_levels|"
    "num_samples|force_unnormalized_coords|filter_mode|addr_mode_0|addr_mode_1|addr_mode_2"
)

TEXTURE: Final[tuple[Row, ...]] = (
    *(
        Row("tex", f"{mip} {pattern.format(types)}", operands, "texture", T_ + "tex")
        for mip, operands, patterns in _READS
        for pattern in patterns
        for types in _TYPES
    ),
    Row(
        "tld4",
        "comp=r|g|b|a geom=2d|a2d|cube|acube vec=v4 d=u32|s32|f32 c=f32",
        "T t e? f?",
        "texture",
        T_ + "tld4",
    ),
    Row("txq", f"query={_TEXTURE_QUERIES} b32", "d m", "texture_query", T_ + "txq"),
    Row("txq", f"level query={_EXTENTS} b32", "d m s", "texture_query", T_ + "txq"),
    Row("istypep", "kind=texref|samplerref|surfref", "d s", "texture_type", T_ + "istypep"),
)

_MODE: Final = "mode?=trap|clamp|zero"
_DIM: Final = "geom=1d|2d|3d"
_BYTES: Final = f"vec?=v2|v4 t=b8|b16|b32|b64 {_MODE}"

SURFACE: Final[tuple[Row, ...]] = (
    Row("suld", f"b {_FLAT} cop?=ca|cg|cs|cv {_BYTES}", "D t", "surface_load", S_ + "suld"),
    Row("sust", f"b {_FLAT} cop?=wb|cg|cs|wt {_BYTES}", "t S", "surface_store", S_ + "sust"),
    Row("sust", f"p {_DIM} vec?=v2|v4 t=b32 {_MODE}", "t S", "surface_store", S_ + "sust"),
    *(
        Row("sured", f"{pattern} {_MODE}", "t s", "surface_reduce", S_ + "sured")
        for pattern in (
            f"b op=add {_DIM} t=u32|s32|u64",
            f"b op=min|max {_DIM} t=u32|s32|u64|s64",
            f"b op=and|or {_DIM} t=b32",
            f"p op=add|min|max|and|or {_DIM} t=b32",
            f"p op=min|max {_DIM} t=b64",
        )
    ),
    Row(
        "suq",
        f"query={_EXTENTS}|channel_data_type|channel_order|array_size|memory_layout b32",
        "d m",
        "texture_query",
        S_ + "suq",
    ),
)
ROWS: Final = TEXTURE + SURFACE
