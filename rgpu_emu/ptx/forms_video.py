"""Rows for the scalar and SIMD video instructions. Data only.

All their operands may name bytes or half-words of a register, so their letters are `V` and `v`.
"""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

SCALAR: Final = "scalar-video-instructions-"
SIMD: Final = "simd-video-instructions-"
_TWO: Final = "a=u32|s32 b=u32|s32"
_THREE: Final = f"d=u32|s32 {_TWO}"
_SECOND: Final = "second?=add|min|max"
_COMPARED: Final = "cmp=eq|ne|lt|le|gt|ge"
_SHIFTED: Final = f"d=u32|s32 a=u32|s32 b=u32 ?sat mode=clamp|wrap {_SECOND}"
_BINARY: Final = ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
_PARALLEL: Final = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")


def _section(width: int) -> str:
    return SIMD + "-".join(f"{op}{width}" for op in _PARALLEL)


ROWS: Final[tuple[Row, ...]] = (
    *(
        Row(op, f"{_THREE} ?sat {_SECOND}", "V v v v?", "video", SCALAR + "-".join(_BINARY))
        for op in _BINARY
    ),
    Row("vshl", _SHIFTED, "V v v v?", "video", SCALAR + "vshl-vshr"),
    Row("vshr", _SHIFTED, "V v v v?", "video", SCALAR + "vshl-vshr"),
    Row("vmad", f"{_THREE} ?po ?sat scale?=shr7|shr15", "V v v v", "video_mad", SCALAR + "vmad"),
    Row("vset", f"{_TWO} {_COMPARED} {_SECOND}", "V v v v?", "video", SCALAR + "vset"),
    *(
        Row(f"{op}{width}", f"{_THREE} {way}", "V v v v", "video_simd", _section(width))
        for width in (2, 4)
        for op in _PARALLEL
        for way in ("?sat", "add")
    ),
    Row("vset2", f"{_TWO} {_COMPARED} ?add", "V v v v", "video_simd", SIMD + "vset2"),
    Row("vset4", f"{_TWO} {_COMPARED} ?add", "V v v v", "video_simd", SIMD + "vset4"),
)
