"""Memory with a pitch, and copies of its rows."""

from __future__ import annotations

import ctypes
import os

from emu.device import Device, expect, on_device
from emu.graphs import Copy

VOID = ctypes.c_void_p
HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("srcXInBytes", ctypes.c_size_t),
        ("srcY", ctypes.c_size_t),
        ("srcMemoryType", ctypes.c_uint),
        ("srcHost", VOID),
        ("srcDevice", ctypes.c_uint64),
        ("srcArray", VOID),
        ("srcPitch", ctypes.c_size_t),
        ("dstXInBytes", ctypes.c_size_t),
        ("dstY", ctypes.c_size_t),
        ("dstMemoryType", ctypes.c_uint),
        ("dstHost", VOID),
        ("dstDevice", ctypes.c_uint64),
        ("dstArray", VOID),
        ("dstPitch", ctypes.c_size_t),
        ("WidthInBytes", ctypes.c_size_t),
        ("Height", ctypes.c_size_t),
    )


@on_device()
def test_pitched_memory_and_two_dimensional_copies(cuda: Device) -> None:
    cuda.open()
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    cuda("cuMemAllocPitch_v2", ctypes.byref(address), ctypes.byref(pitch), 700, 5, 4)
    assert pitch.value == 1024
    expect(
        1, lambda: cuda("cuMemAllocPitch_v2", ctypes.byref(address), ctypes.byref(pitch), 700, 5, 3)
    )
    data = os.urandom(70 * 5)
    source = ctypes.create_string_buffer(data, len(data))
    up = Copy2D(
        srcMemoryType=HOST,
        srcHost=ctypes.addressof(source),
        srcPitch=70,
        dstXInBytes=10,
        dstY=1,
        dstMemoryType=DEVICE,
        dstDevice=address.value,
        dstPitch=pitch.value,
        WidthInBytes=60,
        Height=4,
    )
    cuda("cuMemcpy2D_v2", ctypes.byref(up))
    row = cuda.read(address.value + pitch.value, 700)
    assert row == bytes(10) + data[:60] + bytes(630)
    back = ctypes.create_string_buffer(b"-" * 400, 400)
    down = Copy2D(
        srcXInBytes=10,
        srcY=1,
        srcMemoryType=UNIFIED,
        srcDevice=address.value,
        srcPitch=pitch.value,
        dstMemoryType=UNIFIED,
        dstDevice=ctypes.addressof(back),
        dstPitch=100,
        WidthInBytes=60,
        Height=4,
    )
    cuda("cuMemcpy2D_v2", ctypes.byref(down))
    for y in range(4):
        assert back.raw[100 * y : 100 * y + 100] == data[70 * y : 70 * y + 60] + b"-" * 40
    down.srcMemoryType = ARRAY
    expect(400, lambda: cuda("cuMemcpy2D_v2", ctypes.byref(down)))
    down.srcMemoryType, down.srcPitch = DEVICE, 59
    expect(1, lambda: cuda("cuMemcpy2D_v2", ctypes.byref(down)))
    down.srcPitch, down.Height = pitch.value, 1 << 60
    expect(1, lambda: cuda("cuMemcpy2D_v2", ctypes.byref(down)))


@on_device()
def test_a_pitch_above_the_devices_maximum_is_refused(cuda: Device) -> None:
    cuda.open()
    most = cuda.attribute(11)  # MAX_PITCH
    assert most == 2**31 - 1
    place, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    for width in (most, 2**31, 2**40):  # the pitch is a multiple of 512
        expect(
            1,
            lambda width=width: cuda(
                "cuMemAllocPitch_v2", ctypes.byref(place), ctypes.byref(pitch), width, 1, 4
            ),
        )
    source, target = cuda.alloc(4096), cuda.alloc(4096)

    def copy(rows: int, pitch: int, side: str) -> int:
        params = Copy(width=4, height=rows, depth=1)
        params.src.type = params.dst.type = 2
        params.src.device, params.dst.device = source, target
        params.src.pitch = params.dst.pitch = 16
        getattr(params, side).pitch = pitch
        return cuda.result("cuMemcpy3D_v2", ctypes.byref(params))

    for side in ("src", "dst"):
        assert copy(2, most + 1, side) == 1
        assert copy(2, 2048, side) == 0
        assert copy(1, most + 1, side) == 0, "a single row has no pitch"
