"""Small hand-written kernels: a body between `in`/`out` pointers, run over one block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.harness import HEADER, Kernel

Array = npt.NDArray[Any]
PROLOGUE = """
    .reg .pred %p<10>;
    .reg .b16 %h<20>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<40>;
    .reg .f32 %f<20>;
    .reg .f64 %fd<20>;
    .reg .b64 %in, %out, %at;
    .reg .b32 %tid;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %tid, %tid.x;
"""


def source(body: str, *, before: str = "") -> str:
    """A module with the entry `k(in, out)`."""
    return f"{HEADER}{before}\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{{PROLOGUE}{body}\n    ret;\n}}\n"


def kernel(body: str, *, before: str = "") -> Kernel:
    return Kernel(source(body, before=before), "k")


def run(
    body: str,
    data: Array,
    out: Array,
    *,
    threads: int = 32,
    grid: int = 1,
    before: str = "",
    dynamic: int = 0,
) -> Array:
    """Runs the kernel; returns the final content of `out`."""
    made = kernel(body, before=before)
    place = made.arena.put(out)
    made.launch(
        (grid,), (threads,), np.uint64(made.arena.put(data)), np.uint64(place), dynamic=dynamic
    )
    return made.arena.get(place, out)


def result_of(body: str, data: Array | None = None, *, threads: int = 1, before: str = "") -> int:
    """The CUresult that a launch ends with."""
    made = kernel(body, before=before)
    values = np.zeros(64, np.uint64) if data is None else data
    place = made.arena.put(np.zeros(64, np.uint64))
    return made.launch_in_child(
        (1,), (threads,), np.uint64(made.arena.put(values)), np.uint64(place)
    )
