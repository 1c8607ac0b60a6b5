"""Order within and between streams, waits, values, host functions."""

from __future__ import annotations

import ctypes
import threading
import time

from emu.device import SECONDS, Device, expect, finish, in_thread, on_device
from emu.holding import AND, EQ, GEQ, NON_BLOCKING, NOR, NOT_READY, hold, hold_more, let_go

LEGACY, PER_THREAD = 1, 2


@on_device()
def test_work_is_asynchronous_and_a_wait_ends_it(cuda: Device) -> None:
    cuda.open()
    stream, data = cuda.stream(NON_BLOCKING), cuda.alloc(64)
    flag = hold(cuda, stream)
    cuda("cuMemsetD8Async", data, 1, 64, stream)
    assert cuda.result("cuStreamQuery", stream) == NOT_READY
    let_go(cuda, flag)
    cuda("cuStreamSynchronize", stream)
    assert cuda.result("cuStreamQuery", stream) == 0
    assert cuda.read(data, 64) == b"\x01" * 64


@on_device()
def test_streams_overtake_each_other(cuda: Device) -> None:
    cuda.open()
    slow, fast = cuda.stream(), cuda.stream()
    data = cuda.pinned(64)
    flag = hold(cuda, slow)
    cuda("cuMemsetD8Async", data, 1, 32, slow)
    cuda("cuMemsetD8Async", data + 32, 2, 32, fast)
    cuda("cuStreamSynchronize", fast)
    view = (ctypes.c_ubyte * 64).from_address(data)
    assert bytes(view[32:]) == b"\x02" * 32
    assert bytes(view[:32]) == bytes(32)
    let_go(cuda, flag)
    cuda("cuCtxSynchronize")
    assert bytes(view[:32]) == b"\x01" * 32


@on_device()
def test_the_legacy_stream_is_a_barrier_for_blocking_streams(cuda: Device) -> None:
    cuda.open()
    before, after, free = cuda.stream(), cuda.stream(), cuda.stream(NON_BLOCKING)
    data = cuda.pinned(4)
    view = (ctypes.c_ubyte * 4).from_address(data)
    flag = hold(cuda, before)
    cuda("cuMemsetD8Async", data, 1, 1, LEGACY)  # follows `before`
    cuda("cuMemsetD8Async", data + 1, 1, 1, after)  # follows the legacy stream
    cuda("cuMemsetD8Async", data + 2, 1, 1, free)
    cuda("cuStreamSynchronize", free)
    assert bytes(view) == b"\x00\x00\x01\x00"
    assert cuda.result("cuStreamQuery", LEGACY) == NOT_READY
    assert cuda.result("cuStreamQuery", after) == NOT_READY
    let_go(cuda, flag)
    cuda("cuStreamSynchronize", after)
    assert bytes(view) == b"\x01\x01\x01\x00"


@on_device()
def test_waiting_for_the_legacy_stream_waits_for_blocking_streams(cuda: Device) -> None:
    cuda.open()
    stream = cuda.stream()
    flag = hold(cuda, stream)
    assert cuda.result("cuStreamQuery", 0) == NOT_READY
    let_go(cuda, flag)
    cuda("cuStreamSynchronize", 0)
    assert cuda.result("cuStreamQuery", stream) == 0


@on_device()
def test_each_thread_has_its_per_thread_stream(cuda: Device) -> None:
    context = cuda.open()
    flag = cuda.alloc(4)

    def waits() -> None:
        cuda("cuCtxSetCurrent", context)
        cuda("cuStreamWaitValue32_v2", PER_THREAD, flag, 1, EQ)
        cuda("cuStreamSynchronize", PER_THREAD)

    thread = in_thread(waits)
    cuda("cuStreamWriteValue32_v2", PER_THREAD, flag, 1, 0)
    cuda("cuStreamSynchronize", PER_THREAD)
    finish(thread)


@on_device()
def test_the_twin_symbols_use_the_per_thread_stream(cuda: Device) -> None:
    cuda.open()
    data, number = cuda.alloc(4), ctypes.c_uint64()

    def identity(call: str, stream: int) -> int:
        cuda(call, stream, ctypes.byref(number))
        return number.value

    own = identity("cuStreamGetId", PER_THREAD)
    assert identity("cuStreamGetId_ptsz", 0) == own
    assert identity("cuStreamGetId", 0) != own
    cuda("cuMemsetD8Async_ptsz", data, 3, 4, 0)
    cuda("cuStreamSynchronize_ptsz", 0)
    assert cuda.read(data, 4) == b"\x03" * 4


@on_device()
def test_conditions_of_waits(cuda: Device) -> None:
    cuda.open()
    word, stream = cuda.alloc(8), cuda.stream(NON_BLOCKING)
    cases32 = ((GEQ, 5, 6), (GEQ, 0xFFFFFFF0, 2), (EQ, 7, 7), (AND, 6, 4), (NOR, 0xFFFFFFFE, 0))
    for flags, wanted, value in cases32:
        cuda("cuStreamWriteValue32_v2", stream, word, value, 0)
        cuda("cuStreamWaitValue32_v2", stream, word, wanted, flags)
        cuda("cuStreamSynchronize", stream)
    for flags, wanted, value in (
        (GEQ, 1 << 40, 1 << 41),
        (EQ, 1 << 63, 1 << 63),
        (AND, 1 << 50, 3 << 50),
    ):
        cuda("cuStreamWriteValue64_v2", stream, word, value, 1)
        cuda("cuStreamWaitValue64_v2", stream, word, wanted, flags)
        cuda("cuStreamSynchronize", stream)
    expect(1, lambda: cuda("cuStreamWaitValue32_v2", stream, word + 2, 0, EQ))
    expect(1, lambda: cuda("cuStreamWaitValue64_v2", stream, word + 4, 0, EQ))
    expect(1, lambda: cuda("cuStreamWaitValue32_v2", stream, word, 0, 4))
    expect(801, lambda: cuda("cuStreamWaitValue32_v2", stream, word, 0, 1 << 30))
    expect(1, lambda: cuda("cuStreamWriteValue32_v2", stream, word, 0, 2))


@on_device()
def test_the_queue_is_bounded_and_blocks_the_caller(cuda: Device) -> None:
    context = cuda.open()
    stream, data = cuda.stream(NON_BLOCKING), cuda.alloc(4)
    flag = hold(cuda, stream)
    issued = [0]

    def issues() -> None:
        cuda("cuCtxSetCurrent", context)
        for _ in range(3000):
            cuda("cuMemsetD8Async", data, 1, 4, stream)
            issued[0] += 1

    thread = in_thread(issues)
    last = -1
    deadline = time.monotonic() + SECONDS / 2
    # Until it stands still, and not only for want of a processor.
    while issued[0] != last or (last <= 500 and time.monotonic() < deadline):
        last = issued[0]
        thread.join(0.3)
    assert 500 < issued[0] <= 1024
    let_go(cuda, flag)
    finish(thread)
    cuda("cuStreamSynchronize", stream)


@on_device()
def test_a_destroyed_stream_finishes_its_work(cuda: Device) -> None:
    cuda.open()
    stream, data = cuda.stream(NON_BLOCKING), cuda.pinned(8)
    flag = hold(cuda, stream)
    cuda("cuMemsetD8Async", data, 5, 8, stream)
    cuda("cuStreamDestroy_v2", stream)
    expect(400, lambda: cuda("cuStreamQuery", stream))
    let_go(cuda, flag)
    cuda("cuCtxSynchronize")
    assert bytes((ctypes.c_ubyte * 8).from_address(data)) == b"\x05" * 8


@on_device()
def test_host_functions_run_in_order_and_may_not_call(cuda: Device) -> None:
    cuda.open()
    stream, word = cuda.stream(NON_BLOCKING), cuda.alloc(4)
    seen: list[object] = []

    def record(argument: int | None) -> None:
        seen.append(argument)
        seen.append(cuda.result("cuMemGetInfo_v2", None, None))

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(record)
    for number in (11, 12):
        cuda("cuLaunchHostFunc", stream, function, number)
    cuda("cuStreamWriteValue32_v2", stream, word, 9, 0)
    cuda("cuStreamSynchronize", stream)
    assert seen == [11, 800, 12, 800]
    expect(1, lambda: cuda("cuLaunchHostFunc", stream, None, 0))


@on_device()
def test_callbacks_are_told_stream_and_result(cuda: Device) -> None:
    cuda.open()
    stream = cuda.stream(NON_BLOCKING)
    seen: list[tuple[int, int, int]] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda which, status, data: seen.append((which, status, data))
    )
    for number in (11, 12):
        cuda("cuStreamAddCallback", stream, function, number, 0)
    cuda("cuStreamSynchronize", stream)
    assert seen == [(stream, 0, 11), (stream, 0, 12)]
    expect(1, lambda: cuda("cuStreamAddCallback", stream, None, 0, 0))
    expect(1, lambda: cuda("cuStreamAddCallback", stream, function, 0, 1))


@on_device()
def test_properties_of_streams(cuda: Device) -> None:
    context = cuda.open()
    least, greatest = ctypes.c_int(), ctypes.c_int()
    cuda("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    assert (least.value, greatest.value) == (0, -5)
    stream = cuda.out("cuStreamCreateWithPriority", NON_BLOCKING, -77)

    def asks(call: str, kind: type = ctypes.c_int) -> int:
        value = kind()
        cuda(call, stream, ctypes.byref(value))
        number: int = value.value
        return number

    assert asks("cuStreamGetPriority") == -5
    assert asks("cuStreamGetFlags", ctypes.c_uint) == NON_BLOCKING
    assert asks("cuStreamGetDevice") == 0
    assert asks("cuStreamGetCtx", ctypes.c_uint64) == context
    assert asks("cuStreamIsCapturing") == 0
    assert asks("cuStreamGetId", ctypes.c_uint64) > 2
    expect(1, lambda: cuda.stream(2))
    expect(400, lambda: cuda("cuStreamQuery", 12345))
    expect(400, lambda: cuda("cuStreamDestroy_v2", LEGACY))


@on_device()
def test_freeing_while_another_stream_waits_ends(cuda: Device) -> None:
    """One thread waits and frees (the free may block), another thread writes the value."""
    context = cuda.open()
    waiter, writer, flag = cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING), cuda.alloc(4)
    victim = cuda.alloc(1 << 20)
    ready = threading.Event()

    def frees() -> None:
        cuda("cuCtxSetCurrent", context)
        cuda("cuStreamWaitValue32_v2", waiter, flag, 1, EQ)
        ready.set()
        cuda.free(victim)

    thread = in_thread(frees)
    assert ready.wait(60)
    cuda("cuStreamWriteValue32_v2", writer, flag, 1, 0)
    finish(thread)
    cuda("cuCtxSynchronize")


@on_device()
def test_the_process_may_end_while_work_is_pending(cuda: Device) -> None:
    cuda.open()
    for _ in range(4):
        hold_more(cuda, cuda.stream(NON_BLOCKING))


@on_device()
def test_many_threads_issue_into_many_streams(cuda: Device) -> None:
    context = cuda.open()
    word = cuda.alloc(64)
    start = time.monotonic()

    def works(slot: int) -> None:
        cuda("cuCtxSetCurrent", context)
        stream, event = cuda.stream(slot % 2), cuda.event()
        for number in range(100):
            cuda("cuStreamWriteValue32_v2", stream, word + 4 * slot, number, 0)
            cuda("cuEventRecord", event, stream)
            cuda("cuStreamWaitEvent", 0, event, 0)
        cuda("cuEventSynchronize", event)
        cuda("cuStreamDestroy_v2", stream)

    threads = [in_thread(lambda slot=slot: works(slot)) for slot in range(8)]  # type: ignore[misc]
    for thread in threads:
        finish(thread)
    cuda("cuCtxSynchronize")
    assert cuda.read(word, 32) == (99).to_bytes(4, "little") * 8
    assert time.monotonic() - start < 30


@on_device()
def test_attributes_of_streams_are_kept_and_copied(cuda: Device) -> None:
    cuda.open()
    one, other = cuda.stream(1), cuda.stream(1)
    priority, policy, domain_map, domain = 8, 3, 9, 10
    value = (ctypes.c_uint8 * 64)()

    def get(stream: int, attribute: int) -> bytes:
        cuda("cuStreamGetAttribute", stream, attribute, ctypes.byref(value))
        return bytes(value)[:4]

    def put(stream: int, attribute: int, data: bytes) -> int:
        new = (ctypes.c_uint8 * 64)(*data)
        return cuda.result("cuStreamSetAttribute", stream, attribute, ctypes.byref(new))

    assert cuda.attribute(126) == 1  # domains
    assert [get(one, n) for n in (policy, domain_map, domain)] == [
        b"\1\0\0\0",
        bytes(4),
        bytes(4),
    ]
    assert put(one, domain, b"\1") == 0
    assert put(one, policy, b"\3") == 0
    assert put(one, domain_map, b"\0\0") == 0
    for attribute, bad in ((domain, b"\2"), (domain_map, b"\1\0"), (domain_map, b"\0\1"),
                           (policy, b"\0"), (2, b"\1"), (99, b"")):  # fmt: skip
        assert put(one, attribute, bad) == 1, attribute
    assert get(other, domain) == bytes(4)
    cuda("cuStreamCopyAttributes", other, one)
    assert [get(other, n)[0] for n in (policy, domain, priority)] == [3, 1, 0]
    assert cuda.result("cuStreamGetAttribute", one, 2, ctypes.byref(value)) == 1
