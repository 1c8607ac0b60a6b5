"""The most private memory that an array worker may have, whatever its libraries allocate.

The ledger charges arrays. A library also takes memory that no ledger sees: scratch memory of a
transform, a result that turns out too large, Python's objects. All of it is private memory of the
process, which the system counts (RLIMIT_DATA): addresses that are only reserved, and shared memory,
as that of the emulated device, do not count.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
from typing import Any, Final

# What a worker may have besides what it had at first and its lease's memory.
OVERHEAD_BYTES: Final = 256 << 20
# A thread of the emulated device has a stack, and windows of the kernel that it runs.
THREAD_BYTES: Final = 8 << 20
# Where the system does not say what a worker had at first. As executor/ceiling.cc.
_WORKER_BYTES: Final = 4 << 30
# NVIDIA's driver maps as much as it likes, code and pinned memory of the program included, and most
# of that after the ceiling is set: with the first kernel of each module.
_DRIVER_BYTES: Final = 32 << 30
_KIB: Final = 1024


def set_ceiling(lease_bytes: int, threads: int = 0, *, needs_driver_files: bool = False) -> bool:
    """Sets the limit of this process, when the libraries are loaded and their threads run.

    It is the hard limit too, so no code in this process can raise it. The daemon does when the
    lease is made larger (`workers/process.py`).

    Args:
        lease_bytes: the memory of the lease.
        threads: of kernels of the emulated device.
        needs_driver_files: the driver is NVIDIA's.

    Returns:
        False if the system refuses it.
    """
    overhead = _DRIVER_BYTES
    if not needs_driver_files:
        held = private_bytes()
        overhead = _WORKER_BYTES if held is None else held + OVERHEAD_BYTES
        overhead += threads * THREAD_BYTES
    most = min(lease_bytes + overhead, _hard())
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _hard() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    return (1 << 62) if hard == resource.RLIM_INFINITY else hard


def private_bytes() -> int | None:
    """Returns how much private memory this process has mapped; None: the system does not say."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        text = os.pread(status_file(), 1 << 16, 0).decode()
        line = next(line for line in text.splitlines() if line.startswith("VmData:"))
        return int(line.split()[1]) * _KIB
    return None


@functools.cache
def status_file() -> int:
    """Returns a descriptor that stays open, because a confined worker opens no files.

    Raises:
        OSError: the system has no such file.
    """
    return os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)


def give_back() -> None:
    """Gives the pages of freed memory to the system, as far as the C library can."""
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
