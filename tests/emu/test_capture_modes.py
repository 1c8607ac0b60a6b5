"""What may not be done while a stream captures, by mode and thread."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint32, c_uint64

from emu.capturing import (
    ACTIVE,
    CAPTURED_EVENT,
    EXTERNAL,
    IMPLICIT,
    INVALID,
    INVALID_VALUE,
    INVALIDATED,
    LEGACY,
    NON_BLOCKING,
    NONE,
    UNSUPPORTED,
    WRONG_THREAD,
    begin,
    end,
    status,
)
from emu.device import Device, expect, finish, in_thread, on_device
from emu.graphs import (
    GLOBAL,
    RELAXED,
    THREAD_LOCAL,
)


@on_device()
def test_what_a_capturing_stream_may_not(cuda: Device) -> None:
    cuda.open()
    stream, event = cuda.stream(NON_BLOCKING), cuda.event()
    callback = ctypes.CFUNCTYPE(None, c_uint64, c_uint32, ctypes.c_void_p)(lambda *_: None)

    def invalidates(result: int, call: str, *arguments: object) -> None:
        begin(cuda, stream, RELAXED)
        cuda("cuEventRecord", event, stream)
        expect(result, lambda: cuda(call, *arguments))
        assert status(cuda, stream) == INVALID
        expect(INVALIDATED, lambda: end(cuda, stream))

    invalidates(UNSUPPORTED, "cuStreamSynchronize", stream)
    invalidates(UNSUPPORTED, "cuStreamQuery", stream)
    invalidates(UNSUPPORTED, "cuCtxSynchronize")
    invalidates(UNSUPPORTED, "cuStreamAddCallback", stream, callback, None, 0)
    invalidates(CAPTURED_EVENT, "cuEventQuery", event)
    invalidates(CAPTURED_EVENT, "cuEventSynchronize", event)
    other = cuda.event()
    cuda("cuEventRecord", other, 0)
    milliseconds = ctypes.c_float()
    call = "cuEventElapsedTime_v2"
    expect(CAPTURED_EVENT, lambda: cuda(call, byref(milliseconds), event, other))
    cuda("cuEventRecord", event, 0)
    cuda("cuEventSynchronize", event)
    # External records and waits exist only in captures.
    expect(INVALID_VALUE, lambda: cuda("cuEventRecordWithFlags", event, stream, EXTERNAL))
    expect(INVALID_VALUE, lambda: cuda("cuStreamWaitEvent", stream, event, EXTERNAL))


@on_device()
def test_the_legacy_stream_and_blocking_streams_that_capture(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(4)
    blocking, free = cuda.stream(), cuda.stream(NON_BLOCKING)
    begin(cuda, blocking, RELAXED)
    state = c_uint32()
    assert cuda.result("cuStreamIsCapturing", LEGACY, byref(state)) == IMPLICIT
    assert status(cuda, blocking) == ACTIVE  # a question does no harm
    expect(IMPLICIT, lambda: cuda("cuMemsetD32Async", memory, 1, 1, LEGACY))
    expect(INVALIDATED, lambda: end(cuda, blocking))
    for call, arguments in (
        ("cuMemcpyDtoD_v2", (memory, memory, 0)),
        ("cuStreamSynchronize", (LEGACY,)),
        ("cuEventRecord", (cuda.event(), LEGACY)),
    ):
        begin(cuda, blocking, RELAXED)
        expect(IMPLICIT, lambda c=call, a=arguments: cuda(c, *a))
        expect(INVALIDATED, lambda: end(cuda, blocking))
    begin(cuda, free, RELAXED)
    cuda("cuMemsetD32Async", memory, 1, 1, LEGACY)
    cuda("cuStreamSynchronize", LEGACY)
    end(cuda, free)


@on_device()
def test_modes(cuda: Device) -> None:
    context = cuda.open()
    stream = cuda.stream(NON_BLOCKING)

    def other_thread(mode: int) -> int:
        results: list[int] = []

        def allocate() -> None:
            cuda("cuCtxSetCurrent", context)
            own = c_uint32(mode)
            cuda("cuThreadExchangeStreamCaptureMode", byref(own))
            out = c_uint64()
            results.append(cuda.result("cuMemAlloc_v2", byref(out), 64))
            assert own.value == GLOBAL

        finish(in_thread(allocate))
        return results[0]

    def own_thread() -> int:
        out = c_uint64()
        return cuda.result("cuMemAlloc_v2", byref(out), 64)

    # Mode of the capture; results in this thread, and in others by their mode.
    for mode, own, others in (
        (GLOBAL, UNSUPPORTED, (UNSUPPORTED, 0, 0)),
        (THREAD_LOCAL, UNSUPPORTED, (0, 0, 0)),
        (RELAXED, 0, (0, 0, 0)),
    ):
        for theirs, expected in enumerate(others):
            begin(cuda, stream, mode)
            assert other_thread(theirs) == expected
            if expected:
                expect(INVALIDATED, lambda: end(cuda, stream))
            else:
                end(cuda, stream)
        begin(cuda, stream, mode)
        assert own_thread() == own
        assert cuda.result("cuStreamEndCapture", stream, byref(c_uint64())) == (
            INVALIDATED if own else 0
        )
    mode = c_uint32(RELAXED)
    cuda("cuThreadExchangeStreamCaptureMode", byref(mode))
    begin(cuda, stream, GLOBAL)
    assert own_thread() == 0
    end(cuda, stream)
    expect(INVALID_VALUE, lambda: cuda("cuThreadExchangeStreamCaptureMode", byref(c_uint32(3))))


@on_device()
def test_a_capture_ends_in_its_thread(cuda: Device) -> None:
    context = cuda.open()
    stream = cuda.stream(NON_BLOCKING)
    memory = cuda.alloc(4)

    def elsewhere(result: int) -> None:
        def body() -> None:
            cuda("cuCtxSetCurrent", context)
            cuda("cuMemsetD32Async", memory, 1, 1, stream)  # any thread may add
            out = c_uint64()
            assert cuda.result("cuStreamEndCapture", stream, byref(out)) == result

        finish(in_thread(body))

    for mode in (GLOBAL, THREAD_LOCAL):
        begin(cuda, stream, mode)
        elsewhere(WRONG_THREAD)
        assert len(end(cuda, stream).nodes()) == 1
    begin(cuda, stream, RELAXED)
    elsewhere(0)
    assert status(cuda, stream) == NONE
