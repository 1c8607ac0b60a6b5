"""Pools: counters, caps, thresholds, stream order."""

from __future__ import annotations

import ctypes

from emu.device import Device, expect, on_device
from emu.holding import NON_BLOCKING, hold, let_go

MIB = 1 << 20
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8


class PoolProps(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("allocType", ctypes.c_int),
        ("handleTypes", ctypes.c_int),
        ("locationType", ctypes.c_int),
        ("locationId", ctypes.c_int),
        ("win32", ctypes.c_void_p),
        ("maxSize", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


def make_pool(cuda: Device, max_size: int = 0, location: int = 1, handles: int = 0) -> int:
    props = PoolProps(
        allocType=1, handleTypes=handles, locationType=location, locationId=0, maxSize=max_size
    )
    handle: int = cuda.out("cuMemPoolCreate", ctypes.byref(props))
    return handle


def get(cuda: Device, pool: int, attribute: int) -> int:
    value = ctypes.c_uint64()
    cuda("cuMemPoolGetAttribute", pool, attribute, ctypes.byref(value))
    return value.value


def put(cuda: Device, pool: int, attribute: int, value: int) -> None:
    cuda("cuMemPoolSetAttribute", pool, attribute, ctypes.byref(ctypes.c_uint64(value)))


@on_device()
def test_counters_and_threshold(cuda: Device) -> None:
    cuda.open()
    pool, stream = make_pool(cuda), cuda.stream()
    address = cuda.out("cuMemAllocFromPoolAsync", MIB, pool, stream)
    assert get(cuda, pool, USED) == MIB
    assert get(cuda, pool, RESERVED) >= MIB
    cuda("cuMemFreeAsync", address, stream)
    expect(1, lambda: cuda("cuMemFreeAsync", address, stream))
    cuda("cuStreamSynchronize", stream)
    assert (get(cuda, pool, USED), get(cuda, pool, RESERVED)) == (0, 0)
    assert get(cuda, pool, USED_HIGH) == MIB
    put(cuda, pool, THRESHOLD, 1 << 40)
    cuda("cuMemFreeAsync", cuda.out("cuMemAllocFromPoolAsync", MIB, pool, stream), stream)
    cuda("cuStreamSynchronize", stream)
    assert get(cuda, pool, USED) == 0
    assert get(cuda, pool, RESERVED) >= MIB
    cuda("cuMemPoolTrimTo", pool, 0)
    assert get(cuda, pool, RESERVED) == 0
    put(cuda, pool, RESERVED_HIGH, 0)
    expect(1, lambda: put(cuda, pool, USED_HIGH, 5))


@on_device()
def test_the_cap_holds(cuda: Device) -> None:
    cuda.open()
    pool, stream = make_pool(cuda, 4 * MIB), cuda.stream()
    held = cuda.out("cuMemAllocFromPoolAsync", 3 * MIB, pool, stream)
    expect(2, lambda: cuda.out("cuMemAllocFromPoolAsync", 2 * MIB, pool, stream))
    cuda("cuMemFreeAsync", held, stream)
    for _ in range(50):  # a free and an allocation in one stream need no wait
        held = cuda.out("cuMemAllocFromPoolAsync", 3 * MIB, pool, stream)
        cuda("cuMemsetD8Async", held, 1, 3 * MIB, stream)
        cuda("cuMemFreeAsync", held, stream)
    cuda("cuStreamSynchronize", stream)


@on_device()
def test_memory_freed_in_one_stream_is_not_used_early_in_another(cuda: Device) -> None:
    cuda.open()
    pool, first, second = make_pool(cuda, MIB), cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
    pinned = cuda.pinned(MIB)
    held = cuda.out("cuMemAllocFromPoolAsync", MIB, pool, first)
    cuda("cuMemsetD8Async", held, 1, MIB, first)
    flag = hold(cuda, first)
    cuda("cuMemcpyDtoHAsync_v2", pinned, held, MIB, first)
    cuda("cuMemFreeAsync", held, first)
    again = cuda.out(
        "cuMemAllocFromPoolAsync", MIB, pool, second
    )  # all of the pool: follows the free
    cuda("cuMemsetD8Async", again, 2, MIB, second)
    found = cuda.result("cuStreamQuery", second)
    assert found == 600, found
    let_go(cuda, flag)
    cuda("cuCtxSynchronize")
    assert bytes((ctypes.c_ubyte * MIB).from_address(pinned)) == b"\x01" * MIB
    assert cuda.read(again, MIB) == b"\x02" * MIB


@on_device(RGPU_EMU_MEMORY=str(16 * MIB))
def test_pools_give_back_before_memory_is_refused(cuda: Device) -> None:
    cuda.open()
    pool, stream = make_pool(cuda), cuda.stream()
    put(cuda, pool, THRESHOLD, 1 << 40)
    cuda("cuMemFreeAsync", cuda.out("cuMemAllocFromPoolAsync", 12 * MIB, pool, stream), stream)
    cuda("cuStreamSynchronize", stream)
    cuda.free(cuda.alloc(14 * MIB))
    expect(2, lambda: cuda.out("cuMemAllocFromPoolAsync", 17 * MIB, pool, stream))


@on_device()
def test_the_default_and_the_current_pool(cuda: Device) -> None:
    cuda.open()
    default = cuda.out("cuDeviceGetDefaultMemPool", 0)
    assert cuda.out("cuDeviceGetMemPool", 0) == default
    expect(1, lambda: cuda("cuMemPoolDestroy", default))
    address = cuda.out("cuMemAllocAsync", 5000, 0)
    assert cuda.out("cuPointerGetAttribute", 17, address) == default
    own = make_pool(cuda)
    cuda("cuDeviceSetMemPool", 0, own)
    other = cuda.out("cuMemAllocAsync", 5000, 0)
    assert cuda.out("cuPointerGetAttribute", 17, other) == own
    cuda("cuMemPoolDestroy", own)
    assert cuda.out("cuDeviceGetMemPool", 0) == default
    cuda.write(other, b"alive")  # an allocation outlives its pool
    assert cuda.read(other, 5) == b"alive"
    cuda("cuMemFreeAsync", other, 0)
    cuda.free(address)  # cuMemFree takes pool memory as well
    cuda("cuCtxSynchronize")
    assert get(cuda, default, USED) == 0
    expect(1, lambda: cuda("cuMemFreeAsync", cuda.alloc(16), 0))


@on_device()
def test_bad_pools(cuda: Device) -> None:
    cuda.open()
    expect(801, lambda: make_pool(cuda, handles=1))
    expect(801, lambda: make_pool(cuda, location=2))
    expect(1, lambda: get(cuda, 12345, USED))
    pool = make_pool(cuda)
    expect(1, lambda: get(cuda, pool, 99))
    expect(1, lambda: cuda.out("cuMemAllocFromPoolAsync", 0, 12345, 0))
    expect(2, lambda: cuda.out("cuMemAllocFromPoolAsync", 1 << 60, pool, 0))
    cuda("cuMemPoolDestroy", pool)
    expect(1, lambda: cuda("cuMemPoolDestroy", pool))


@on_device()
def test_no_bytes_are_the_null_address(cuda: Device) -> None:
    """An empty buffer of cuda.core asks a pool for no bytes."""
    cuda.open()
    pool = make_pool(cuda)
    for address in (
        cuda.out("cuMemAllocAsync", 0, 0),
        cuda.out("cuMemAllocFromPoolAsync", 0, pool, 0),
    ):
        assert address == 0
        cuda("cuMemFreeAsync", address, 0)
    assert get(cuda, pool, USED) == 0


@on_device()
def test_a_limit_is_rounded_up_to_a_granule(cuda: Device) -> None:
    cuda.open()
    pool = make_pool(cuda, max_size=2048)
    first, second = (cuda.out("cuMemAllocFromPoolAsync", 64, pool, 0) for _ in range(2))
    assert first != second
    expect(2, lambda: cuda.out("cuMemAllocFromPoolAsync", 2 * MIB, pool, 0))
