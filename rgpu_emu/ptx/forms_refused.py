"""What the PTX manual has and the emulated device does not run, with the reason. Data only.

The first row that fits an instruction without a row in the instruction table gives the reason of
its refusal. `tests/ptx/manual.py` lists the instructions of the manual.
"""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Refusal

_DEVICE: Final = "and the emulated device is sm_80"
SM_90: Final = f"needs sm_90, {_DEVICE}"
SM_90A: Final = f"needs sm_90a, {_DEVICE}"
SM_100: Final = f"needs sm_100 or later, {_DEVICE}"
CLUSTER: Final = f"needs clusters of blocks, so sm_90, {_DEVICE}"
TENSOR: Final = f"needs tensor maps, so sm_90, {_DEVICE}"
MULTICAST: Final = f"needs multicast objects, so sm_90, {_DEVICE}"
NO_SYNC: Final = "needs sm_6x or earlier: write the form with .sync, which names the threads"
MULTISAMPLE: Final = "needs multisample textures, which no call of the driver API makes"
GRADIENTS: Final = "has no meaning: integer coordinates have no gradients"

_SMALL_FLOATS: Final = ("e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")

REFUSALS: Final[tuple[Refusal, ...]] = (
    # Clusters
    Refusal("barrier", "cluster", CLUSTER),
    Refusal("mapa", "", CLUSTER),
    Refusal("getctarank", "", CLUSTER),
    Refusal("*", "shared::cluster", CLUSTER),
    Refusal("fence", "sync_restrict::*", CLUSTER),
    Refusal("clusterlaunchcontrol", "", SM_100),
    # Asynchronous operations
    Refusal("cp", "tensor", TENSOR),
    Refusal("tensormap", "", TENSOR),
    Refusal("prefetch", "tensormap", TENSOR),
    Refusal("fence", "tensormap::generic", TENSOR),
    Refusal("cp", "reduce", SM_90),
    Refusal("cp", "cp_mask", SM_100),
    Refusal("st", "async", CLUSTER),
    Refusal("red", "async", CLUSTER),
    Refusal("st", "bulk", SM_100),
    Refusal("multimem", "", MULTICAST),
    Refusal("fabric", "", SM_100),
    # Warp groups and the tensor cores of later devices
    Refusal("wgmma", "", SM_90A),
    Refusal("setmaxnreg", "", SM_90A),
    Refusal("tcgen05", "", SM_100),
    Refusal("mma", "kind::*", SM_100),
    Refusal("ldmatrix", "m16n16", SM_100),
    Refusal("ldmatrix", "m8n16", SM_100),
    Refusal("stmatrix", "m16n8", SM_100),
    # Memory
    Refusal("atom", "v2", SM_90),
    Refusal("atom", "v4", SM_90),
    Refusal("atom", "v8", SM_90),
    Refusal("red", "v2", SM_90),
    Refusal("red", "v4", SM_90),
    Refusal("red", "v8", SM_90),
    Refusal("atom", "b128", SM_90),
    # Arithmetic
    Refusal("add", "f32x2", SM_100),
    Refusal("sub", "f32x2", SM_100),
    Refusal("mul", "f32x2", SM_100),
    Refusal("fma", "f32x2", SM_100),
    *(
        Refusal(op, f"f32 {half}", SM_100)
        for op in ("add", "sub", "fma")
        for half in ("f16", "bf16")
    ),
    Refusal("fma", "oob", SM_90),
    Refusal("min", "!xorsign abs f32", SM_100),
    Refusal("max", "!xorsign abs f32", SM_100),
    Refusal("cvt", "rs", SM_100),
    *(Refusal("cvt", kind, SM_100) for kind in _SMALL_FLOATS),
    # Textures
    Refusal("tex", "2dms", MULTISAMPLE),
    Refusal("tex", "a2dms", MULTISAMPLE),
    Refusal("tex", "grad s32", GRADIENTS),
    # Before independent threads
    Refusal("shfl", "!sync", NO_SYNC),
    Refusal("vote", "!sync", NO_SYNC),
)
