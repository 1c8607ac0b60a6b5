"""Virtual memory management: addresses, memory, and mappings between them."""

from __future__ import annotations

import ctypes
import os

from helpers.maps import GRANULE, NONE, READ, Maps

from emu.device import Device, expect, on_device
from emu.kernels import PTX, U64, load
from emu.test_memory import info

MIB = 1 << 20
MEMORY = str(64 * MIB)


@on_device(RGPU_EMU_MEMORY=MEMORY)
def test_memory_is_counted_from_its_creation_to_its_last_use(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    assert cuda.attribute(102) == 1
    assert (maps.granularity(0), maps.granularity(1)) == (GRANULE, GRANULE)
    place = maps.reserve(1 << 30)
    assert place % GRANULE == 0
    assert info(cuda)[0] == 64 * MIB, "addresses are no memory"
    handle = maps.create(32 * MIB)
    assert info(cuda)[0] == 32 * MIB
    expect(2, lambda: maps.create(34 * MIB))
    maps.map(place, 32 * MIB, handle)
    maps.release(handle)
    assert info(cuda)[0] == 32 * MIB, "a mapping keeps the memory"
    maps.unmap(place, 32 * MIB)
    assert info(cuda)[0] == 64 * MIB
    maps.unreserve(place, 1 << 30)


@on_device()
def test_one_memory_at_two_addresses_is_the_same_bytes(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    first, handle = maps.mapped(2 * GRANULE)
    second = maps.reserve(2 * GRANULE)
    maps.map(second, 2 * GRANULE, handle)
    maps.allow(second, 2 * GRANULE)
    cuda("cuMemsetD8_v2", first, 0, 2 * GRANULE)
    cuda.write(first + GRANULE - 2, b"over the border")
    assert cuda.read(second + GRANULE - 2, 15) == b"over the border"
    add = cuda.function(load(cuda, PTX), "add")
    cuda.launch(add, [U64(second), ctypes.c_uint32(4)], block=4)
    assert cuda.read(first, 16) == b"\x01\0\0\0" * 4
    assert cuda.out("cuPointerGetAttribute", 20, first) == cuda.out(
        "cuPointerGetAttribute", 20, second
    )
    assert cuda.out("cuPointerGetAttribute", 7, first) != cuda.out(
        "cuPointerGetAttribute", 7, second
    )


@on_device()
def test_fresh_memory_is_zero_and_mappings_that_adjoin_are_one(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    old, handle = maps.mapped(GRANULE)
    cuda("cuMemsetD8_v2", old, 7, GRANULE)
    cuda("cuCtxSynchronize")
    maps.unmap(old, GRANULE)
    maps.release(handle)
    place = maps.reserve(2 * GRANULE)
    for at in (place, place + GRANULE):
        maps.map(at, GRANULE, maps.create(GRANULE))
    maps.allow(place, 2 * GRANULE)
    assert cuda.read(place, 2 * GRANULE) == bytes(2 * GRANULE)
    cuda("cuMemsetD8_v2", place + 5, 9, 2 * GRANULE - 5)
    assert cuda.read(place + GRANULE - 1, 2) == b"\x09\x09"
    expect(1, lambda: cuda.read(place + 2 * GRANULE - 1, 2))
    expect(1, lambda: cuda.free(place))
    maps.unmap(place, 2 * GRANULE)
    maps.unreserve(place, 2 * GRANULE)


@on_device()
def test_access_begins_with_none_and_kernels_without_it_fail(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    handle, place = maps.create(GRANULE), maps.reserve(GRANULE)
    expect(1, lambda: maps.access(place))
    maps.map(place, GRANULE, handle)
    assert maps.access(place) == NONE
    expect(1, lambda: cuda.read(place, 4))
    wild = cuda.function(load(cuda, PTX), "wild")
    cuda.launch(wild, [U64(place)])
    expect(700, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_memory_for_reading_only(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    place, _ = maps.mapped(GRANULE)
    cuda.write(place, b"text")
    maps.allow(place, GRANULE, READ)
    assert maps.access(place + 100) == READ
    assert cuda.read(place, 4) == b"text"
    wild = cuda.function(load(cuda, PTX), "wild")
    cuda.launch(wild, [U64(place)])
    expect(700, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_reservations(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    place = maps.reserve(4 * GRANULE, 16 * GRANULE)
    assert place % (16 * GRANULE) == 0
    other = maps.reserve(GRANULE, 0, place)
    assert other != place, "a hint is honoured only where it is free"
    maps.unreserve(place, 4 * GRANULE)
    assert maps.reserve(GRANULE, 0, place) == place
    expect(1, lambda: maps.reserve(0))
    expect(1, lambda: maps.reserve(GRANULE + 1))
    expect(1, lambda: maps.reserve(GRANULE, 3 * GRANULE))
    expect(1, lambda: maps.reserve(GRANULE, 0, place + 1))
    expect(2, lambda: maps.reserve(1 << 50))
    expect(1, lambda: maps.unreserve(place, 2 * GRANULE))
    expect(1, lambda: maps.unreserve(other + GRANULE, GRANULE))
    maps.map(place, GRANULE, maps.create(GRANULE))
    expect(1, lambda: maps.unreserve(place, GRANULE))


@on_device()
def test_mappings_are_whole(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    place, handle = maps.reserve(4 * GRANULE), maps.create(2 * GRANULE)
    expect(1, lambda: maps.map(place, 4 * GRANULE, handle))
    expect(1, lambda: maps.map(place, GRANULE, handle, GRANULE))
    expect(1, lambda: maps.map(place + 4096, GRANULE, handle))
    expect(1, lambda: maps.map(place + 3 * GRANULE, 2 * GRANULE, handle))
    expect(1, lambda: maps.map(place, GRANULE, handle + 16))
    maps.map(place, 2 * GRANULE, handle)
    expect(1, lambda: maps.map(place + GRANULE, GRANULE, handle))
    expect(1, lambda: maps.unmap(place, GRANULE))
    expect(1, lambda: maps.unmap(place, 3 * GRANULE))
    expect(1, lambda: maps.allow(place, GRANULE))
    expect(1, lambda: maps.allow(place, 4 * GRANULE))
    expect(1, lambda: maps.allow(place, 2 * GRANULE, 2))
    expect(101, lambda: maps.allow(place, 2 * GRANULE, 3, device=1))
    maps.unmap(place, 2 * GRANULE)
    expect(1, lambda: maps.unmap(place, 2 * GRANULE))


@on_device()
def test_handles_are_counted(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    place, handle = maps.mapped(GRANULE)
    again = maps.retain(place + 77)
    assert again == handle
    prop = maps.props_of(handle)
    assert (prop.type, prop.handles, prop.location.type, prop.location.id) == (1, 0, 1, 0)
    maps.release(handle)
    maps.release(again)
    expect(1, lambda: maps.release(handle))
    expect(1, lambda: maps.props_of(handle))
    assert maps.props_of(maps.retain(place)).type == 1, "the mapping still has it"
    expect(1, lambda: maps.retain(place + GRANULE))


@on_device()
def test_what_memory_cannot_be(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    expect(1, lambda: maps.create(GRANULE + 4096))
    expect(1, lambda: maps.create(0))
    expect(801, lambda: maps.create(GRANULE, handles=3))
    expect(801, lambda: maps.create(GRANULE, rdma=1))
    expect(801, lambda: maps.create(GRANULE, type=2))
    expect(1, lambda: maps.create(GRANULE, type=3))
    location = maps.props_of(maps.create(GRANULE, compression=1)).location
    location.id = 1
    expect(101, lambda: maps.create(GRANULE, location=location))
    location.type = 3
    expect(801, lambda: maps.create(GRANULE, location=location))


@on_device(RGPU_EMU_MEMORY=MEMORY)
def test_memory_is_exported_as_a_file_descriptor(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    handle, place = maps.create(4 * GRANULE, handles=1), maps.reserve(8 * GRANULE)
    maps.map(place, 4 * GRANULE, handle)
    maps.allow(place, 4 * GRANULE)
    assert info(cuda)[0] == 56 * MIB
    file = maps.export(handle)
    other = maps.import_(file)
    assert other != handle
    maps.map(place + 4 * GRANULE, 3 * GRANULE, other)
    maps.allow(place + 4 * GRANULE, 3 * GRANULE, READ)
    cuda.write(place + GRANULE, b"the same")
    assert cuda.read(place + 5 * GRANULE, 8) == b"the same"
    maps.release(handle)
    maps.unmap(place, 4 * GRANULE)
    assert info(cuda)[0] == 64 * MIB, "an import does not count"
    assert cuda.read(place + 5 * GRANULE, 8) == b"the same"
    plain = maps.create(GRANULE)
    assert [maps.props_of(each).handles for each in (plain, other)] == [0, 1]
    expect(1, lambda: maps.export(plain))
    expect(1, lambda: maps.export(other, 2))
    for wrong in (-1, 0, 1 << 20):
        expect(1, lambda wrong=wrong: maps.import_(wrong))
    os.close(file)


@on_device()
def test_a_process_has_so_much_memory_with_files(cuda: Device) -> None:
    cuda.open()
    maps = Maps(cuda)
    made = [maps.create(GRANULE, handles=1) for _ in range(256)]
    expect(2, lambda: maps.create(GRANULE, handles=1))
    maps.release(made.pop())
    made.append(maps.create(GRANULE, handles=1))
    for handle in made:
        maps.release(handle)
