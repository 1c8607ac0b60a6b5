"""CuPy's functions and kernels under a lease, where NumPy stands in for CuPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.kernels import Kernel, Kernels

if TYPE_CHECKING:
    from rgpu_server.arrays.ledger import Ledger
    from rgpu_server.arrays.memory import ArrayMemory


_NO_SCRATCH: Final = (
    "Out of memory: the operation needs more memory beside its arrays than is left; use smaller "
    "arrays, or a larger quota"
)


class LeasedCupy(CupyLibrary):
    """CupyLibrary with kernels, whose arrays lie in a pool that the ledger charges."""

    def __init__(self, kernels: Kernels, memory: ArrayMemory, ledger: Ledger) -> None:
        super().__init__(ledger.limit, None, kernels.operations(), (Kernel,))
        self._pool, self._ledger = memory, ledger

    def words(self, error: Exception) -> str:
        """Returns CuPy's text for what NumPy says when it gets no memory."""
        shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
        if isinstance(error, MemoryError) and not str(error):
            # A library got none for its scratch memory.
            return _NO_SCRATCH
        if not isinstance(error, MemoryError) or shape is None or dtype is None:
            return super().words(error)
        return self._full(math.prod(shape) * dtype.itemsize)

    def room(self, size: int, beside: int) -> int:
        """See `Library.room`. What the pool keeps for later counts as room."""
        if size and not self._ledger.await_room(size + beside):
            raise MemoryError(self._full(size))
        return self._ledger.room

    def _full(self, size: int) -> str:
        return (
            f"Out of memory allocating {size:,} bytes (allocated so far: {self._ledger.used:,} "
            f"bytes, limit set to: {self._ledger.limit:,} bytes)."
        )

    def _memory(self) -> list[int]:
        figures = self._pool.figures()
        return [figures.used, figures.charged, self._ledger.limit]
