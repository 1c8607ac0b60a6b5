"""Allocation, copies, sets and pointer attributes."""

from __future__ import annotations

import ctypes
import os

from emu.device import BAND, Device, expect, on_device

MIB = 1 << 20
VOID = ctypes.c_void_p


HOST, DEVICE = 1, 2


def info(cuda: Device) -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


@on_device(RGPU_EMU_MEMORY=str(64 * MIB))
def test_memory_is_counted_and_limited(cuda: Device) -> None:
    cuda.open()
    assert info(cuda) == (64 * MIB, 64 * MIB)
    assert cuda.out("cuDeviceTotalMem_v2", 0) == 64 * MIB
    half = cuda.alloc(32 * MIB)
    assert info(cuda)[0] == 32 * MIB
    expect(2, lambda: cuda.alloc(33 * MIB))
    expect(2, lambda: cuda.alloc(1 << 50))
    cuda.free(half)
    assert info(cuda)[0] == 64 * MIB
    for _ in range(100):
        cuda.free(cuda.alloc(60 * MIB))


@on_device()
def test_addresses_are_aligned_in_the_band_and_not_reused_at_once(cuda: Device) -> None:
    cuda.open()
    seen = set()
    for size in (1, 3, 511, 512, 513, 4096, 4097, MIB):
        address = cuda.alloc(size)
        assert address % 512 == 0
        assert address >= BAND
        assert address not in seen
        seen.add(address)
        cuda.free(address)


@on_device()
def test_bad_sizes_and_pointers_are_refused(cuda: Device) -> None:
    cuda.open()
    address = cuda.alloc(1000)
    expect(1, lambda: cuda.alloc(0))
    expect(1, lambda: cuda("cuMemAlloc_v2", None, 16))
    expect(1, lambda: cuda.free(address + 1))
    expect(1, lambda: cuda.read(address, 1001))
    expect(1, lambda: cuda.read(address + 999, 2))
    expect(1, lambda: cuda.write(address - 1, b"x"))
    expect(1, lambda: cuda("cuMemcpyHtoD_v2", address, None, 1))
    expect(1, lambda: cuda("cuMemcpyDtoD_v2", address, BAND + (1 << 34), 16))
    expect(1, lambda: cuda("cuMemsetD8_v2", address, 1, 1001))
    expect(1, lambda: cuda("cuMemsetD32_v2", address + 2, 1, 1))
    cuda.free(0)
    cuda.free(address)
    expect(1, lambda: cuda.free(address))
    expect(1, lambda: cuda.read(address, 1))


@on_device()
def test_managed_memory_is_used_in_place(cuda: Device) -> None:
    cuda.open()
    free = info(cuda)[0]
    place = ctypes.c_uint64()
    cuda("cuMemAllocManaged", ctypes.byref(place), 100_000, 1)
    assert free - info(cuda)[0] >= 100_000
    ctypes.memset(place.value, 7, 100_000)
    assert cuda.read(place.value, 100_000) == bytes([7]) * 100_000
    cuda("cuMemsetD8_v2", place.value + 1, 9, 10)
    cuda("cuCtxSynchronize")
    assert ctypes.string_at(place.value, 12) == bytes([7, *[9] * 10, 7])
    value = ctypes.c_uint64()
    for attribute in (3, 4):  # DEVICE_POINTER, HOST_POINTER
        cuda("cuPointerGetAttribute", ctypes.byref(value), attribute, place.value + 5)
        assert value.value == place.value + 5
    managed = ctypes.c_uint()
    cuda("cuPointerGetAttribute", ctypes.byref(managed), 8, place.value)
    assert managed.value == 1
    for flags in (0, 3, 4):
        expect(1, lambda flags=flags: cuda("cuMemAllocManaged", ctypes.byref(value), 16, flags))
    cuda.free(place.value)
    expect(1, lambda: cuda.read(place.value, 1))


@on_device()
def test_new_memory_is_zero(cuda: Device) -> None:
    cuda.open()
    for _ in range(20):
        address = cuda.alloc(100_000)
        assert cuda.read(address, 100_000) == bytes(100_000)
        cuda("cuMemsetD8_v2", address, 0xFF, 100_000)
        cuda.free(address)


@on_device()
def test_copies_in_all_directions(cuda: Device) -> None:
    cuda.open()
    data = os.urandom(300_001)
    one, two = cuda.alloc(len(data)), cuda.alloc(len(data))
    cuda.write(one, data)
    cuda("cuMemcpyDtoD_v2", two, one, len(data))
    assert cuda.read(two, len(data)) == data
    source = ctypes.create_string_buffer(data, len(data))
    back = ctypes.create_string_buffer(len(data))
    cuda("cuMemcpy", one + 1, ctypes.addressof(source), 1000)
    cuda("cuMemcpy", ctypes.addressof(back), one + 1, 1000)
    assert back.raw[:1000] == data[:1000]
    cuda("cuMemcpy", ctypes.addressof(back), ctypes.addressof(source), len(data))
    assert back.raw == data
    cuda("cuMemcpyHtoD_v2", one, data, 0)


@on_device()
def test_asynchronous_copies_keep_stream_order(cuda: Device) -> None:
    cuda.open()
    stream = cuda.stream(1)
    size = 1 << 16
    device, pinned = cuda.alloc(size), cuda.pinned(size)
    view = (ctypes.c_ubyte * size).from_address(pinned)
    for round_ in range(20):
        source = ctypes.create_string_buffer(bytes([round_]) * size, size)
        cuda("cuMemcpyHtoDAsync_v2", device, source, size, stream)
        ctypes.memset(source, 0xEE, size)  # pageable: the caller's again when the call returns
        cuda("cuMemcpyDtoHAsync_v2", pinned, device, size, stream)
        cuda("cuMemsetD8Async", device, 0xDD, size, stream)
        cuda("cuStreamSynchronize", stream)
        assert bytes(view) == bytes([round_]) * size
    back = ctypes.create_string_buffer(size)
    cuda("cuMemcpyDtoHAsync_v2", back, device, size, stream)
    assert back.raw == b"\xdd" * size  # into pageable memory: there when the call returns


@on_device()
def test_sets_of_every_width(cuda: Device) -> None:
    cuda.open()
    address = cuda.alloc(4096)
    cuda("cuMemsetD8_v2", address, 0x11, 16)
    cuda("cuMemsetD16_v2", address + 16, 0x2233, 8)
    cuda("cuMemsetD32_v2", address + 32, 0x44556677, 4)
    assert cuda.read(address, 48) == b"\x11" * 16 + b"\x33\x22" * 8 + b"\x77\x66\x55\x44" * 4
    cuda("cuMemsetD8_v2", address, 0, 4096)
    cuda("cuMemsetD2D8_v2", address, 64, 0xAA, 3, 4)
    cuda("cuMemsetD2D16_v2", address + 16, 64, 0xBBBB, 2, 2)
    cuda("cuMemsetD2D32_v2", address + 32, 64, 0xCCCCCCCC, 1, 1)
    rows = [cuda.read(address + 64 * y, 64) for y in range(5)]
    for y, row in enumerate(rows):
        expected = bytearray(64)
        if y < 4:
            expected[:3] = b"\xaa" * 3
        if y < 2:
            expected[16:20] = b"\xbb" * 4
        if y < 1:
            expected[32:36] = b"\xcc" * 4
        assert row == bytes(expected)
    expect(1, lambda: cuda("cuMemsetD2D8_v2", address, 64, 0, 65, 2))
    expect(1, lambda: cuda("cuMemsetD2D8_v2", address, 1 << 63, 0, 1, 5))


@on_device()
def test_host_memory(cuda: Device) -> None:
    context = cuda.open()
    address = cuda.out("cuMemHostAlloc", 5000, 4)
    assert address % 4096 == 0
    flags = cuda.out("cuMemHostGetFlags", address, kind=ctypes.c_uint)
    assert flags == 4 | 2
    assert cuda.out("cuMemHostGetDevicePointer_v2", address, 0) == address
    ctypes.memset(address, 7, 5000)
    device = cuda.alloc(5000)
    cuda("cuMemcpyAsync", device, address, 5000, 0)
    assert cuda.read(device, 5000) == b"\x07" * 5000
    assert cuda.out("cuPointerGetAttribute", 2, address, kind=ctypes.c_uint) == HOST
    assert cuda.out("cuPointerGetAttribute", 4, address + 9) == address + 9
    assert cuda.out("cuPointerGetAttribute", 1, address) == context
    expect(1, lambda: cuda("cuMemFreeHost", address + 1))
    cuda("cuMemFreeHost", address)
    expect(1, lambda: cuda("cuMemFreeHost", address))


@on_device()
def test_registered_memory(cuda: Device) -> None:
    cuda.open()
    buffer = ctypes.create_string_buffer(1 << 16)
    base = ctypes.addressof(buffer)
    cuda("cuMemHostRegister_v2", base, 1 << 15, 0)
    expect(712, lambda: cuda("cuMemHostRegister_v2", base + 100, 10, 0))
    expect(712, lambda: cuda("cuMemHostRegister_v2", base - 10, 20, 0))
    expect(1, lambda: cuda("cuMemHostUnregister", base + 1))
    expect(801, lambda: cuda("cuMemHostRegister_v2", base + (1 << 15), 10, 4))
    expect(
        1, lambda: cuda("cuMemHostGetDevicePointer_v2", ctypes.byref(ctypes.c_uint64()), base, 0)
    )
    device, stream = cuda.alloc(1 << 15), cuda.stream()
    cuda("cuMemsetD8Async", device, 9, 1 << 15, stream)
    cuda("cuMemcpyDtoHAsync_v2", base, device, 1 << 15, stream)
    cuda("cuStreamSynchronize", stream)
    assert buffer.raw[: 1 << 15] == b"\x09" * (1 << 15)
    assert cuda.out("cuPointerGetAttribute", 2, base, kind=ctypes.c_uint) == HOST
    cuda("cuMemHostUnregister", base)
    expect(713, lambda: cuda("cuMemHostUnregister", base))


@on_device()
def test_pointer_attributes(cuda: Device) -> None:
    context = cuda.open()
    one, two = cuda.alloc(1000), cuda.alloc(1000)
    inside = one + 500
    number = ctypes.c_uint
    assert cuda.out("cuPointerGetAttribute", 1, inside) == context
    assert cuda.out("cuPointerGetAttribute", 2, inside, kind=number) == DEVICE
    assert cuda.out("cuPointerGetAttribute", 3, inside) == inside
    if os.environ["RGPU_EMU_TIMING"] == "normal":
        assert cuda.out("cuPointerGetAttribute", 4, inside) == inside, "the host reaches the arena"
    else:
        expect(1, lambda: cuda.out("cuPointerGetAttribute", 4, inside))
    assert cuda.out("cuPointerGetAttribute", 7, one) != cuda.out("cuPointerGetAttribute", 7, two)
    assert cuda.out("cuPointerGetAttribute", 8, inside, kind=number) == 0
    assert cuda.out("cuPointerGetAttribute", 9, inside, kind=ctypes.c_int) == 0
    assert cuda.out("cuPointerGetAttribute", 11, inside) == one
    assert cuda.out("cuPointerGetAttribute", 12, inside) == 1000
    expect(1, lambda: cuda.out("cuPointerGetAttribute", 2, ctypes.addressof(number()), kind=number))
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    cuda("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), inside)
    assert (base.value, size.value) == (one, 1000)
    expect(
        500,
        lambda: cuda("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), one + 1000),
    )


@on_device()
def test_pointer_attributes_of_unknown_memory_are_zero(cuda: Device) -> None:
    cuda.open()
    kinds = (ctypes.c_int * 3)(2, 11, 9)
    memory, start, ordinal = ctypes.c_uint(7), ctypes.c_uint64(7), ctypes.c_int(7)
    data = (VOID * 3)(*(ctypes.addressof(v) for v in (memory, start, ordinal)))
    cuda("cuPointerGetAttributes", 3, kinds, data, ctypes.addressof(kinds))
    assert (memory.value, start.value, ordinal.value) == (0, 0, -2)
    address = cuda.alloc(64)
    cuda("cuPointerGetAttributes", 3, kinds, data, address + 4)
    assert (memory.value, start.value, ordinal.value) == (DEVICE, address, 0)


@on_device(RGPU_EMU_MEMORY=str(64 * MIB))
def test_memory_in_use_survives_its_free(cuda: Device) -> None:
    cuda.open()
    flag, stream = cuda.alloc(4), cuda.stream(1)
    size = 20 * MIB
    victim, pinned = cuda.alloc(size), cuda.pinned(size)
    cuda("cuMemsetD8_v2", victim, 5, size)
    cuda("cuCtxSynchronize")
    cuda("cuStreamWaitValue32_v2", stream, flag, 1, 1)
    cuda("cuMemcpyDtoHAsync_v2", pinned, victim, size, stream)
    if os.environ["RGPU_EMU_TIMING"] != "normal":  # there the free waits for the stream
        cuda("cuStreamWriteValue32_v2", cuda.stream(1), flag, 1, 0)
    cuda.free(victim)
    expect(1, lambda: cuda.read(victim, 1))
    cuda("cuStreamWriteValue32_v2", cuda.stream(1), flag, 1, 0)
    cuda("cuStreamSynchronize", stream)
    assert (ctypes.c_ubyte * size).from_address(pinned)[size - 1] == 5
    cuda.free(cuda.alloc(50 * MIB))  # its pages are back


@on_device()
def test_sync_memops_makes_sets_wait(cuda: Device) -> None:
    cuda.open()
    address = cuda.alloc(1 << 20)
    on = ctypes.c_uint(1)
    cuda("cuPointerSetAttribute", ctypes.byref(on), 6, address)
    assert cuda.out("cuPointerGetAttribute", 6, address, kind=ctypes.c_uint) == 1
    cuda("cuMemsetD8_v2", address, 3, 1 << 20)
    assert cuda.result("cuStreamQuery", 0) == 0
    expect(1, lambda: cuda("cuPointerSetAttribute", ctypes.byref(on), 2, address))


@on_device()
def test_many_small_allocations(cuda: Device) -> None:
    """More than a process may have mappings."""
    cuda.open()
    addresses = [cuda.alloc(100) for _ in range(40_000)]
    for number in (0, 20_000, 39_999):
        cuda.write(addresses[number], number.to_bytes(4, "little"))
    for number in (0, 20_000, 39_999):
        assert cuda.read(addresses[number], 4) == number.to_bytes(4, "little")
    for address in addresses:
        cuda.free(address)
    free, total = info(cuda)
    assert free == total
