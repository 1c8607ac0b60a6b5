"""`cupy.cuda.memory`: the pools of the node."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

from rgpu_client.cupy import errors
from rgpu_client.cupy._session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

OutOfMemoryError = errors.OutOfMemoryError


class MemoryPool:
    """What the node's memory pool says. The node's allocator itself cannot be replaced."""

    def used_bytes(self) -> int:
        """Returns the bytes of arrays. Waits."""
        return figures()[0]

    def total_bytes(self) -> int:
        """Returns the bytes that the pool holds. Waits."""
        return figures()[1]

    def free_bytes(self) -> int:
        """Returns the bytes that the pool holds and no array uses. Waits."""
        used, total, _ = figures()
        return max(0, total - used)

    def get_limit(self) -> int:
        """Returns the most bytes: what the lease allows. Waits."""
        return figures()[2]

    def n_free_blocks(self) -> int:
        """Returns 0: blocks are the node's."""
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        """Has nothing to do: a lease's memory is given back when arrays are freed."""

    def free_all_free(self) -> None:
        """Is an old name."""

    def set_limit(self, size: Any = None, fraction: Any = None) -> None:
        """Is ignored: the lease sets the limit."""

    def malloc(self, size: int) -> NoReturn:
        """Is refused."""
        raise NotImplementedError("memory of a GPU node cannot be used by its address; use arrays")


class PinnedMemoryPool:
    """Page-locked memory, which this process does not have."""

    def n_free_blocks(self) -> int:
        """Returns 0."""
        return 0

    def free_all_blocks(self) -> None:
        """Has nothing to do."""


_pool, _pinned = MemoryPool(), PinnedMemoryPool()


def get_default_memory_pool() -> MemoryPool:
    """Returns the pool of the node."""
    return _pool


def get_default_pinned_memory_pool() -> PinnedMemoryPool:
    """Returns the pool of page-locked memory."""
    return _pinned


def set_allocator(allocator: Any = None) -> None:
    """Accepts the pool of the node alone.

    Raises:
        NotImplementedError: it is another allocator.
    """
    if allocator is not None and getattr(allocator, "__self__", None) is not _pool:
        raise NotImplementedError("the allocator of a GPU node belongs to the lease")


def alloc_pinned_memory(size: int) -> bytearray:
    """Returns memory of this process, which is not page-locked. size: bytes."""
    return bytearray(size)


def set_pinned_memory_allocator(allocator: Any = None) -> None:
    """Is ignored: this process has no page-locked memory."""


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """Is `set_allocator` for a while."""
    set_allocator(allocator)
    yield


def figures() -> tuple[int, int, int]:
    """Returns used bytes, bytes of the pool, and the most bytes. Waits."""
    used, total, most = session().issuer.ask("memory")
    return int(used), int(total), int(most)
