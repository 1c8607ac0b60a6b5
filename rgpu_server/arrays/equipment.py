"""What a worker works with: the array library, the gate, and the lease that both are charged to."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.arrays.seams import Seam
from rgpu_common.errors import MissingPartError
from rgpu_server.arrays.ceiling import give_back, set_ceiling
from rgpu_server.arrays.confine import NUMPY, confine, preload, single_thread, use_threads
from rgpu_server.arrays.host_memory import keep_freed_memory
from rgpu_server.arrays.ledger import Ledger
from rgpu_server.arrays.turns import Turns
from rgpu_server.workers.pages import map_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rgpu_server.arrays.library import Library
    from rgpu_server.arrays.setup import Setup
    from rgpu_server.arrays.turns import Clock

log = logging.getLogger("rgpu.arrays")

_SCIPY = tuple(f"scipy.{name}" for name in ("fft", "linalg", "ndimage", "signal", "sparse",
                                            "sparse.linalg", "special", "spatial.distance",
                                            "interpolate", "stats"))  # fmt: skip
# A product of matrices of so many rows has work for all threads.
_ROWS = 512
# The environment variable by which the emulated device finds its compiler of PTX.
COMPILER_FD = "RGPU_EMU_COMPILER_FD"


class Equipment(Struct, frozen=True):
    """library: what executes operations. gate: when it may."""

    library: Library
    gate: Turns


class Loaded:
    """What a worker has loaded before it gives up its rights, and before a session waits for it."""

    def __init__(self, seam: Seam, device_library: Path) -> None:
        """Imports the seam's library, which reads many files, and starts what helps it.

        Raises:
            ImportError, OSError: a library cannot be loaded.
            CompilerLostError: the compiler of kernels cannot be started.
        """
        self.seam = seam
        self._compiler: Any = None
        single_thread()
        self._device = ctypes.CDLL(str(device_library))
        # As a worker of the driver seam decides it (executor/driver.cc).
        self._emulated = hasattr(self._device, "rgpu_emu_heap")
        # The worker's user may not be able to read Python's folders, so the modules that a session
        # takes below are imported here.
        import_module("rgpu_server.arrays.device")
        if seam is Seam.TORCH:
            keep_freed_memory()
            _warm_torch()
            return
        from rgpu_server.arrays import cupy_rows

        cupy_rows.rows()
        preload((*NUMPY, *_SCIPY))
        from rgpu_server.arrays.source_compiler import SourceCompiler

        self._compiler = SourceCompiler()
        if self._emulated:
            from rgpu_server.arrays import cupy_leased, kernels, memory  # noqa: F401
        else:
            from rgpu_server.arrays import real_cupy, real_kernels  # noqa: F401

            preload(("cupy", "cupyx.scipy.special", "cupyx.scipy.ndimage", "cupyx.scipy.signal"))

    def confine(self) -> str:
        """Gives up the rights of the process; returns the report for READY, which names what the
        compiler of kernels lacks, too.

        Raises:
            CompilerLostError: the compiler has ended.
        """
        report = confine(needs_driver_files=not self._emulated)
        compiler = "" if self._compiler is None else self._compiler.report()
        return "; ".join(filter(None, (report, compiler)))

    def use_threads(self) -> None:
        """Starts the threads that the libraries compute with, and lets each take the memory that it
        works in. A library that gets none later may end the process. On a GPU nothing is to do.
        """
        if not self._emulated:
            return
        if self.seam is Seam.TORCH:
            torch: Any = import_module("torch")
            torch.set_num_threads(_cpus())
            square = torch.ones(_ROWS, _ROWS)
            torch.mm(square, square).exp().sum()
            return
        use_threads(_cpus())
        numpy: Any = import_module("numpy")
        whole = numpy.ones((_ROWS, _ROWS))
        numpy.matmul(whole, whole)
        # SciPy has a library of its own for this.
        with contextlib.suppress(ModuleNotFoundError):
            import_module("scipy.linalg.blas").dgemm(1.0, whole, whole)

    def equip(self, setup: Setup, held: Callable[[], None] | None = None) -> Equipment:
        """Opens the lease's page and makes the library of a session.

        `held` is called now and then while an operation waits for its turn (Turns).

        Raises:
            OSError: the page cannot be mapped.
            ValueError: the page has no such slot.
            DeviceError: the device does not work.
        """
        page = map_page(setup.grants_fd, setup.usage_fd, write_grants=False)
        gate = Turns(page, setup.slot, setup.signal_fd, self._clock(setup), held)
        ledger = Ledger(page, setup.slot, gate)
        if self.seam is Seam.TORCH:
            from rgpu_server.arrays.torch_library import TorchLibrary

            self._set_ceiling(ledger, 0)
            total, threads = setup.memory_limit_bytes, _cpus()
            return Equipment(TorchLibrary(ledger, total, threads, give_back), gate)
        library = self._cupy(page, ledger, gate, setup)
        self._set_ceiling(ledger, _cpus())
        return Equipment(library, gate)

    def _set_ceiling(self, ledger: Ledger, threads: int) -> None:
        if not set_ceiling(ledger.limit, threads, needs_driver_files=not self._emulated):
            log.info("this worker has no limit on its own memory (RLIMIT_DATA)")

    def _clock(self, setup: Setup) -> Clock | None:
        """Returns what measures the device; None: operations are complete when they return."""
        if self._emulated:
            return None
        from rgpu_server.arrays.device import Device, EventClock

        return EventClock(Device(self._device, setup.ordinal))

    def _cupy(self, page: int, ledger: Ledger, gate: Turns, setup: Setup) -> Library:
        from rgpu_server.arrays.device import Device

        device = Device(self._device, setup.ordinal)
        self._compiler.share(setup.places_fd)
        if not self._emulated:
            from rgpu_server.arrays.real_cupy import RealCupy
            from rgpu_server.arrays.real_kernels import CupyKernels

            cupy = import_module("cupy")
            return RealCupy(cupy, ledger, CupyKernels(cupy, device, self._compiler, gate))
        from rgpu_server.arrays.cupy_leased import LeasedCupy
        from rgpu_server.arrays.kernels import Kernels
        from rgpu_server.arrays.memory import ArrayMemory

        memory = ArrayMemory(page, setup.slot, device.functions(), ledger.charge_before)
        memory.install()
        kernels = Kernels(device, memory, ledger, self._compiler, gate)
        return LeasedCupy(kernels, memory, ledger)


def _cpus() -> int:
    """Returns how many threads a library may compute with, as programs have them by default."""
    return len(os.sched_getaffinity(0))


def _warm_torch() -> None:
    """Reads the list of operators, and has PyTorch look at the processor: it reads files for that,
    and chooses its kernels by it.
    """
    from rgpu_server.arrays.torch_allowed import Allowed

    import_module("rgpu_server.arrays.torch_library")
    # A session is refused with the sentence.
    with contextlib.suppress(MissingPartError):
        Allowed.installed()
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    image, weight = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
    torch.nn.functional.conv2d(image, weight).exp().reshape(4, -1).matmul(torch.ones(36, 4)).sum()
    torch.linalg.inv(torch.eye(4))
    torch.fft.fft(torch.ones(8))
