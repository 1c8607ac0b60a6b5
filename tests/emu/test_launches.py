"""Launches: parameters, checks at the call, faults."""

from __future__ import annotations

import ctypes
import struct

from emu.device import Device, expect, on_device
from emu.kernels import U32, U64, VOID, load


@on_device()
def test_a_kernel_runs(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    data = cuda.alloc(4000)
    cuda("cuMemsetD32_v2", data, 41, 1000)
    for _ in range(10):
        cuda.launch(function, [U64(data), U32(999)], grid=8, block=128)
    assert struct.unpack("<1000I", cuda.read(data, 4000)) == (51,) * 999 + (41,)


@on_device()
def test_parameters_as_one_buffer(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    data = cuda.alloc(16)

    def launch(packed: bytes, size: int, key: int = 1) -> None:
        buffer, count = ctypes.create_string_buffer(packed, len(packed)), ctypes.c_size_t(size)
        extra = (VOID * 5)(key, ctypes.addressof(buffer), 2, ctypes.addressof(count), 0)
        cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, 0, None, extra)

    launch(struct.pack("<QI", data, 4), 12)
    assert cuda.read(data, 16) == struct.pack("<4I", 1, 1, 1, 1)
    expect(1, lambda: launch(struct.pack("<QI", data, 4), 11))
    expect(1, lambda: launch(struct.pack("<QI", data, 4), 12, key=7))
    expect(1, lambda: cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, 0, None, None))


@on_device()
def test_bad_launches_are_refused_at_the_call(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    function = cuda.function(module, "bump")
    for grid, block in ((0, 1), (1, 0), (1, 1025)):
        expect(1, lambda grid=grid, block=block: cuda.launch(function, [], grid, block))  # type: ignore[misc]
    expect(1, lambda: cuda("cuLaunchKernel", function, 1, 65536, 1, 1, 1, 1, 0, 0, None, None))
    expect(1, lambda: cuda("cuLaunchKernel", function, 1, 1, 1, 1, 1, 65, 0, 0, None, None))
    expect(400, lambda: cuda.launch(0, []))
    expect(400, lambda: cuda.launch(function + 16, []))
    expect(400, lambda: cuda.launch(function, [], stream=77))
    expect(
        720,
        lambda: cuda("cuLaunchCooperativeKernel", function, 100_000, 1, 1, 32, 1, 1, 0, 0, None),
    )
    cuda.launch(function, [])
    cuda("cuCtxSynchronize")
    cuda.out("cuCtxCreate_v2", 0, 0)
    expect(400, lambda: cuda.launch(function, []))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", U64),
        ("attributes", VOID),
        ("count", ctypes.c_uint),
    )


@on_device()
def test_launch_attributes(cuda: Device) -> None:
    cuda.open()
    function, stream = cuda.function(load(cuda), "bump"), cuda.stream()

    def launch(identifier: int, *value: int) -> None:
        raw = struct.pack("<ii", identifier, 0) + struct.pack(f"<{len(value)}i", *value)
        attributes = ctypes.create_string_buffer(raw, 72)
        config = LaunchConfig((1, 1, 1), (32, 1, 1), 0, stream, ctypes.addressof(attributes), 1)
        cuda("cuLaunchKernelEx", ctypes.byref(config), function, None, None)

    for accepted in (0, 8, 10):
        launch(accepted, 0)
    launch(2, 1)
    launch(4, 1, 1, 1)
    expect(912, lambda: launch(4, 2, 1, 1))
    expect(801, lambda: launch(13, 1))
    expect(801, lambda: launch(99, 1))
    cuda("cuStreamSynchronize", stream)


@on_device()
def test_a_wild_access_is_sticky(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    guarded = cuda.alloc(1000)
    cuda.launch(cuda.function(module, "wild"), [U64(guarded + 1024)])
    expect(700, lambda: cuda("cuCtxSynchronize"))
    for call in (
        lambda: cuda.alloc(4),
        lambda: cuda.read(guarded, 4),
        lambda: cuda("cuStreamSynchronize", 0),
    ):
        expect(700, call)
    expect(700, lambda: cuda.out("cuCtxCreate_v2", 0, 0))
    assert cuda.attribute(10) == 32  # what is no matter of the context still answers


@on_device()
def test_a_null_access_and_a_host_address_are_illegal(cuda: Device) -> None:
    cuda.open()
    buffer = ctypes.create_string_buffer(64)
    cuda.launch(cuda.function(load(cuda), "wild"), [U64(ctypes.addressof(buffer))])
    expect(700, lambda: cuda("cuCtxSynchronize"))
    assert buffer.raw == bytes(64)


@on_device()
def test_a_trap_is_a_launch_failure(cuda: Device) -> None:
    cuda.open()
    cuda.launch(cuda.function(load(cuda), "trap_"), [])
    assert cuda.result("cuCtxSynchronize") in (715, 719)


@on_device()
def test_the_oldest_launch_calls(cuda: Device) -> None:
    cuda.open()
    function, data = cuda.function(load(cuda), "add"), cuda.alloc(256)
    pointer = U64(data)
    cuda("cuFuncSetBlockShape", function, 16, 1, 1)
    cuda("cuParamSetv", function, 0, ctypes.byref(pointer), 8)
    cuda("cuParamSeti", function, 8, 40)
    cuda("cuParamSetSize", function, 12)
    cuda("cuLaunchGrid", function, 3, 1)
    assert struct.unpack("<64I", cuda.read(data, 256)) == (1,) * 40 + (0,) * 24


@on_device(RGPU_EMU_MEMORY=str(32 << 20))
def test_local_memory_is_charged(cuda: Device) -> None:
    cuda.open()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    expect(2, lambda: cuda("cuCtxSetLimit", 0, 500_000))
    cuda("cuCtxSetLimit", 0, 2048)
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == total.value - 2048 * 2048 * cuda.attribute(16)
    cuda("cuCtxSetLimit", 0, 1024)
    cuda.free(cuda.alloc(32 << 20))
