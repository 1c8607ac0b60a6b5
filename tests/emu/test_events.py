"""Events: snapshots, time, errors."""

from __future__ import annotations

import ctypes
import time

from emu.device import Device, expect, finish, in_thread, on_device
from emu.holding import NON_BLOCKING, NOT_READY, hold, hold_more, let_go


def elapsed(cuda: Device, start: int, end: int) -> float:
    milliseconds = ctypes.c_float()
    cuda("cuEventElapsedTime_v2", ctypes.byref(milliseconds), start, end)
    return milliseconds.value


@on_device()
def test_an_event_completes_with_its_place_in_the_stream(cuda: Device) -> None:
    cuda.open()
    stream, event = cuda.stream(NON_BLOCKING), cuda.event()
    assert cuda.result("cuEventQuery", event) == 0
    cuda("cuEventSynchronize", event)
    flag = hold(cuda, stream)
    cuda("cuEventRecord", event, stream)
    assert cuda.result("cuEventQuery", event) == NOT_READY
    let_go(cuda, flag)
    cuda("cuEventSynchronize", event)
    assert cuda.result("cuEventQuery", event) == 0


@on_device()
def test_another_stream_waits_for_an_event(cuda: Device) -> None:
    cuda.open()
    first, second, event = cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING), cuda.event(2)
    data = cuda.pinned(4)
    flag = hold(cuda, first)
    cuda("cuMemsetD8Async", data, 7, 4, first)
    cuda("cuEventRecord", event, first)
    cuda("cuStreamWaitEvent", second, event, 0)
    cuda("cuMemsetD8Async", data, 9, 2, second)
    cuda("cuEventDestroy_v2", event)  # the wait holds the record
    assert cuda.result("cuStreamQuery", second) == NOT_READY
    let_go(cuda, flag)
    cuda("cuStreamSynchronize", second)
    assert bytes((ctypes.c_ubyte * 4).from_address(data)) == b"\x09\x09\x07\x07"


@on_device()
def test_a_wait_is_bound_to_the_record_in_force(cuda: Device) -> None:
    """The event is recorded again in a stream that is stuck: earlier waits are not affected."""
    context = cuda.open()
    first, second, stuck = (cuda.stream(NON_BLOCKING) for _ in range(3))
    event = cuda.event()
    flag = hold(cuda, first)
    cuda("cuEventRecord", event, first)
    cuda("cuStreamWaitEvent", second, event, 0)

    def waits() -> None:
        cuda("cuCtxSetCurrent", context)
        cuda("cuStreamSynchronize", second)

    thread = in_thread(waits)
    forever = hold_more(cuda, stuck)
    cuda("cuEventRecord", event, stuck)
    let_go(cuda, flag)
    finish(thread)
    assert cuda.result("cuEventQuery", event) == NOT_READY
    let_go(cuda, forever)
    cuda("cuEventSynchronize", event)


@on_device()
def test_elapsed_time(cuda: Device) -> None:
    cuda.open()
    stream, start, end, plain = cuda.stream(), cuda.event(), cuda.event(), cuda.event(2)
    expect(400, lambda: elapsed(cuda, start, end))
    since = time.monotonic()
    cuda("cuEventRecord", start, stream)
    flag = hold(cuda, stream)
    cuda("cuEventRecord", end, stream)
    cuda("cuEventRecord", plain, stream)
    expect(600, lambda: elapsed(cuda, start, end))
    expect(400, lambda: elapsed(cuda, start, plain))
    let_go(cuda, flag)
    cuda("cuStreamSynchronize", stream)
    # A GPU measures by a clock of its own.
    assert 0 < elapsed(cuda, start, end) < 1010 * (time.monotonic() - since) + 1
    assert elapsed(cuda, end, start) < 0


@on_device()
def test_bad_events(cuda: Device) -> None:
    cuda.open()
    event, stream = cuda.event(), cuda.stream()
    expect(1, lambda: cuda.event(8))
    expect(1, lambda: cuda.event(4))
    cuda.event(4 | 2)
    expect(400, lambda: cuda("cuEventRecord", 0, stream))
    expect(400, lambda: cuda("cuEventQuery", event + 16))
    expect(1, lambda: cuda("cuEventRecordWithFlags", event, stream, 1))
    cuda("cuEventDestroy_v2", event)
    expect(400, lambda: cuda("cuEventDestroy_v2", event))
    expect(400, lambda: cuda("cuStreamWaitEvent", stream, event, 0))
    other = cuda.event()
    cuda.out("cuCtxCreate_v2", 0, 0)
    expect(400, lambda: cuda("cuEventRecord", other, 0))
