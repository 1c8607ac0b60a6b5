"""CuPy itself under a lease, on a node with a GPU.

CuPy's pool asks for memory in segments. Each segment is charged before the device is asked for it,
so the lease pays for what the pool keeps. A refusal makes the pool give back what it does not use
and ask again; after that CuPy raises its own OutOfMemoryError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.real_kernels import Kernel

if TYPE_CHECKING:
    from rgpu_server.arrays.ledger import Ledger
    from rgpu_server.arrays.real_kernels import CupyKernels

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


class ChargedSegments:
    """Allocates the segments of CuPy's pool. Sizes are bytes."""

    def __init__(self, cupy: Any, ledger: Ledger) -> None:
        self._runtime = cupy.cuda.runtime
        self._ledger = ledger
        self._sizes: dict[int, int] = {}

    def malloc(self, size: int, device: int) -> int:
        """Returns the address of a new segment.

        Raises:
            CUDARuntimeError: the lease or the device has no room.
        """
        if not self._ledger.charge_before(size):
            raise self._runtime.CUDARuntimeError(_OUT_OF_MEMORY)
        try:
            address = int(self._runtime.malloc(size))
        except BaseException:
            self._ledger.release(size)
            raise
        self._ledger.raise_peak()
        self._sizes[address] = size
        return address

    def free(self, address: int, device: int) -> None:
        """Frees a segment."""
        self._runtime.free(address)
        self._ledger.release(self._sizes.pop(address, 0))


class RealCupy(CupyLibrary):
    """CupyLibrary with CuPy, whose pool is charged to a ledger."""

    def __init__(self, cupy: Any, ledger: Ledger, kernels: CupyKernels) -> None:
        super().__init__(ledger.limit, cupy, kernels.operations(), (Kernel,))
        self._ledger = ledger
        self._segments = ChargedSegments(cupy, ledger)
        segments = self._segments
        allocator = cupy.cuda.PythonFunctionAllocator(segments.malloc, segments.free)
        self._pool = cupy.cuda.MemoryPool(allocator.malloc)
        cupy.cuda.set_allocator(self._pool.malloc)

    def room(self, size: int, beside: int) -> int:
        """See `Library.room`. What the pool keeps for later counts as room."""
        kept = int(self._pool.free_bytes())
        more = size + beside - kept
        if size and more > 0 and not self._ledger.await_room(more):
            full = self._cupy.cuda.memory.OutOfMemoryError
            raise full(size, int(self._pool.total_bytes()), self._ledger.limit)
        return self._ledger.room + kept

    def _memory(self) -> list[int]:
        pool = self._pool
        return [int(pool.used_bytes()), int(pool.total_bytes()), self._ledger.limit]
