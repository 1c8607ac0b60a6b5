"""Batches of copies and of memory operations by ctypes, for tests in process and over the wire."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_size_t, c_uint, c_uint64, c_void_p

from helpers.maps import Driver, Location

WAIT_32, WRITE_32, FLUSH, WAIT_64, WRITE_64, BARRIER = range(1, 7)
IN_STREAM, AT_CALL, ANY = 1, 2, 3
GEQ, EQ, FLUSH_FLAG = 0, 1, 1 << 30


class Operation(ctypes.Structure):
    """CUstreamBatchMemOpParams: the layout that waits and writes share."""

    _fields_ = (
        ("operation", c_int),
        ("address", c_uint64),
        ("value", c_uint64),
        ("flags", c_uint),
        ("alias", c_uint64),
        ("pad", c_uint64),
    )


class Barrier(ctypes.Structure):
    """CUstreamBatchMemOpParams: the layout of barriers and flushes."""

    _fields_ = (("operation", c_int), ("flags", c_uint), ("pad", c_uint64 * 5))


class Attributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = (("order", c_int), ("source", Location), ("target", Location), ("flags", c_uint))


def operations(
    driver: Driver, stream: object, parts: Sequence[tuple[int, int, int, int]], flags: int = 0
) -> int:
    """Calls cuStreamBatchMemOp with (operation, address, value, flags) each; the CUresult."""
    assert ctypes.sizeof(Operation) == ctypes.sizeof(Barrier) == 48
    array = (Operation * max(len(parts), 1))()
    for place, (kind, address, value, option) in zip(array, parts, strict=False):
        if kind in (BARRIER, FLUSH):
            Barrier.from_buffer(place).operation = kind
            Barrier.from_buffer(place).flags = option
        else:
            place.operation, place.address, place.value, place.flags = kind, address, value, option
    return driver.result("cuStreamBatchMemOp_v2", stream, c_uint(len(parts)), array, c_uint(flags))


def copies(
    driver: Driver,
    stream: object,
    parts: Sequence[tuple[int, int, int]],
    orders: Sequence[tuple[int, int]] = ((0, IN_STREAM),),
) -> int:
    """Calls cuMemcpyBatchAsync with (to, from, bytes) each; the CUresult.

    orders: (first copy, source access order) each.
    """
    count = len(parts)
    to, source, sizes = ((kind * count)(*column) for kind, column in _columns(parts))
    attributes = (Attributes * len(orders))(*(Attributes(order=order) for _, order in orders))
    firsts = (c_size_t * len(orders))(*(first for first, _ in orders))
    numbers = (c_size_t(count), attributes, firsts, c_size_t(len(orders)))
    return driver.result("cuMemcpyBatchAsync_v2", to, source, sizes, *numbers, stream)


def _columns(parts: Sequence[tuple[int, int, int]]) -> list[tuple[type, tuple[int, ...]]]:
    kinds: tuple[type, ...] = (c_uint64, c_uint64, c_size_t)
    return list(zip(kinds, zip(*parts, strict=True), strict=True))


def pointer(handle: int) -> c_void_p:
    return c_void_p(handle)
