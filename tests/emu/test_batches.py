"""Batches of copies and memory operations, events of contexts, copies between contexts, the log."""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path

from helpers import batches
from helpers.batches import ANY, AT_CALL, BARRIER, FLUSH, IN_STREAM, WAIT_32, WRITE_32, WRITE_64

from emu.device import Device, expect, on_device
from emu.kernels import PTX, load

MIB = 1 << 20


@on_device()
def test_operations_of_a_batch_run_in_order(cuda: Device) -> None:
    cuda.open()
    words, one, two = cuda.alloc(64), cuda.stream(1), cuda.stream(1)
    cuda("cuMemsetD8_v2", words, 0, 64)
    cuda("cuCtxSynchronize")
    waits = [(WAIT_32, words, 1, 1), (WRITE_32, words + 4, 7, 0), (BARRIER, 0, 0, 0)]
    assert batches.operations(cuda, one, [*waits, (WRITE_64, words + 8, 1 << 40, 1)]) == 0
    assert cuda.result("cuStreamQuery", one) == 600
    assert batches.operations(cuda, two, [(WRITE_32, words, 1, 0)]) == 0
    cuda("cuStreamSynchronize", one)
    assert cuda.read(words, 16) == bytes([1, 0, 0, 0, 7]) + bytes(8) + bytes([1, 0, 0])


@on_device()
def test_a_batch_with_a_bad_operation_does_nothing(cuda: Device) -> None:
    cuda.open()
    words, stream = cuda.alloc(64), cuda.stream(1)
    cuda("cuMemsetD8_v2", words, 0, 64)
    good = (WRITE_32, words, 7, 0)
    for bad, result in (
        ((FLUSH, 0, 0, 0), 801),
        ((WAIT_32, words, 0, 1 << 30), 801),
        ((WAIT_32, words, 0, 8), 1),
        ((WRITE_32, words + 2, 0, 0), 1),
        ((WRITE_64, words + 4, 0, 0), 1),
        ((WRITE_32, words + 64, 0, 0), 1),
        ((WRITE_32, words, 0, 2), 1),
        ((BARRIER, 0, 0, 2), 1),
        ((9, words, 0, 0), 1),
    ):
        assert batches.operations(cuda, stream, [good, bad]) == result, bad
    assert batches.operations(cuda, stream, [good] * 257) == 1
    assert batches.operations(cuda, stream, []) == 1
    assert batches.operations(cuda, stream, [good], flags=1) == 1
    cuda("cuStreamSynchronize", stream)
    assert cuda.read(words, 4) == bytes(4)


@on_device()
def test_copies_of_a_batch(cuda: Device) -> None:
    cuda.open()
    stream, size = cuda.stream(1), 300_000
    first, second, pinned = cuda.alloc(size), cuda.alloc(size), cuda.pinned(size)
    data, back = ctypes.create_string_buffer(os.urandom(size), size), (ctypes.c_char * size)()
    up = (first, ctypes.addressof(data), size)
    assert batches.copies(cuda, stream, [up]) == 0
    assert batches.copies(cuda, stream, [(second, first, size)], [(0, ANY)]) == 0
    parts = [(pinned, second, size), (ctypes.addressof(back), second, size)]
    assert batches.copies(cuda, stream, parts, [(0, IN_STREAM), (1, ANY)]) == 0
    cuda("cuStreamSynchronize", stream)
    assert bytes(back) == data.raw == ctypes.string_at(pinned, size)
    for orders in ([(1, ANY)], [(0, ANY), (0, ANY)], [(0, ANY), (1, ANY)], [(0, 0)], [(0, 4)]):
        assert batches.copies(cuda, stream, [up], orders) == 1, orders
    assert batches.copies(cuda, stream, [up, (first, second, 0)]) == 1
    assert batches.copies(cuda, stream, [up, (first + 1, second, size)]) == 1
    assert batches.copies(cuda, None, [up]) == 1
    assert batches.copies(cuda, 0x7777, [up]) == 400


@on_device()
def test_a_source_that_is_read_at_the_call_may_change_afterwards(cuda: Device) -> None:
    cuda.open()
    stream, other, flag = cuda.stream(1), cuda.stream(1), cuda.alloc(4)
    place, pinned = cuda.alloc(16), cuda.pinned(32)
    ctypes.memset(pinned, 1, 32)
    cuda("cuStreamWaitValue32_v2", stream, flag, 1, 1)
    assert batches.copies(cuda, stream, [(place, pinned, 8)], [(0, IN_STREAM)]) == 0
    if os.environ["RGPU_EMU_TIMING"] == "normal":  # hostile timing may wait for the stream here
        assert batches.copies(cuda, stream, [(place + 8, pinned, 8)], [(0, AT_CALL)]) == 0
    ctypes.memset(pinned, 2, 32)
    cuda("cuStreamWriteValue32_v2", other, flag, 1, 0)
    cuda("cuStreamSynchronize", stream)
    assert cuda.read(place, 8) == b"\x02" * 8
    if os.environ["RGPU_EMU_TIMING"] == "normal":
        assert cuda.read(place + 8, 8) == b"\x01" * 8


@on_device()
def test_an_event_of_a_context_covers_all_its_streams(cuda: Device) -> None:
    context = cuda.open()
    flag, streams = cuda.alloc(4), [cuda.stream(1), cuda.stream(0)]
    cuda("cuMemsetD8_v2", flag, 0, 4)
    cuda("cuCtxSynchronize")
    event = cuda.event()
    cuda("cuCtxRecordEvent", context, event)
    cuda("cuEventSynchronize", event)
    cuda("cuStreamWaitValue32_v2", streams[0], flag, 1, 1)
    cuda("cuCtxRecordEvent", context, event)
    assert cuda.result("cuEventQuery", event) == 600
    assert cuda.result("cuStreamQuery", streams[1]) == 0, "an observer holds nothing up"
    other = cuda.out("cuCtxCreate_v2", 0, 0)
    writer, place = cuda.stream(1), cuda.alloc(4)
    cuda("cuStreamWriteValue32_v2", writer, flag, 1, 0)
    expect(400, lambda: cuda("cuCtxRecordEvent", other, event))
    cuda("cuCtxWaitEvent", other, event)
    cuda("cuMemsetD32Async", place, 5, 1, writer)
    cuda("cuStreamSynchronize", writer)
    assert cuda.result("cuEventQuery", event) == 0
    expect(201, lambda: cuda("cuCtxRecordEvent", 0x7777, event))
    expect(400, lambda: cuda("cuCtxWaitEvent", other, 0x7777))


@on_device()
def test_later_work_of_a_context_waits_for_an_event(cuda: Device) -> None:
    context = cuda.open()
    flag, place, slow = cuda.alloc(4), cuda.alloc(4), cuda.stream(1)
    cuda("cuMemsetD8_v2", flag, 0, 4)
    cuda("cuMemsetD8_v2", place, 0, 4)
    cuda("cuCtxSynchronize")
    cuda("cuStreamWaitValue32_v2", slow, flag, 1, 1)
    event = cuda.event()
    cuda("cuEventRecord", event, slow)
    other = cuda.out("cuCtxCreate_v2", 0, 0)
    cuda("cuCtxSetCurrent", context)
    writer = cuda.stream(1)
    cuda("cuCtxSetCurrent", other)
    cuda("cuCtxWaitEvent", other, event)
    late = cuda.stream(1)
    cuda("cuMemsetD32Async", place, 5, 1, late)
    assert cuda.result("cuStreamQuery", late) == 600
    cuda("cuCtxSetCurrent", context)
    cuda("cuStreamWriteValue32_v2", writer, flag, 1, 0)
    cuda("cuStreamSynchronize", late)
    assert cuda.read(place, 4) == bytes([5, 0, 0, 0])


@on_device()
def test_copies_between_contexts(cuda: Device) -> None:
    mine = cuda.open()
    source, flag = cuda.alloc(MIB), cuda.alloc(4)
    cuda("cuMemsetD8_v2", source, 3, MIB)
    other = cuda.out("cuCtxCreate_v2", 0, 0)
    target, stream = cuda.alloc(MIB), cuda.stream(1)
    cuda("cuMemsetD8_v2", flag, 0, 4)
    cuda("cuCtxSynchronize")
    cuda("cuStreamWaitValue32_v2", stream, flag, 1, 1)
    cuda("cuMemsetD8Async", target, 1, MIB, stream)
    cuda("cuCtxSetCurrent", mine)
    writer = cuda.stream(1)
    cuda("cuStreamWriteValue32_v2", writer, flag, 1, 0)
    cuda("cuMemcpyPeer", target, other, source, mine, MIB)
    assert cuda.read(target, MIB) == b"\x03" * MIB
    cuda("cuMemcpyPeerAsync", target, other, target + 8, other, 8, writer)
    cuda("cuStreamSynchronize", writer)
    expect(201, lambda: cuda("cuMemcpyPeer", target, 0x7777, source, mine, 8))
    expect(1, lambda: cuda("cuMemcpyPeer", target + MIB - 4, other, source, mine, 8))
    expect(217, lambda: cuda("cuCtxEnablePeerAccess", other, 0))
    expect(705, lambda: cuda("cuCtxDisablePeerAccess", other))
    expect(201, lambda: cuda("cuCtxEnablePeerAccess", mine, 0))
    expect(1, lambda: cuda("cuCtxEnablePeerAccess", other, 1))


@on_device()
def test_the_device_has_no_clusters(cuda: Device) -> None:
    cuda.open()
    assert cuda.attribute(120) == 0
    function, count = cuda.function(load(cuda, PTX), "bump"), ctypes.c_int()
    config = ctypes.create_string_buffer(64)
    for call in ("cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveClusters"):
        expect(912, lambda name=call: cuda(name, ctypes.byref(count), function, config))
        expect(400, lambda name=call: cuda(name, ctypes.byref(count), 0x7777, config))


def dump(cuda: Device, start: ctypes.c_uint | None, room: int) -> tuple[int, bytes]:
    text, size = ctypes.create_string_buffer(room), ctypes.c_size_t(room)
    place = None if start is None else ctypes.byref(start)
    result = cuda.result("cuLogsDumpToMemory", place, text, ctypes.byref(size), 0)
    assert text.value == text.raw[: size.value]
    return result, text.value


@on_device()
def test_the_log_has_every_failed_call(cuda: Device) -> None:
    cuda.open()
    start = ctypes.c_uint()
    cuda("cuLogsCurrent", ctypes.byref(start), 0)
    assert dump(cuda, start, 1000) == (0, b"")
    expect(1, lambda: cuda.free(77))
    expect(1, lambda: cuda("cuMemAlloc_v2", None, 1))
    expect(801, lambda: cuda("cuMulticastGetGranularity", None, None, 0))
    again = ctypes.c_uint(start.value)
    result, text = dump(cuda, start, 10_000)
    lines = text.decode().splitlines()
    assert result == 0
    assert len(lines) == 3
    assert lines[0].endswith("[CUDA][E][cuMemFree_v2] Returning 1 (CUDA_ERROR_INVALID_VALUE)")
    assert "[cuMemAlloc_v2]" in lines[1]
    assert "attribute 132 is 0" in lines[2]
    assert dump(cuda, start, 1000) == (0, b""), "the iterator has moved"
    result, text = dump(cuda, again, len(lines[2]) + 60)
    assert text.startswith(b"(2 older messages are not shown)\n[")
    assert dump(cuda, None, 3)[0] == 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        cuda("cuLogsDumpToFile", None, str(path).encode(), 0)
        assert "cuMemFree_v2" in path.read_text()
        expect(1, lambda: cuda("cuLogsDumpToFile", None, folder.encode(), 0))


@on_device()
def test_callbacks_get_the_messages(cuda: Device) -> None:
    cuda.open()
    heard = []
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
    )

    @kind
    def listen(data: int, level: int, message: ctypes.Array[ctypes.c_char], size: int) -> None:
        heard.append((data, level, bytes(message[:size])))  # type: ignore[arg-type]
        cuda.result("cuMemFree_v2", 78)  # a failure in a callback calls no callback

    handle = ctypes.c_void_p()
    cuda("cuLogsRegisterCallback", listen, 5, ctypes.byref(handle))
    expect(1, lambda: cuda.free(77))
    ((data, level, message),) = heard
    assert (data, level) == (5, 0)
    assert b"cuMemFree_v2" in message
    cuda("cuLogsUnregisterCallback", handle)
    expect(1, lambda: cuda("cuLogsUnregisterCallback", handle))
    expect(1, lambda: cuda.free(77))
    assert len(heard) == 1
