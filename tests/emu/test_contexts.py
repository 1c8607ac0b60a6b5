"""Contexts, the device's description, entry points."""

from __future__ import annotations

import ctypes
import os
import re

from emu.device import CudaError, Device, expect, finish, in_thread, on_device
from emu.holding import NON_BLOCKING, hold


@on_device()
def test_nothing_works_before_cuInit(cuda: Device) -> None:
    for call in ("cuDeviceGetCount", "cuCtxGetCurrent", "cuMemAlloc_v2", "cuStreamQuery"):
        assert cuda.result(call, ctypes.byref(ctypes.c_uint64()), 4) == 3
    assert cuda.out("cuDriverGetVersion", kind=ctypes.c_int) >= 13000
    expect(1, lambda: cuda("cuInit", 1))
    cuda("cuInit", 0)
    cuda("cuInit", 0)
    expect(201, lambda: cuda.alloc(4))


@on_device()
def test_the_primary_context_is_counted(cuda: Device) -> None:
    first = cuda.open()
    assert cuda.out("cuDevicePrimaryCtxRetain", 0) == first
    flags, active = ctypes.c_uint(), ctypes.c_int()
    cuda("cuDevicePrimaryCtxGetState", 0, ctypes.byref(flags), ctypes.byref(active))
    assert active.value == 1
    address = cuda.alloc(1 << 20)
    cuda("cuDevicePrimaryCtxRelease_v2", 0)
    cuda.read(address, 1)
    cuda("cuDevicePrimaryCtxRelease_v2", 0)
    expect(201, lambda: cuda("cuDevicePrimaryCtxRelease_v2", 0))
    assert cuda.result("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 4) in (201, 709)
    assert cuda.out("cuDevicePrimaryCtxRetain", 0) == first
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == total.value  # what the old one owned is gone
    expect(1, lambda: cuda.read(address, 1))


@on_device()
def test_reset_drops_everything_and_keeps_the_references(cuda: Device) -> None:
    cuda.open()
    stream, address = cuda.stream(), cuda.alloc(64)
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    expect(400, lambda: cuda("cuStreamQuery", stream))
    expect(1, lambda: cuda.free(address))
    cuda.free(cuda.alloc(64))
    cuda("cuDevicePrimaryCtxRelease_v2", 0)


@on_device()
def test_the_context_stack_is_the_threads_own(cuda: Device) -> None:
    primary = cuda.open()
    made = cuda.out("cuCtxCreate_v2", 0, 0)
    assert cuda.out("cuCtxGetCurrent") == made

    def other() -> None:
        assert cuda.out("cuCtxGetCurrent") is None or cuda.out("cuCtxGetCurrent") == 0
        cuda("cuCtxPushCurrent_v2", primary)
        assert cuda.out("cuCtxGetCurrent") == primary
        assert cuda.out("cuCtxPopCurrent_v2") == primary
        expect(201, lambda: cuda.out("cuCtxPopCurrent_v2"))

    finish(in_thread(other))
    cuda("cuCtxDestroy_v2", made)
    assert cuda.out("cuCtxGetCurrent") == primary
    expect(201, lambda: cuda("cuCtxDestroy_v2", made))
    expect(201, lambda: cuda("cuCtxSetCurrent", made))
    expect(201, lambda: cuda("cuCtxDestroy_v2", primary))


@on_device()
def test_a_context_destroyed_elsewhere_is_said_so(cuda: Device) -> None:
    cuda("cuInit", 0)
    made = cuda.out("cuCtxCreate_v2", 0, 0)

    def destroys() -> None:
        cuda("cuCtxDestroy_v2", made)

    finish(in_thread(destroys))
    expect(709, lambda: cuda.alloc(4))


@on_device()
def test_destroying_a_context_ends_what_waits_in_it(cuda: Device) -> None:
    cuda.open()
    made = cuda.out("cuCtxCreate_v2", 0, 0)
    cuda.alloc(1 << 20)
    hold(cuda, cuda.stream(NON_BLOCKING))
    cuda("cuCtxDestroy_v2", made)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == total.value


@on_device()
def test_limits(cuda: Device) -> None:
    cuda.open()
    assert cuda.out("cuCtxGetLimit", 0) == 1024
    cuda("cuCtxSetLimit", 0, 5000)
    assert cuda.out("cuCtxGetLimit", 0) >= 5000
    cuda("cuCtxSetLimit", 2, 16 << 20)
    assert cuda.out("cuCtxGetLimit", 2) == 16 << 20
    expect(215, lambda: cuda("cuCtxSetLimit", 6, 1))
    expect(1, lambda: cuda("cuCtxSetLimit", 99, 1))
    expect(1, lambda: cuda.out("cuCtxGetLimit", 99))


@on_device()
def test_what_the_device_says_of_itself(cuda: Device) -> None:
    cuda.open()
    name = ctypes.create_string_buffer(64)
    cuda("cuDeviceGetName", name, 64, 0)
    assert name.value == b"rgpu emulated device"
    cuda("cuDeviceGetName", name, 5, 0)
    assert name.value == b"rgpu"
    assert (cuda.attribute(75), cuda.attribute(76)) == (8, 0)
    assert cuda.attribute(10) == 32
    assert cuda.attribute(1) == 1024
    assert {cuda.attribute(held) for held in (19, 41, 83, 95, 102, 115, 125)} == {1}
    for absent in (88, 89, 91, 96, 98, 112, 113, 119, 120, 127, 132):
        assert cuda.attribute(absent) == 0, absent
    assert cuda.attribute(16) >= 1
    expect(1, lambda: cuda.attribute(0))
    expect(1, lambda: cuda.attribute(100_000))
    expect(101, lambda: cuda.out("cuDeviceGet", 1, kind=ctypes.c_int))
    bus = ctypes.create_string_buffer(32)
    cuda("cuDeviceGetPCIBusId", bus, 32, 0)
    assert re.fullmatch(rb"[0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.0", bus.value)
    assert int(bus.value[5:7], 16) == cuda.attribute(33)
    assert cuda.out("cuDeviceGetByPCIBusId", bus.value, kind=ctypes.c_int) == 0
    expect(101, lambda: cuda.out("cuDeviceGetByPCIBusId", b"0000:01:00.0", kind=ctypes.c_int))


@on_device()
def test_entry_points_by_name(cuda: Device) -> None:
    def lookup(name: bytes, version: int = 13000, flags: int = 0) -> tuple[int, int, int]:
        pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
        result = cuda.result(
            "cuGetProcAddress_v2", name, ctypes.byref(pointer), version, flags, ctypes.byref(status)
        )
        return result, pointer.value or 0, status.value

    result, pointer, status = lookup(b"cuMemAlloc")
    assert (result, status) == (0, 0)
    assert pointer == ctypes.cast(cuda.library.cuMemAlloc_v2, ctypes.c_void_p).value
    assert lookup(b"cuLaunchKernel", flags=2)[1] != lookup(b"cuLaunchKernel")[1]
    assert lookup(b"cuGraphicsUnregisterResource") == (0, 0, 1)
    assert lookup(b"") == (0, 0, 1)
    assert lookup(b"cuMemAllocAsync", 2000) == (0, 0, 2)
    assert lookup(b"cuMemAlloc", flags=4)[0] == 1
    place = ctypes.c_void_p()
    expect(500, lambda: cuda("cuGetProcAddress", b"", ctypes.byref(place), 13000, 0))
    text = ctypes.c_char_p()
    cuda("cuGetErrorName", 700, ctypes.byref(text))
    assert text.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    expect(1, lambda: cuda("cuGetErrorString", 12345, ctypes.byref(text)))
    for unsupported in (
        "cuGraphicsUnregisterResource",
        "cuMulticastCreate",
        "cuTexRefCreate",
        "cuGreenCtxCreate",
    ):
        assert cuda.result(unsupported, 0, 0, 0, 0) == 801


@on_device()
def test_a_forked_child_is_not_initialized(cuda: Device) -> None:
    cuda.open()
    cuda.stream()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, bytes([cuda.result("cuCtxSynchronize"), cuda.result("cuInit", 0)]))
        os._exit(0)
    assert os.read(read, 2) == b"\x03\x03"
    assert os.waitpid(child, 0)[1] == 0
    cuda.free(cuda.alloc(100))


@on_device(RGPU_EMU_BAND="0x300000000000:0x10000000", RGPU_EMU_MEMORY=str(32 << 20))
def test_the_band_is_where_it_was_asked_for(cuda: Device) -> None:
    cuda.open()
    for _ in range(40):
        address = cuda.alloc(16 << 20)
        assert 0x3000_0000_0000 <= address < 0x3000_1000_0000
        cuda.free(address)


@on_device(RGPU_EMU_BAND="12:34")
def test_a_bad_band_is_refused(cuda: Device) -> None:
    expect(1, lambda: cuda("cuInit", 0))
    expect(3, lambda: cuda.alloc(4))


@on_device(RGPU_EMU_TIMING="sometimes")
def test_a_bad_timing_is_refused(cuda: Device) -> None:
    expect(1, lambda: cuda("cuInit", 0))


@on_device(RGPU_EMU_MEMORY="8GiB")
def test_a_bad_memory_size_is_refused(cuda: Device) -> None:
    expect(1, lambda: cuda("cuInit", 0))


@on_device()
def test_a_signal_does_not_end_a_wait(cuda: Device) -> None:
    context = cuda.open()
    stream, flag = cuda.stream(NON_BLOCKING), cuda.pinned(4)
    cuda("cuStreamWaitValue32_v2", stream, flag, 1, 1)
    libc = ctypes.CDLL(None)

    def waits() -> None:
        cuda("cuCtxSetCurrent", context)
        cuda("cuStreamSynchronize", stream)

    thread = in_thread(waits)
    libc.pthread_kill(ctypes.c_ulong(thread.ident or 0), 28)  # SIGWINCH
    cuda("cuStreamWriteValue32_v2", cuda.stream(NON_BLOCKING), flag, 1, 0)
    finish(thread)


def test_error_is_a_value() -> None:
    assert CudaError("cuX", 2).result == 2
