"""Memory of an array library as a buffer that the line can send and fill."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

# Smaller memory is filled before large pages would pay.
_LARGE_BYTES = 4 << 20
_HUGE_PAGE = 2 << 20
_libc: Any = ctypes.CDLL(None)


def view_of(address: int, size: int, owner: Any) -> memoryview:
    """Returns `size` bytes at an address as a writable buffer. The buffer keeps `owner` alive."""
    if size == 0:
        return memoryview(bytearray())
    array: Any = (ctypes.c_ubyte * size).from_address(address)
    array.owner = owner
    return memoryview(array).cast("B")


def room_of(address: int, size: int, owner: Any) -> memoryview:
    """As `view_of`, for new memory that is filled next.

    The system is asked for large pages: with small ones a new tensor's pages cost more time than
    its elements take to arrive. NumPy asks for its arrays itself; PyTorch does not.
    """
    begin = -(-address // _HUGE_PAGE) * _HUGE_PAGE
    whole = (address + size - begin) // _HUGE_PAGE * _HUGE_PAGE
    if size >= _LARGE_BYTES and whole > 0:
        # A system that has none refuses, and nothing is lost.
        _libc.madvise(
            ctypes.c_void_p(begin), ctypes.c_size_t(whole), ctypes.c_int(mmap.MADV_HUGEPAGE)
        )
    return view_of(address, size, owner)
