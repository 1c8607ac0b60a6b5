"""CUDA arrays in process: what can be made, what they take, and copies with them."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_void_p

from helpers import box_graphs, box_models, boxes
from helpers.boxes import (
    BC1,
    CUBEMAP,
    DEFERRED,
    F16,
    F32,
    GATHER,
    LAYERED,
    NV12,
    SPARSE,
    SURFACE,
    U8,
    Box,
    Flat,
    Shape,
    shape,
)

from emu.device import Device, expect, on_device
from emu.test_memory import info

MIB = 1 << 20
MEMORY = str(64 * MIB)
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_SUPPORTED = 1, 2, 201, 400, 801


@on_device()
def test_copies_of_random_extents(cuda: Device) -> None:
    context = cuda.open()
    box_models.random_copies(cuda, context, 1, 300)


@on_device()
def test_copies_of_one_row(cuda: Device) -> None:
    box_models.linear_copies(cuda, cuda.open(), 2)


@on_device()
def test_copies_are_nodes_of_graphs(cuda: Device) -> None:
    context = cuda.open()
    box_graphs.random_nodes(cuda, context, 8, 40)
    box_graphs.big_nodes(cuda, context, 9)


@on_device()
def test_what_an_array_may_be(cuda: Device) -> None:
    cuda.open()
    for good in (
        shape(131072),
        shape(131072, 2, flags=0),
        shape(16384, 1, 2),
        shape(2, 2, 32768),
        shape(4, 0, 2048, flags=LAYERED),
        shape(4, 4, 2048, flags=LAYERED),
        shape(4, 4, 6, flags=CUBEMAP),
        shape(4, 4, 12, flags=CUBEMAP | LAYERED),
        shape(5, 5, flags=GATHER),
        shape(32768, flags=SURFACE),
        shape(4, format=0xC2, channels=4),
        shape(4, format=0x50, channels=4),
    ):
        array = boxes.create(cuda, good)
        expected = tuple(getattr(good, name) for name, _ in Shape._fields_)
        assert boxes.describe(cuda, array) == expected
        cuda("cuArrayDestroy", array)
    for bad, result in (
        (shape(0), 1),
        (shape(131073), 1),
        (shape(4, 65537), 1),
        (shape(16385, 1, 2), 1),
        (shape(9000, 9000, 16385), 1),
        (shape(4, 0, 2), 1),
        (shape(4, 4, 0, flags=LAYERED), 1),
        (shape(4, 0, 2049, flags=LAYERED), 1),
        (shape(4, 5, 6, flags=CUBEMAP), 1),
        (shape(4, 4, 7, flags=CUBEMAP), 1),
        (shape(4, 4, 8, flags=CUBEMAP | LAYERED), 1),
        (shape(4, 0, 0, flags=GATHER), 1),
        (shape(32769, flags=SURFACE), 1),
        (shape(4, format=99), 1),
        (shape(4, channels=3), 1),
        (shape(4, format=0xC2, channels=2), 1),
        (shape(4, flags=1 << 20), 1),
        (shape(4, 4, format=BC1, channels=4), 801),
        (shape(4, 4, flags=SPARSE), 801),
        (shape(4, 4, flags=DEFERRED), 801),
        (shape(4, 4, flags=0x10), 801),
        (shape(16384, 16384, 16384, format=F32, channels=4), 2),
    ):
        expect(result, lambda bad=bad: boxes.create(cuda, bad))


@on_device()
def test_flat_arrays_and_their_descriptions(cuda: Device) -> None:
    cuda.open()
    handle, flat = c_void_p(), Flat(width=7, height=5, format=F16, channels=2)
    cuda("cuArrayCreate_v2", byref(handle), byref(flat))
    found = Flat()
    cuda("cuArrayGetDescriptor_v2", byref(found), handle)
    assert bytes(found) == bytes(flat)
    assert boxes.describe(cuda, handle.value or 0) == (7, 5, 0, F16, 2, 0)
    for call, rest in (
        ("cuArrayGetSparseProperties", ()),
        ("cuArrayGetMemoryRequirements", (0,)),
    ):
        out = ctypes.create_string_buffer(64)
        expect(INVALID_VALUE, lambda c=call, r=rest, o=out: cuda(c, o, handle, *r))
        expect(INVALID_HANDLE, lambda c=call, r=rest, o=out: cuda(c, o, 99, *r))
    cuda("cuArrayDestroy", handle)
    expect(INVALID_HANDLE, lambda: cuda("cuArrayDestroy", handle))
    expect(INVALID_HANDLE, lambda: boxes.describe(cuda, handle.value or 0))


@on_device(RGPU_EMU_MEMORY=MEMORY)
def test_memory_of_arrays_is_counted_exactly(cuda: Device) -> None:
    cuda.open()
    before = info(cuda)[0]
    # A row of 100 floats takes 448 bytes.
    array = boxes.create(cuda, shape(100, 50, 20, format=F32))
    assert before - info(cuda)[0] == (448 * 50 * 20 + 4095) // 4096 * 4096
    expect(OUT_OF_MEMORY, lambda: boxes.create(cuda, shape(1024, 1024, 64, channels=1)))
    cuda("cuArrayDestroy", array)
    assert info(cuda)[0] == before
    whole = boxes.create(cuda, shape(1024, 1024, 64))
    assert info(cuda)[0] == 0
    cuda("cuArrayDestroy", whole)
    levels = boxes.create_mipmapped(cuda, shape(256, 256, channels=4), 9)
    sizes = [max(64, side * 4) * side for side in (256, 128, 64, 32, 16, 8, 4, 2, 1)]
    padded = sum((size + 511) // 512 * 512 for size in sizes[:-1]) + sizes[-1]
    assert before - info(cuda)[0] == (padded + 4095) // 4096 * 4096
    cuda("cuMipmappedArrayDestroy", levels)
    assert info(cuda)[0] == before


@on_device()
def test_levels_are_arrays_of_their_own(cuda: Device) -> None:
    cuda.open()
    mipmapped = boxes.create_mipmapped(cuda, shape(20, 9, 5, format=F32), 5)
    assert boxes.describe(cuda, boxes.level(cuda, mipmapped, 2)) == (5, 2, 1, F32, 1, 0)
    first = boxes.level(cuda, mipmapped, 0)
    assert boxes.level(cuda, mipmapped, 0) == first
    expect(INVALID_VALUE, lambda: boxes.level(cuda, mipmapped, 5))
    expect(INVALID_HANDLE, lambda: boxes.level(cuda, first, 0))
    expect(INVALID_HANDLE, lambda: cuda("cuArrayDestroy", first))
    for levels in (0, 6):
        expect(
            INVALID_VALUE,
            lambda n=levels: boxes.create_mipmapped(cuda, shape(20, 9, 5, format=F32), n),
        )
    layers = boxes.create_mipmapped(cuda, shape(8, 8, 3, flags=LAYERED), 4)
    assert boxes.describe(cuda, boxes.level(cuda, layers, 3)) == (1, 1, 3, U8, 1, LAYERED)
    cuda("cuMipmappedArrayDestroy", mipmapped)
    expect(INVALID_HANDLE, lambda: boxes.describe(cuda, first))
    expect(INVALID_HANDLE, lambda: cuda("cuMipmappedArrayDestroy", mipmapped))


@on_device()
def test_planes_of_video(cuda: Device) -> None:
    cuda.open()
    video = boxes.create(cuda, shape(8, 6, format=NV12, channels=3))
    planes = []
    for number, expected in enumerate(((8, 6, 0, U8, 1, 0), (4, 3, 0, U8, 2, 0))):
        plane = c_void_p()
        cuda("cuArrayGetPlane", byref(plane), video, number)
        assert boxes.describe(cuda, plane.value or 0) == expected
        planes.append(plane.value or 0)
    expect(INVALID_VALUE, lambda: cuda("cuArrayGetPlane", byref(c_void_p()), video, 2))
    expect(INVALID_VALUE, lambda: cuda("cuArrayGetPlane", byref(c_void_p()), planes[0], 0))
    expect(INVALID_VALUE, lambda: boxes.create(cuda, shape(7, 6, format=NV12, channels=3)))
    for number, plane_handle in enumerate(planes):
        data = bytes([number + 1]) * 8
        box = Box(width=8, height=1, depth=1, srctype=1, dsttype=3, dstarray=plane_handle)
        box.srchost = ctypes.cast(data, c_void_p)
        cuda("cuMemcpy3D_v2", byref(box))
    box.dstarray = video
    expect(INVALID_VALUE, lambda: cuda("cuMemcpy3D_v2", byref(box)))
    back = ctypes.create_string_buffer(8)
    out = Box(width=8, height=1, depth=1, srctype=3, dsttype=1, srcarray=planes[0])
    out.dsthost = ctypes.addressof(back)
    cuda("cuMemcpy3D_v2", byref(out))
    assert back.raw == b"\x01" * 8, "the planes are different memory"


@on_device()
def test_copies_that_are_refused(cuda: Device) -> None:
    cuda.open()
    array, memory = boxes.create(cuda, shape(16, 8, 4, format=F32)), cuda.alloc(4096)
    good = {
        "width": 32, "height": 4, "depth": 2, "srctype": 2, "srcdevice": memory, "srcpitch": 64,
        "srcrows": 8, "dsttype": 3, "dstarray": array,
    }  # fmt: skip
    assert cuda.result("cuMemcpy3D_v2", byref(Box(**good))) == 0
    for changes, result in (
        ({"width": 30}, 1),
        ({"dstx": 2}, 1),
        ({"dstx": 36}, 1),
        ({"dsty": 5}, 1),
        ({"dstz": 3}, 1),
        ({"dstz": 1 << 63}, 1),
        ({"depth": 5}, 1),
        ({"dstlevel": 1}, 1),
        ({"srcpitch": 31}, 1),
        ({"srcrows": 3}, 1),
        ({"srcrows": 1 << 60}, 1),
        ({"srcz": 1 << 60}, 1),
        ({"srctype": 9}, 1),
        ({"dsttype": 0}, 1),
        ({"srcdevice": memory + 4096 - 300}, 1),
        ({"dstarray": 12345}, 400),
        ({"dstarray": 0}, 400),
    ):
        got = cuda.result("cuMemcpy3D_v2", byref(Box(**{**good, **changes})))
        assert got == result, (changes, got)
    for nothing in ("width", "height", "depth"):
        assert cuda.result("cuMemcpy3D_v2", byref(Box(**{**good, nothing: 0}))) == 0
    for at, count, result in ((0, 8, 1), (0, 0, 1)):
        got = cuda.result("cuMemcpyDtoA_v2", array, at, memory, c_size_t(count))
        assert got == result, "only arrays of one dimension"


@on_device()
def test_x_only_moves_the_first_byte(cuda: Device) -> None:
    """It may be more than the pitch, which must hold the width alone."""
    cuda.open()
    memory, packed = cuda.alloc(256), cuda.alloc(64)
    data = bytes(range(256))
    cuda.write(memory, data)
    box = Box(width=16, height=4, depth=1, srctype=2, srcdevice=memory, srcpitch=32, srcx=48)
    box.dsttype, box.dstdevice, box.dstpitch = 2, packed, 16
    cuda("cuMemcpy3D_v2", byref(box))
    assert cuda.read(packed, 64) == b"".join(data[n : n + 16] for n in range(48, 176, 32))


@on_device()
def test_no_address_reaches_an_array(cuda: Device) -> None:
    """Arrays lie beside plain memory, whose addresses end where it ends."""
    cuda.open()
    before, array, after = cuda.alloc(4096), boxes.create(cuda, shape(4096)), cuda.alloc(4096)
    assert after > before
    cuda("cuMemcpyHtoA_v2", array, 0, b"a" * 4096, 4096)
    for at in range(before + 4096, after, 512):
        expect(INVALID_VALUE, lambda at=at: cuda.read(at, 1))
        expect(INVALID_VALUE, lambda at=at: cuda("cuMemsetD8_v2", at, 0, 1))
        expect(INVALID_VALUE, lambda at=at: cuda.free(at))


@on_device(RGPU_EMU_MEMORY=MEMORY)
def test_arrays_go_with_their_context(cuda: Device) -> None:
    cuda("cuInit", 0)
    context = cuda.out("cuCtxCreate_v2", 0, 0)
    array = boxes.create(cuda, shape(1024, 1024))
    boxes.level(cuda, boxes.create_mipmapped(cuda, shape(1024, 1024), 3), 1)
    cuda("cuCtxDestroy_v2", context)
    cuda.open()
    assert info(cuda)[0] == 64 * MIB
    expect(INVALID_HANDLE, lambda: boxes.describe(cuda, array))
    cuda("cuCtxSetCurrent", 0)
    expect(INVALID_CONTEXT, lambda: boxes.create(cuda, shape(4)))


@on_device()
def test_a_destroyed_array_serves_the_work_before(cuda: Device) -> None:
    cuda.open()
    array, flag, out = boxes.create(cuda, shape(4096)), cuda.alloc(512), cuda.alloc(4096)
    waits, writes = cuda.stream(1), cuda.stream(1)
    cuda("cuMemcpyHtoA_v2", array, 0, b"x" * 4096, 4096)
    cuda("cuMemsetD32_v2", flag, 0, 1)
    cuda("cuCtxSynchronize")
    box = Box(width=4096, height=1, depth=1, srctype=3, srcarray=array, dsttype=2, dstdevice=out)
    cuda("cuStreamWaitValue32_v2", waits, flag, 1, 1)
    cuda("cuMemcpy3DAsync_v2", byref(box), waits)
    if not is_hostile(cuda):
        cuda("cuArrayDestroy", array)
        expect(INVALID_HANDLE, lambda: cuda("cuMemcpy3DAsync_v2", byref(box), waits))
    cuda("cuStreamWriteValue32_v2", writes, flag, 1, 0)
    cuda("cuStreamSynchronize", waits)
    assert cuda.read(out, 4096) == b"x" * 4096


def is_hostile(cuda: Device) -> bool:
    """In hostile timing a free waits for all streams, here for ever."""
    del cuda
    import os

    return os.environ["RGPU_EMU_TIMING"] != "normal"
