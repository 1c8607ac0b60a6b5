"""Stream capture: what becomes a node, and how captures fork, join, end and fail."""

from __future__ import annotations

import itertools
import threading
from ctypes import byref, c_uint32, c_uint64

from emu.capturing import (
    ACTIVE,
    CAPTURED_EVENT,
    EXTERNAL,
    ILLEGAL_STATE,
    INVALID,
    INVALID_VALUE,
    INVALIDATED,
    ISOLATION,
    LEGACY,
    MERGE,
    NON_BLOCKING,
    NONE,
    NOT_READY,
    PER_THREAD,
    UNJOINED,
    UNMATCHED,
    UNSUPPORTED,
    begin,
    end,
    info,
    status,
)
from emu.device import SECONDS, Device, expect, on_device
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
    assert graph.edges() == list(itertools.pairwise(nodes))
    shown = Copy()
    cuda("cuGraphMemcpyNodeGetParams", nodes[0], byref(shown))
    assert (shown.src.type, shown.dst.type, shown.width) == (ON_HOST, ON_DEVICE, 64)
    # Nothing has run.
    assert calls == []
    assert words(cuda, memory + 64, 1) == [0]
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
    assert status(cuda, side) == NONE
    assert status(cuda, main) == NONE
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
    assert cuda.result("cuStreamEndCapture", main, byref(out)) == UNJOINED
    assert out.value == 0
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
    assert one[0] == ACTIVE
    assert one[1] != 0
    assert one[3] == []
    assert two[:3] == one[:3]
    assert len(two[3]) == 1
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
    expect(INVALID_VALUE, lambda: cuda(call, stream, graph.handle, handles([77]), None, 1, GLOBAL))
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
