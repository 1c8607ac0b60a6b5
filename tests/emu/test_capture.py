"""Stream capture: what becomes a node, and how captures fork, join, end and fail."""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, c_size_t, c_uint32, c_uint64

from emu.device import SECONDS, Device, expect, finish, in_thread, on_device
from emu.graphs import (
    ALLOC,
    BATCH,
    FREE,
    GLOBAL,
    GRAPH,
    HOST,
    KERNEL,
    MEMCPY,
    MEMSET,
    ON_DEVICE,
    ON_HOST,
    RECORD,
    RELAXED,
    THREAD_LOCAL,
    WAIT,
    Copy,
    Graph,
    HostFn,
    Operation,
    handles,
    node_type,
    put,
    words,
)
from emu.kernels import U32, U64, load

INVALID_VALUE, ILLEGAL_STATE, NOT_READY = 1, 401, 600
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT = range(900, 907)
CAPTURED_EVENT, WRONG_THREAD = 907, 908
NONE, ACTIVE, INVALID = range(3)
NON_BLOCKING, EXTERNAL = 1, 1
LEGACY, PER_THREAD = 1, 2


def begin(cuda: Device, stream: int, mode: int = GLOBAL) -> None:
    cuda("cuStreamBeginCapture_v2", stream, mode)


def end(cuda: Device, stream: int) -> Graph:
    out = c_uint64(7)
    cuda("cuStreamEndCapture", stream, byref(out))
    return Graph(cuda, out.value)


def status(cuda: Device, stream: int) -> int:
    out = c_uint32(9)
    cuda("cuStreamIsCapturing", stream, byref(out))
    return out.value


def info(cuda: Device, stream: int) -> tuple[int, int, int, list[int]]:
    """Returns status, id, graph and dependencies."""
    state, number, graph, count = c_uint32(), c_uint64(), c_uint64(), c_size_t()
    nodes = POINTER(c_uint64)()
    outs = (state, number, graph, nodes, count)
    cuda("cuStreamGetCaptureInfo_v2", stream, *(byref(o) for o in outs))
    return state.value, number.value, graph.value, [nodes[i] for i in range(count.value)]


@on_device()
def test_every_asynchronous_call_becomes_a_node(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory, host = cuda.alloc(256), (c_uint32 * 16)()
    source = (c_uint32 * 16)(*range(16))
    stream, calls = cuda.stream(), []
    wrapped = HostFn(lambda _: calls.append(list(host)))
    inner = Graph(cuda)
    inner.set(memory + 64, 3, 4)
    child = inner.instantiate()
    external = cuda.event()
    begin(cuda, stream)
    cuda("cuMemcpyHtoDAsync_v2", memory, source, 64, stream)
    cuda.launch(function, [U64(memory), U32(16)], block=16, stream=stream)
    cuda("cuMemsetD32Async", memory, 100, 4, stream)
    cuda("cuGraphLaunch", child, stream)
    address = cuda.out("cuMemAllocAsync", 64, stream)
    cuda("cuMemcpyDtoDAsync_v2", address, memory, 64, stream)
    cuda("cuMemcpyDtoHAsync_v2", host, address, 64, stream)
    cuda("cuMemFreeAsync", address, stream)
    cuda("cuStreamWriteValue32_v2", stream, memory + 80, 5, 0)
    cuda("cuEventRecordWithFlags", external, stream, EXTERNAL)
    cuda("cuStreamWaitEvent", stream, external, EXTERNAL)
    cuda("cuLaunchHostFunc", stream, wrapped, None)
    graph = end(cuda, stream)
    types = [node_type(cuda, n) for n in graph.nodes()]
    copies = [MEMCPY, KERNEL, MEMSET, GRAPH, ALLOC, MEMCPY, MEMCPY, FREE]
    assert types == [*copies, BATCH, RECORD, WAIT, HOST]
    nodes = graph.nodes()
    assert graph.edges() == list(zip(nodes, nodes[1:], strict=False))
    shown = Copy()
    cuda("cuGraphMemcpyNodeGetParams", nodes[0], byref(shown))
    assert (shown.src.type, shown.dst.type, shown.width) == (ON_HOST, ON_DEVICE, 64)
    # Nothing has run.
    assert calls == [] and words(cuda, memory + 64, 1) == [0]
    exec_ = graph.instantiate()
    for base in (0, 50):
        source[:] = [base + i for i in range(16)]
        cuda("cuGraphLaunch", exec_, stream)
        cuda("cuStreamSynchronize", stream)
        assert calls[-1] == [100] * 4 + [base + i + 1 for i in range(4, 16)]
    assert words(cuda, memory + 64, 5) == [3] * 4 + [5]


@on_device()
def test_a_capture_forks_and_joins(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(16)
    put(cuda, memory, [0] * 4)
    main, side = cuda.stream(), cuda.stream(NON_BLOCKING)
    fork, join = cuda.event(), cuda.event()
    begin(cuda, main)
    cuda("cuMemsetD32Async", memory, 1, 1, main)
    cuda("cuEventRecord", fork, main)
    assert status(cuda, side) == NONE
    cuda("cuStreamWaitEvent", side, fork, 0)
    assert status(cuda, side) == ACTIVE
    assert info(cuda, side)[:3] == info(cuda, main)[:3]
    cuda("cuMemsetD32Async", memory + 4, 2, 1, side)
    cuda("cuMemsetD32Async", memory + 8, 3, 1, main)
    cuda("cuEventRecord", join, side)
    cuda("cuStreamWaitEvent", main, join, 0)
    assert len(info(cuda, main)[3]) == 2
    cuda("cuMemsetD32Async", memory + 12, 4, 1, main)
    graph = end(cuda, main)
    assert status(cuda, side) == NONE and status(cuda, main) == NONE
    a, b, c, d = graph.nodes()
    assert sorted(graph.edges()) == sorted([(a, b), (a, c), (c, d), (b, d)])
    graph.run()
    assert words(cuda, memory, 4) == [1, 2, 3, 4]


@on_device()
def test_a_fork_must_be_joined(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(4)
    main, side = cuda.stream(), cuda.stream()
    fork = cuda.event()
    begin(cuda, main)
    cuda("cuEventRecord", fork, main)
    cuda("cuStreamWaitEvent", side, fork, 0)
    expect(UNMATCHED, lambda: end(cuda, side))
    expect(INVALIDATED, lambda: end(cuda, main))
    begin(cuda, main)
    cuda("cuEventRecord", fork, main)
    cuda("cuStreamWaitEvent", side, fork, 0)
    cuda("cuMemsetD32Async", memory, 1, 1, side)
    out = c_uint64(7)
    assert cuda.result("cuStreamEndCapture", main, byref(out)) == UNJOINED and out.value == 0
    assert status(cuda, side) == NONE
    # A side stream without work of its own is joined.
    begin(cuda, main)
    cuda("cuMemsetD32Async", memory, 1, 1, main)
    cuda("cuEventRecord", fork, main)
    cuda("cuStreamWaitEvent", side, fork, 0)
    assert len(end(cuda, main).nodes()) == 1


@on_device()
def test_captures_do_not_mix(cuda: Device) -> None:
    cuda.open()
    one, two, outside = cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING), cuda.stream()
    first, second, plain, never = (cuda.event() for _ in range(4))
    cuda("cuEventRecord", plain, outside)
    begin(cuda, one)
    begin(cuda, two)
    cuda("cuStreamWaitEvent", one, never, 0)  # no work
    cuda("cuEventRecord", first, one)
    cuda("cuEventRecord", second, two)
    expect(MERGE, lambda: cuda("cuStreamWaitEvent", one, second, 0))
    for stream in (one, two):
        assert status(cuda, stream) == INVALID
        expect(INVALIDATED, lambda s=stream: cuda("cuMemsetD32Async", 0, 1, 0, s) or end(cuda, s))
    begin(cuda, one)
    expect(ISOLATION, lambda: cuda("cuStreamWaitEvent", one, plain, 0))
    expect(INVALIDATED, lambda: cuda("cuEventRecord", first, one))
    expect(INVALIDATED, lambda: end(cuda, one))
    # The events of captures that are over are no work.
    expect(CAPTURED_EVENT, lambda: cuda("cuStreamWaitEvent", outside, second, 0))
    cuda("cuEventRecord", second, outside)
    cuda("cuStreamWaitEvent", one, second, 0)


@on_device()
def test_states_of_streams(cuda: Device) -> None:
    cuda.open()
    stream = cuda.stream()
    assert info(cuda, stream) == (NONE, 0, 0, [])
    expect(ILLEGAL_STATE, lambda: end(cuda, stream))
    expect(UNSUPPORTED, lambda: begin(cuda, LEGACY))
    expect(INVALID_VALUE, lambda: begin(cuda, stream, 3))
    begin(cuda, stream)
    expect(ILLEGAL_STATE, lambda: begin(cuda, stream))
    one = info(cuda, stream)
    cuda("cuMemsetD32Async", cuda.pinned(4), 1, 1, stream)
    two = info(cuda, stream)
    assert one[0] == ACTIVE and one[1] != 0 and one[3] == []
    assert two[:3] == one[:3] and len(two[3]) == 1
    # The program may add to the graph, and say what the next node depends on.
    graph = Graph(cuda, one[2])
    expect(INVALID_VALUE, graph.destroy)
    extra = graph.empty()
    call = "cuStreamUpdateCaptureDependencies_v2"
    cuda(call, stream, handles([extra]), None, 1, 0)
    assert info(cuda, stream)[3] == [two[3][0], extra]
    cuda(call, stream, handles([extra]), None, 1, 1)
    assert info(cuda, stream)[3] == [extra]
    expect(INVALID_VALUE, lambda: cuda(call, stream, handles([123]), None, 1, 1))
    expect(INVALID_VALUE, lambda: cuda(call, stream, handles([extra]), None, 1, 2))
    cuda(call, stream, None, None, 0, 1)
    assert info(cuda, stream)[3] == []
    assert end(cuda, stream).handle == one[2]
    begin(cuda, stream)
    assert info(cuda, stream)[1] != one[1]
    cuda("cuStreamDestroy_v2", stream)
    begin(cuda, PER_THREAD)
    assert status(cuda, PER_THREAD) == ACTIVE
    end(cuda, PER_THREAD)
    expect(ILLEGAL_STATE, lambda: cuda(call, PER_THREAD, None, None, 0, 1))


@on_device()
def test_capture_into_a_graph(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(8)
    stream = cuda.stream()
    graph = Graph(cuda)
    first = graph.set(memory, 1, 2)
    call = "cuStreamBeginCaptureToGraph"
    expect(INVALID_VALUE, lambda: cuda(call, stream, 12345, None, None, 0, GLOBAL))
    expect(
        INVALID_VALUE, lambda: cuda(call, stream, graph.handle, handles([77]), None, 1, GLOBAL)
    )
    cuda(call, stream, graph.handle, handles([first]), None, 1, GLOBAL)
    cuda("cuMemsetD32Async", memory, 2, 1, stream)
    assert end(cuda, stream).handle == graph.handle
    a, b = graph.nodes()
    assert graph.edges() == [(a, b)]
    graph.run()
    assert words(cuda, memory, 2) == [2, 1]
    # The body of a conditional node is filled the same way.
    (body,) = graph.conditional(graph.value(1), 0, 1, b)
    cuda(call, stream, body.handle, None, None, 0, GLOBAL)
    cuda("cuMemsetD32Async", memory + 4, 9, 1, stream)
    assert end(cuda, stream).handle == body.handle
    graph.run()
    assert words(cuda, memory, 2) == [2, 9]
    # A graph that goes takes its captures with it.
    cuda(call, stream, graph.handle, None, None, 0, GLOBAL)
    graph.destroy()
    expect(INVALIDATED, lambda: cuda("cuMemsetD32Async", memory, 1, 1, stream))
    expect(INVALIDATED, lambda: end(cuda, stream))


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
    expect(
        INVALID_VALUE, lambda: cuda("cuThreadExchangeStreamCaptureMode", byref(c_uint32(3)))
    )


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


@on_device()
def test_other_streams_go_on_while_one_captures(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(8)
    stream, other = cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
    event, gate = cuda.event(), threading.Event()
    holder = HostFn(lambda _: gate.wait(SECONDS / 3) and None)
    begin(cuda, stream, RELAXED)
    cuda("cuMemsetD32Async", memory, 1, 1, stream)
    cuda("cuLaunchHostFunc", other, holder, None)
    cuda("cuMemsetD32Async", memory + 4, 2, 1, other)
    cuda("cuEventRecord", event, other)
    assert cuda.result("cuEventQuery", event) == NOT_READY
    gate.set()
    cuda("cuEventSynchronize", event)
    cuda("cuStreamSynchronize", other)
    assert len(end(cuda, stream).nodes()) == 1
    assert words(cuda, memory + 4, 1) == [2]


@on_device()
def test_batches_of_memory_operations_are_one_node(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(8)
    stream = cuda.stream()
    operations = (Operation * 2)(Operation(2, memory, 4), Operation(2, memory + 4, 5))
    begin(cuda, stream)
    cuda("cuStreamBatchMemOp_v2", stream, 2, operations, 0)
    graph = end(cuda, stream)
    assert [node_type(cuda, n) for n in graph.nodes()] == [BATCH]
    graph.run()
    assert words(cuda, memory, 2) == [4, 5]


@on_device()
def test_memory_that_was_allocated_in_a_capture(cuda: Device) -> None:
    cuda.open()
    stream = cuda.stream()
    plain = cuda.out("cuMemAllocAsync", 64, stream)
    cuda("cuStreamSynchronize", stream)
    begin(cuda, stream)
    kept = cuda.out("cuMemAllocAsync", 64, stream)
    cuda("cuMemsetD32Async", kept, 8, 16, stream)
    # Only memory of alloc nodes can be freed by a node.
    assert cuda.result("cuMemFreeAsync", plain, stream) == INVALID_VALUE
    exec_ = end(cuda, stream).instantiate()
    cuda("cuGraphLaunch", exec_, stream)
    cuda("cuStreamSynchronize", stream)
    assert words(cuda, kept, 16) == [8] * 16
    cuda("cuMemFreeAsync", kept, stream)
    cuda("cuMemFreeAsync", plain, stream)
    cuda("cuStreamSynchronize", stream)
