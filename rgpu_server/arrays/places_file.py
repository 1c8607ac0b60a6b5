"""The file that a tenant's sessions share: where they compile CUDA C++, and for how long.

A byte for each place comes first. A worker has a place while it holds a lock on the byte. The
system takes the lock from a worker that ends, so no place is lost. Behind the places stands the
budget of processor time, which the processes that compile charge (nvrtc_server.py).
"""

from __future__ import annotations

import fcntl
import os
import resource
import struct
import time
from typing import TYPE_CHECKING, Final

from rgpu_emu.compile_sandbox import processor_seconds
from rgpu_emu.compile_schedule import Bounds, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

# burst, level, the clock when the level was so
_BUDGET: Final = struct.Struct("<3d")


def make_file(
    places: int, burst: float = Bounds.burst_seconds, debt: float = 0.0, *, now: float = 0.0
) -> int:
    """Returns the file of a tenant.

    Args:
        places: how many sources are compiled at a time.
        burst: the processor time that is spent at ordinary priority.
        debt: how much of it was spent before.
        now: of the monotonic clock.

    Raises:
        OSError: the system has no file left.
    """
    file = os.memfd_create("rgpu-compile-places", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.pwrite(file, bytes(places) + _BUDGET.pack(burst, burst - debt, now), 0)
    # None of a tenant's workers may make places, or take them away for good.
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return file


class PlacesFile:
    """A view of the file. file: as `make_file` returns it."""

    def __init__(self, file: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self.places = os.fstat(file).st_size - _BUDGET.size

    def spend(self, seconds: float) -> None:
        """Charges processor time."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, self.places)
        try:
            now = self._clock()
            burst, budget = self._budget()
            budget.spend(seconds, now)
            os.pwrite(self._file, _BUDGET.pack(burst, budget.level(now), now), self.places)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self.places)

    def spent(self) -> float:
        """Returns how much of the burst is used."""
        burst, budget = self._budget()
        return burst - budget.level(self._clock())

    def over(self) -> bool:
        """Returns True if the burst is used up: one source at a time is compiled then, and only
        when the machine has nothing else to do.
        """
        return self._budget()[1].level(self._clock()) <= 0

    def _budget(self) -> tuple[float, Budget]:
        burst, level, at = _BUDGET.unpack(os.pread(self._file, _BUDGET.size, self.places))
        return burst, Budget(burst, Bounds.refill, at, level)


class Meter:
    """Charges a file with the processor time of this process and its jobs from now on."""

    def __init__(self, file: PlacesFile) -> None:
        self._file = file
        self._charged = _processor_seconds()

    def charge(self, job: int = 0) -> bool:
        """Charges what has been used meanwhile, by the job that runs too (0: none does). Returns
        True if the burst is used up.
        """
        used = _processor_seconds() + (processor_seconds(job) if job else 0.0)
        if used > self._charged:
            self._file.spend(used - self._charged)
            self._charged = used
        return self._file.over()


def _processor_seconds() -> float:
    """Returns the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
