"""Nodes of graphs: their parameters and attributes, by every function that adds or reads them."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint32, c_uint64

from emu.device import Device, expect, on_device
from emu.graphs import (
    ALLOC,
    BATCH,
    EMPTY,
    HOST,
    KERNEL,
    MEMCPY,
    MEMSET,
    ON_HOST,
    RECORD,
    WAIT,
    Batch,
    Copy,
    Graph,
    HostNode,
    KernelNode,
    NodeParams,
    Operation,
    Set,
    copy_1d,
    handles,
    kernel_node,
    node_type,
)
from emu.kernels import U32, U64, load

INVALID_VALUE, INVALID_CONTEXT, NOT_SUPPORTED = 1, 201, 801
WRITE_32 = 2


@on_device()
def test_parameters_are_copied_and_given_back(cuda: Device) -> None:
    context = cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(64)
    graph = Graph(cuda)
    address, count = U64(memory), U32(16)
    node = graph.kernel(function, [address, count], grid=2, block=8)
    address.value, count.value = 1, 1
    got = KernelNode()
    cuda("cuGraphKernelNodeGetParams_v2", node, byref(got))
    assert (got.func, got.kern, got.ctx) == (function, 0, context)
    assert (list(got.grid), list(got.block)) == ([2, 1, 1], [8, 1, 1])
    values = (U64.from_address(got.params[0]).value, U32.from_address(got.params[1]).value)
    assert values == (memory, 16)
    cuda("cuGraphKernelNodeSetParams_v2", node, byref(got))  # what came out may go in again
    cuda("cuGraphKernelNodeGetParams_v2", node, byref(got))
    assert U64.from_address(got.params[0]).value == memory
    host = (ctypes.c_char * 64)()
    copied = copy_1d(memory, ctypes.addressof(host), 64, (2, ON_HOST))
    copy = graph.copy(copied)
    shown = Copy()
    cuda("cuGraphMemcpyNodeGetParams", copy, byref(shown))
    assert bytes(shown) == bytes(copied)
    set_ = graph.set(memory, 5, 16)
    plan = Set()
    cuda("cuGraphMemsetNodeGetParams", set_, byref(plan))
    assert (plan.dst, plan.value, plan.element, plan.width) == (memory, 5, 4, 16)
    host_node = graph.host(lambda _: None, data=42)
    function_and_data = HostNode()
    cuda("cuGraphHostNodeGetParams", host_node, byref(function_and_data))
    assert function_and_data.data == 42
    event = cuda.event()
    record, wait = graph.record(event), graph.wait(event)
    out = c_uint64()
    for call, asked in (("Record", record), ("Wait", wait)):
        cuda(f"cuGraphEvent{call}NodeGetEvent", asked, byref(out))
        assert out.value == event
    batch = graph.batch([Operation(WRITE_32, memory, 9)])
    operations = Batch()
    cuda("cuGraphBatchMemOpNodeGetParams", batch, byref(operations))
    assert operations.count == 1
    assert operations.operations[0].value == 9
    types = [node_type(cuda, n) for n in graph.nodes()]
    assert types == [KERNEL, MEMCPY, MEMSET, HOST, RECORD, WAIT, BATCH]
    # A getter of another type.
    expect(INVALID_VALUE, lambda: cuda("cuGraphHostNodeGetParams", batch, byref(function_and_data)))


@on_device()
def test_wrong_parameters_are_refused_when_a_node_is_added(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(64)
    graph = Graph(cuda)
    good = [U64(memory), U32(16)]
    expect(INVALID_VALUE, lambda: graph.kernel(function, good, block=4096))
    expect(INVALID_VALUE, lambda: graph.kernel(function, good, grid=0))
    expect(400, lambda: graph.kernel(12345, good))
    expect(INVALID_VALUE, lambda: graph.kernel(0, good))
    expect(INVALID_VALUE, lambda: graph.copy(copy_1d(memory, memory + 32, 33)))
    expect(INVALID_VALUE, lambda: graph.copy(copy_1d(8, memory, 4)))
    expect(INVALID_CONTEXT, lambda: graph.copy(copy_1d(memory, memory + 32, 8), ctx=12345))
    expect(INVALID_VALUE, lambda: graph.set(memory, 0, 17))
    expect(INVALID_VALUE, lambda: graph.set(memory, 0, 4, element=3))
    expect(400, lambda: graph.record(12345))
    expect(INVALID_VALUE, lambda: graph.batch([Operation(WRITE_32, memory + 64, 1)]))
    expect(INVALID_VALUE, lambda: graph.batch([Operation(9, memory, 1)]))
    expect(INVALID_VALUE, lambda: graph.child(Graph(cuda, 12345)))
    assert graph.nodes() == []
    node = graph.kernel(function, good)
    wrong = kernel_node(function, good, grid=0)
    expect(INVALID_VALUE, lambda: cuda("cuGraphKernelNodeSetParams_v2", node, byref(wrong)))
    for kind in (8, 9):  # external semaphores
        expect(NOT_SUPPORTED, lambda kind=kind: graph.add(NodeParams(type=kind)))
    expect(INVALID_VALUE, lambda: graph.add(NodeParams(type=99)))


@on_device()
def test_attributes_of_kernel_nodes(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "bump")
    graph = Graph(cuda)
    a, b = graph.kernel(function, []), graph.kernel(function, [], grid=3)
    value = (c_uint32 * 16)(1)
    read = (c_uint32 * 16)(9)
    cuda("cuGraphKernelNodeGetAttribute", a, 2, read)
    assert read[0] == 0
    cuda("cuGraphKernelNodeSetAttribute", a, 2, value)  # cooperative
    cuda("cuGraphKernelNodeCopyAttributes", b, a)
    cuda("cuGraphKernelNodeGetAttribute", b, 2, read)
    assert read[0] == 1
    expect(NOT_SUPPORTED, lambda: cuda("cuGraphKernelNodeSetAttribute", a, 13, value))
    expect(INVALID_VALUE, lambda: cuda("cuGraphKernelNodeSetAttribute", a, 99, value))
    expect(INVALID_VALUE, lambda: cuda("cuGraphKernelNodeGetAttribute", a, 0, read))
    # Not all blocks fit at the same time.
    many = kernel_node(function, [], grid=100000, block=1024)
    expect(720, lambda: cuda("cuGraphKernelNodeSetParams_v2", a, byref(many)))
    empty = graph.empty()
    expect(INVALID_VALUE, lambda: cuda("cuGraphKernelNodeSetAttribute", empty, 2, value))


@on_device()
def test_nodes_by_the_general_call(cuda: Device) -> None:
    cuda.open()
    event = cuda.event()
    graph = Graph(cuda)
    params = NodeParams(type=RECORD)
    params.of.event = event
    record = graph.add(params)
    other = cuda.event()
    params.of.event = other
    cuda("cuGraphNodeSetParams", record, byref(params))
    out = c_uint64()
    cuda("cuGraphEventRecordNodeGetEvent", record, byref(out))
    assert out.value == other
    params.type = WAIT
    expect(INVALID_VALUE, lambda: cuda("cuGraphNodeSetParams", record, byref(params)))
    params = NodeParams(type=ALLOC)
    expect(INVALID_VALUE, lambda: graph.add(params))  # no bytes


@on_device()
def test_older_symbols(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(16)
    cuda("cuMemsetD32_v2", memory, 0, 4)
    graph = Graph(cuda)
    first = kernel_node(function, [U64(memory), U32(4)], block=4)
    a = cuda.out("cuGraphAddKernelNode", graph.handle, None, 0, byref(first))
    cuda("cuGraphKernelNodeSetParams", a, byref(first))
    got = KernelNode(kern=77)  # the older structure ends before this field
    cuda("cuGraphKernelNodeGetParams", a, byref(got))
    assert (got.func, got.block[0], got.kern) == (function, 4, 77)
    empty = NodeParams(type=EMPTY)
    b = cuda.out("cuGraphAddNode", graph.handle, handles([a]), 1, byref(empty))
    one, two, count = handles([0]), handles([0]), c_size_t(1)
    cuda("cuGraphGetEdges", graph.handle, one, two, byref(count))
    assert (one[0], two[0], count.value) == (a, b, 1)
    for call, node, expected in (("Dependencies", b, a), ("DependentNodes", a, b)):
        cuda(f"cuGraphNodeGet{call}", node, one, byref(count))
        assert one[0] == expected
    cuda("cuGraphRemoveDependencies", graph.handle, handles([a]), handles([b]), 1)
    cuda("cuGraphAddDependencies", graph.handle, handles([a]), handles([b]), 1)
    exec_, error, log = c_uint64(), c_uint64(5), (ctypes.c_char * 8)(b"x")
    cuda("cuGraphInstantiate_v2", byref(exec_), graph.handle, byref(error), log, 8)
    assert error.value == 0
    assert log.value == b""
    wider = kernel_node(function, [U64(memory), U32(2)], block=4)
    cuda("cuGraphExecKernelNodeSetParams", exec_.value, a, byref(wider))
    cuda("cuGraphLaunch", exec_.value, 0)
    assert cuda.read(memory, 16) == bytes([1, 0, 0, 0] * 2 + [0] * 8)
    result = c_uint32(9)
    call = "cuGraphExecUpdate"
    cuda(call, exec_.value, graph.handle, byref(error), byref(result))
    assert result.value == 0
    other = Graph(cuda)
    expect(910, lambda: cuda(call, exec_.value, other.handle, byref(error), byref(result)))
    assert result.value == 2
    stream = cuda.stream()
    cuda("cuStreamBeginCapture", stream)
    cuda("cuStreamUpdateCaptureDependencies", stream, None, 0, 1)
    cuda("cuStreamEndCapture", stream, byref(exec_))
