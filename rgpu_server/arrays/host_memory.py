"""How a worker's C library keeps the memory that PyTorch's CPU build computes in."""

from __future__ import annotations

import ctypes
from typing import Any, Final

# The parameters of mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# glibc takes no larger value: blocks above it are mappings of their own.
_MAPPED_BYTES: Final = 32 << 20
# What stays with the process after its tensors are freed: half of what a worker may have besides
# its lease's memory (ceiling.py).
_KEPT_BYTES: Final = 128 << 20


def keep_freed_memory() -> None:
    """Lets the next tensors have the pages of freed ones. Call before PyTorch is imported.

    By default a step of training gives its pages back to the kernel and gets new ones, which the
    kernel clears again. A convolution of 64 x 64 pictures spent a third of its time on that.

    Only pages are kept: the ledger counts tensors, so a lease is charged the same. Without glibc
    nothing happens.
    """
    # PyTorch is not told to ask for large pages (THP_MEM_ALLOC_ENABLE): where free memory is in
    # small pieces, each large page waits until the kernel has moved what is in its way.
    mallopt: Any = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
