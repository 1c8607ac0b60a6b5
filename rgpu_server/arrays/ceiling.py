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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# What a worker may have besides what it had at first and its lease's memory.
OVERHEAD_BYTES: Final = 256 << 20
# A thread of the emulated device has a stack, and windows of the kernel that it runs.
THREAD_BYTES: Final = 8 << 20
# No resize of a lease leads beyond this, the ceiling of the driver seam (executor/ceiling.cc).
_WORKER_BYTES: Final = 4 << 30
# NVIDIA's driver maps as much as it likes.
_DRIVER_BYTES: Final = 32 << 30
_KIB: Final = 1024


class Ceiling:
    """The limit of this process. Made when the libraries are loaded, and their threads run."""

    def __init__(
        self, lease_bytes: Callable[[], int], threads: int = 0, *, needs_driver_files: bool = False
    ) -> None:
        """Sets the limit.

        Args:
            lease_bytes: returns the memory of the lease, which may be resized.
            threads: of kernels of the emulated device.
            needs_driver_files: the driver is NVIDIA's.
        """
        held = None if needs_driver_files else private_bytes()
        self._lease_bytes = lease_bytes
        self._overhead = OVERHEAD_BYTES + threads * THREAD_BYTES + (held or 0)
        most = _DRIVER_BYTES if needs_driver_files else _WORKER_BYTES + self._overhead
        if held is None:
            self._overhead = most
        self._most = lease_bytes() + most
        # False: the system refuses it.
        self.holds = self._set(hard=True)

    def follow(self) -> None:
        """Gives memory back that the C library keeps, and follows a lease that was resized. Called
        when an allocation has failed.
        """
        give_back()
        self._set()

    def _set(self, *, hard: bool = False) -> bool:
        soft, before = min(self._lease_bytes() + self._overhead, self._most), _hard()
        most = min(self._most, before) if hard else before
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (min(soft, most), most))
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
