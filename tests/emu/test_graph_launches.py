"""Launches of executable graphs."""

from __future__ import annotations

import ctypes
import itertools
import threading
from ctypes import byref, c_uint32, c_uint64

from emu.device import SECONDS, Device, expect, on_device
from emu.graphs import (
    ON_DEVICE,
    ON_HOST,
    Graph,
    HostFn,
    Operation,
    copy_1d,
    put,
    words,
)
from emu.kernels import CALLEE, CALLER, U32, U64, load

INVALID_VALUE, INVALID_HANDLE = 1, 400
WAIT_32, WRITE_32, EQUAL = 1, 2, 1
NON_BLOCKING = 1


@on_device()
def test_nodes_run_in_the_order_of_their_edges(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory, second = cuda.alloc(64), cuda.alloc(64)
    result = (c_uint32 * 16)()
    seen: list[int] = []
    graph = Graph(cuda)
    # Added in reverse: the edges say the order.
    last = graph.host(lambda _: seen.append(result[3]))
    out = graph.copy(copy_1d(ctypes.addressof(result), second, 64, (ON_HOST, ON_DEVICE)))
    across = graph.copy(copy_1d(second, memory, 64))
    add = graph.kernel(function, [U64(memory), U32(16)], block=16)
    first = graph.set(memory, 41, 16)
    order = [first, add, across, out, last]
    for before, after in itertools.pairwise(order):
        cuda(
            "cuGraphAddDependencies_v2",
            graph.handle,
            byref(c_uint64(before)),
            byref(c_uint64(after)),
            None,
            1,
        )
    exec_ = graph.instantiate()
    stream = cuda.stream(NON_BLOCKING)
    for _ in range(3):
        cuda("cuGraphLaunch", exec_, stream)
    cuda("cuStreamSynchronize", stream)
    assert list(result) == [42] * 16
    assert seen == [42] * 3
    graph.destroy()  # the executable does not need it
    cuda("cuGraphLaunch", exec_, stream)
    cuda("cuGraphExecDestroy", exec_)  # the launch goes on
    cuda("cuStreamSynchronize", stream)
    assert seen == [42] * 4
    expect(INVALID_VALUE, lambda: cuda("cuGraphLaunch", exec_, stream))


@on_device()
def test_memory_of_the_host_is_read_at_each_launch(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(16)
    source = (c_uint32 * 4)(1, 2, 3, 4)
    graph = Graph(cuda)
    graph.copy(copy_1d(memory, ctypes.addressof(source), 16, (ON_DEVICE, ON_HOST)))
    exec_ = graph.instantiate()
    stream = cuda.stream()
    for base in (10, 20, 30):
        source[:] = [base + i for i in range(4)]
        cuda("cuGraphLaunch", exec_, stream)
        cuda("cuStreamSynchronize", stream)
        assert words(cuda, memory, 4) == list(source)


@on_device()
def test_a_box_is_copied_row_by_row(cuda: Device) -> None:
    cuda.open()
    source, target = cuda.alloc(6 * 5 * 4), cuda.alloc(6 * 5 * 4)
    cuda.write(source, bytes(range(120)))
    cuda.write(target, bytes(120))
    box = copy_1d(target, source, 3)
    box.height, box.depth = 2, 2
    for side, start in ((box.src, (1, 1, 1)), (box.dst, (0, 2, 2))):
        side.x, side.y, side.z = start
        side.pitch, side.height = 6, 5
    graph = Graph(cuda)
    graph.copy(box)
    graph.run()
    got = cuda.read(target, 120)
    expected = bytearray(120)
    for z in range(2):
        for y in range(2):
            for x in range(3):
                expected[(z + 2) * 30 + (y + 2) * 6 + x] = (z + 1) * 30 + (y + 1) * 6 + x + 1
    assert got == bytes(expected)
    box.depth = 3  # past the end of both
    expect(INVALID_VALUE, lambda: graph.copy(box))


@on_device()
def test_a_launch_is_ordered_in_its_stream(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(4)
    graph = Graph(cuda)
    graph.set(memory, 7, 1)
    exec_ = graph.instantiate()
    result = (c_uint32 * 1)()
    stream = cuda.stream()
    for _ in range(20):
        cuda("cuMemsetD32Async", memory, 1, 1, stream)
        cuda("cuGraphLaunch", exec_, stream)
        cuda("cuMemcpyDtoHAsync_v2", result, memory, 4, stream)
        cuda("cuStreamSynchronize", stream)
        assert result[0] == 7
    # Blocking streams and the legacy stream wait for each other.
    cuda("cuMemsetD32Async", memory, 1, 1, stream)
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuMemcpyDtoHAsync_v2", result, memory, 4, stream)
    cuda("cuStreamSynchronize", stream)
    assert result[0] == 7


@on_device()
def test_launches_of_one_executable_follow_each_other(cuda: Device) -> None:
    cuda.open()
    inside: list[int] = []
    gate = threading.Event()
    graph = Graph(cuda)

    def enter(_: object) -> None:
        inside.append(1)
        if len(inside) == 1:
            gate.wait(SECONDS / 3)
        assert len(inside) == 1
        inside.pop()

    graph.host(enter)
    exec_ = graph.instantiate()
    streams = [cuda.stream(NON_BLOCKING) for _ in range(4)]
    for stream in streams:
        cuda("cuGraphLaunch", exec_, stream)
    gate.set()
    cuda("cuCtxSynchronize")
    assert inside == []


@on_device()
def test_branches_may_wait_for_each_other(cuda: Device) -> None:
    """One branch ends only when another writes: they run at the same time."""
    cuda.open()
    memory = cuda.alloc(64)
    put(cuda, memory, [0] * 16)
    graph = Graph(cuda)
    root = graph.empty()
    waits = [graph.batch([Operation(WAIT_32, memory + 4 * i, 1, EQUAL)], root) for i in range(4)]
    writes = [graph.batch([Operation(WRITE_32, memory + 4 * i, 1)], root) for i in range(4)]
    graph.set(memory + 32, 5, 8, *waits, *writes)
    exec_ = graph.instantiate()
    stream = cuda.stream()
    for _ in range(3):
        put(cuda, memory, [0] * 16)
        cuda("cuGraphLaunch", exec_, stream)
        cuda("cuStreamSynchronize", stream)
        assert words(cuda, memory, 16) == [1] * 4 + [0] * 4 + [5] * 8


@on_device()
def test_more_branches_than_lanes(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(4 * 100)
    cuda("cuMemsetD32_v2", memory, 0, 100)
    graph = Graph(cuda)
    root = graph.empty()
    middle = [graph.kernel(function, [U64(memory + 4 * i), U32(1)], root) for i in range(100)]
    graph.kernel(function, [U64(memory), U32(100)], *middle, block=100)
    exec_ = graph.instantiate()
    for turn in range(1, 4):
        cuda("cuGraphLaunch", exec_, 0)
        assert words(cuda, memory, 100) == [2 * turn] * 100


@on_device()
def test_child_graphs_run_in_their_place(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(16)
    inner = Graph(cuda)
    for _ in range(3):  # three branches that touch different words
        inner.kernel(function, [U64(memory + 4 * len(inner.nodes())), U32(1)])
    middle = Graph(cuda)
    middle.child(inner, middle.child(inner))
    graph = Graph(cuda)
    before = graph.set(memory, 10, 4)
    child = graph.child(middle, before)
    nothing = graph.child(Graph(cuda), child)
    graph.kernel(function, [U64(memory), U32(4)], nothing, block=4)
    graph.run()
    assert words(cuda, memory, 4) == [13, 13, 13, 11]


@on_device()
def test_events_within_a_graph(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(8)
    put(cuda, memory, [0, 0])
    middle, before = cuda.event(), cuda.event()
    graph = Graph(cuda)
    wait = graph.wait(before)
    record = graph.record(middle, graph.set(memory, 3, 1, wait))
    # This node ends only after the host has seen the record.
    graph.batch([Operation(WAIT_32, memory + 4, 1, EQUAL)], record)
    exec_ = graph.instantiate()
    stream, other = cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
    for _ in range(2):
        put(cuda, memory, [0, 0])
        cuda("cuGraphLaunch", exec_, stream)
        result = (c_uint32 * 1)()
        cuda("cuStreamWaitEvent", other, middle, 0)
        cuda("cuMemcpyDtoHAsync_v2", result, memory, 4, other)
        cuda("cuStreamSynchronize", other)
        assert result[0] == 3
        assert cuda.result("cuStreamQuery", stream) == 600
        cuda("cuEventSynchronize", middle)
        cuda("cuStreamWriteValue32_v2", other, memory + 4, 1, 0)
        cuda("cuStreamSynchronize", stream)


@on_device()
def test_a_wait_holds_the_record_of_the_time_of_the_launch(cuda: Device) -> None:
    cuda.open()
    event, gate = cuda.event(), threading.Event()
    memory = cuda.alloc(4)
    put(cuda, memory, [0])
    graph = Graph(cuda)
    graph.set(memory, 1, 1, graph.wait(event))
    exec_ = graph.instantiate()
    source, stream = cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
    holder = HostFn(lambda _: gate.wait(SECONDS / 3) and None)
    cuda("cuLaunchHostFunc", source, holder, None)
    cuda("cuEventRecord", event, source)
    cuda("cuGraphLaunch", exec_, stream)
    assert cuda.result("cuStreamQuery", stream) == 600
    gate.set()
    cuda("cuStreamSynchronize", stream)
    assert words(cuda, memory, 1) == [1]


@on_device()
def test_user_objects_die_with_their_last_reference(cuda: Device) -> None:
    cuda.open()
    dead: list[int] = []
    results: list[int] = []

    def destroy(data: int) -> None:
        dead.append(data)
        results.append(cuda.result("cuCtxSynchronize"))

    function = HostFn(destroy)
    one = c_uint64()
    cuda("cuUserObjectCreate", byref(one), 5, function, 2, 1)
    graph = Graph(cuda)
    graph.empty()
    cuda("cuGraphRetainUserObject", graph.handle, one.value, 1, 1)  # moved
    cuda("cuGraphRetainUserObject", graph.handle, one.value, 1, 0)  # and one more
    cuda("cuUserObjectRelease", one.value, 1)
    cuda("cuGraphReleaseUserObject", graph.handle, one.value, 1)
    expect(INVALID_VALUE, lambda: cuda("cuGraphReleaseUserObject", graph.handle, one.value, 2))
    exec_ = graph.instantiate()
    clone = Graph(cuda, cuda.out("cuGraphClone", graph.handle))
    graph.destroy()
    clone.destroy()
    assert dead == []
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuGraphExecDestroy", exec_)
    cuda("cuCtxSynchronize")
    assert dead == [5]
    assert results == [800]
    expect(INVALID_VALUE, lambda: cuda("cuUserObjectRetain", one.value, 1))
    call = "cuUserObjectCreate"
    for count, flags in ((0, 1), (1, 0), (1, 2)):
        expect(INVALID_VALUE, lambda c=count, f=flags: cuda(call, byref(one), 5, function, c, f))
    expect(INVALID_VALUE, lambda: cuda("cuUserObjectCreate", byref(one), 5, None, 1, 1))


@on_device()
def test_kernels_are_compiled_when_the_graph_is_instantiated(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(4)
    put(cuda, memory, [21])
    data = (CALLER.encode(), CALLEE.encode())
    state = c_uint64()
    cuda("cuLinkCreate_v2", 0, None, None, byref(state))
    for text in data:
        cuda("cuLinkAddData_v2", state.value, 1, text, len(text) + 1, None, 0, None, None)
    image, size = c_uint64(), c_uint64()
    cuda("cuLinkComplete", state.value, byref(image), byref(size))
    module = cuda.out("cuModuleLoadData", image.value)
    graph = Graph(cuda)
    graph.kernel(cuda.function(module, "use"), [U64(memory)])
    exec_ = graph.instantiate()
    cuda("cuGraphUpload", exec_, 0)
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 1) == [42]
    expect(INVALID_VALUE, lambda: cuda("cuGraphUpload", 12345, 0))
    expect(INVALID_HANDLE, lambda: cuda("cuGraphLaunch", exec_, 12345))
