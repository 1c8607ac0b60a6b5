"""Special registers. https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.codegen import host

if TYPE_CHECKING:
    from rgpu_emu.lower.frame import Builder

_DIRECT: Final = {
    "%tid.x": "%tx",
    "%tid.y": "%ty",
    "%tid.z": "%tz",
}
_FIELDS: Final = {
    **{f"%ntid.{c}": f"block.{c}" for c in "xyz"},
    **{f"%nctaid.{c}": f"grid.{c}" for c in "xyz"},
    **{f"%ctaid.{c}": f"ctaid.{c}" for c in "xyz"},
    # Without clusters each block is one of its own.
    **{f"%nclusterid.{c}": f"grid.{c}" for c in "xyz"},
    **{f"%clusterid.{c}": f"ctaid.{c}" for c in "xyz"},
    "%smid": "smid",
    "%nsmid": "sm_count",
    "%gridid": "grid_id",
    "%dynamic_smem_size": "dynamic_shared",
    "%total_smem_size": "shared_bytes",
    "%aggr_smem_size": "shared_bytes",
}
_ZERO: Final = frozenset(
    (
        "%tid.w",
        "%ctaid.w",
        "%clusterid.w",
        "%cluster_ctarank",
        *(f"%cluster_ctaid.{c}" for c in "xyzw"),
        "%is_explicit_cluster",
        "%current_graph_exec",
        "%reserved_smem_offset_begin",
        "%reserved_smem_offset_end",
        "%reserved_smem_offset_cap",
        "%reserved_smem_offset_0",
        "%reserved_smem_offset_1",
    )
)
_ONE: Final = frozenset(
    (
        "%ntid.w",
        "%nctaid.w",
        "%nclusterid.w",
        "%cluster_nctarank",
        *(f"%cluster_nctaid.{c}" for c in "xyzw"),
    )
)


def special(e: Builder, name: str) -> tuple[str, str]:
    """Returns the value and the IR type of a special register."""
    if name in _DIRECT:
        return _DIRECT[name], "i32"
    if name in _FIELDS:
        return e.env(_FIELDS[name]), "i32"
    if name in _ZERO:
        return "0", "i32"
    if name in _ONE:
        return "1", "i32"
    if name.startswith("%pm"):  # performance counters; none is set up
        return "0", "i64" if name.endswith("_64") else "i32"
    if name.startswith("%envreg"):
        return _half(e, e.env("grid_workspace"), high=name == "%envreg1")
    if name.startswith("%clock"):
        counter = "cycle" if host().triple.startswith("x86_64") else "steady"  # others trap
        cycles = e.intrinsic("i64", f"llvm.read{counter}counter")
        if name == "%clock64":
            return cycles, "i64"
        return _half(e, cycles, high=name == "%clock_hi")
    if name.startswith("%globaltimer"):
        now = e.op(f"call i64 {e.env('runtime.globaltimer')}()")
        return (now, "i64") if name == "%globaltimer" else _half(e, now, high=name.endswith("_hi"))
    return _warp(e, name), "i32"


def _half(e: Builder, value: str, *, high: bool) -> tuple[str, str]:
    if high:
        value = e.op(f"lshr i64 {value}, 32")
    return e.op(f"trunc i64 {value} to i32"), "i32"


def _warp(e: Builder, name: str) -> str:
    if name == "%warpid":
        return e.op(f"lshr i32 {e.env('linear')}, 5")
    if name == "%nwarpid":
        rounded = e.op(f"add i32 {e.env('thread_count')}, 31")
        return e.op(f"lshr i32 {rounded}, 5")
    lane = lane_id(e)
    if name == "%laneid":
        return lane
    eq = e.op(f"shl i32 1, {lane}")
    lt = e.op(f"sub i32 {eq}, 1")
    le = e.op(f"or i32 {eq}, {lt}")
    masks = {"%lanemask_eq": eq, "%lanemask_lt": lt, "%lanemask_le": le}
    if name in masks:
        return masks[name]
    return e.op(f"xor i32 {lt if name == '%lanemask_ge' else le}, -1")


def lane_id(e: Builder) -> str:
    return e.op(f"and i32 {e.env('linear')}, 31")
