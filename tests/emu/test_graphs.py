"""Graphs as templates: nodes, edges, questions, copies."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint32, c_uint64
from pathlib import Path
from tempfile import TemporaryDirectory

from emu.device import Device, expect, on_device
from emu.graphs import (
    ALLOC,
    BATCH,
    EMPTY,
    GRAPH,
    HOST,
    KERNEL,
    MEMCPY,
    MEMSET,
    ON_HOST,
    RECORD,
    WAIT,
    Batch,
    Child,
    Copy,
    EdgeData,
    Graph,
    HostNode,
    InstantiateParams,
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

INVALID_VALUE, INVALID_CONTEXT, LOSSY_QUERY, NOT_SUPPORTED = 1, 201, 402, 801
WRITE_32 = 2


def neighbours(cuda: Device, call: str, node: int) -> list[int]:
    count = c_size_t()
    cuda(call, node, None, None, byref(count))
    array = handles([0] * count.value)
    cuda(call, node, array, None, byref(count))
    return list(array)[: count.value]


@on_device()
def test_nodes_and_edges_are_listed_in_the_order_of_their_making(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    assert graph.nodes() == []
    assert graph.edges() == []
    a = graph.empty()
    b = graph.empty(a)
    c = graph.empty(a)
    d = graph.empty(b, c)
    assert graph.nodes() == [a, b, c, d]
    assert graph.edges() == [(a, b), (a, c), (b, d), (c, d)]
    assert neighbours(cuda, "cuGraphNodeGetDependencies_v2", d) == [b, c]
    assert neighbours(cuda, "cuGraphNodeGetDependentNodes_v2", a) == [b, c]
    count = c_size_t(4)
    roots = handles([7] * 4)
    cuda("cuGraphGetRootNodes", graph.handle, roots, byref(count))
    assert list(roots) == [a, 0, 0, 0]
    assert count.value == 1
    count = c_size_t(2)
    some = handles([7] * 4)
    cuda("cuGraphGetNodes", graph.handle, some, byref(count))
    assert list(some) == [a, b, 7, 7]
    assert count.value == 2
    graph.destroy()
    expect(INVALID_VALUE, graph.nodes)
    expect(INVALID_VALUE, lambda: node_type(cuda, a))
    expect(INVALID_VALUE, graph.destroy)


@on_device()
def test_dependencies_are_checked_and_changed_as_a_whole(cuda: Device) -> None:
    cuda.open()
    graph, other = Graph(cuda), Graph(cuda)
    a, b, c = graph.empty(), graph.empty(), graph.empty()
    stranger = other.empty()
    for wrong in ((a, a), (stranger,), (12345,)):
        expect(INVALID_VALUE, lambda wrong=wrong: graph.empty(*wrong))

    def change(call: str, first: list[int], second: list[int]) -> None:
        cuda(call, graph.handle, handles(first), handles(second), None, len(first))

    change("cuGraphAddDependencies_v2", [a, b], [b, c])
    # The first edge is new, the second exists: neither is added.
    expect(INVALID_VALUE, lambda: change("cuGraphAddDependencies_v2", [a, a], [c, b]))
    assert graph.edges() == [(a, b), (b, c)]
    expect(INVALID_VALUE, lambda: change("cuGraphAddDependencies_v2", [a], [a]))
    expect(INVALID_VALUE, lambda: change("cuGraphAddDependencies_v2", [a], [stranger]))
    expect(INVALID_VALUE, lambda: change("cuGraphRemoveDependencies_v2", [a, a], [b, c]))
    change("cuGraphRemoveDependencies_v2", [a], [b])
    assert graph.edges() == [(b, c)]
    cuda("cuGraphAddDependencies_v2", graph.handle, None, None, None, 0)
    cuda("cuGraphDestroyNode", b)
    assert graph.nodes() == [a, c]
    assert graph.edges() == []
    expect(INVALID_VALUE, lambda: cuda("cuGraphDestroyNode", b))


@on_device()
def test_a_cycle_is_found_at_instantiation(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    a = graph.empty()
    b = graph.empty(a)
    cuda("cuGraphAddDependencies_v2", graph.handle, handles([b]), handles([a]), None, 1)
    expect(INVALID_VALUE, graph.instantiate)
    params, exec_ = InstantiateParams(), c_uint64()
    call = "cuGraphInstantiateWithParams"
    expect(INVALID_VALUE, lambda: cuda(call, byref(exec_), graph.handle, byref(params)))
    assert params.result == 2  # CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
    assert params.node in (a, b)


@on_device()
def test_flags_of_instantiation(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    graph.empty()
    flags = c_uint64()
    for good in (0, 1, 8, 9):
        cuda("cuGraphExecGetFlags", graph.instantiate(good), byref(flags))
        assert flags.value == good
    expect(NOT_SUPPORTED, lambda: graph.instantiate(4))  # launches from the device
    for bad in (2, 16):  # an upload has no stream here
        expect(INVALID_VALUE, lambda bad=bad: graph.instantiate(bad))
    params, exec_ = InstantiateParams(flags=2, stream=cuda.stream()), c_uint64()
    cuda("cuGraphInstantiateWithParams", byref(exec_), graph.handle, byref(params))
    assert params.result == 0
    assert params.node == 0
    cuda("cuGraphExecGetFlags", exec_.value, byref(flags))
    assert flags.value == 2
    expect(INVALID_VALUE, lambda: cuda("cuGraphExecGetFlags", 77, byref(flags)))


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
def test_edges_between_kernels_may_have_data(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "bump")
    graph = Graph(cuda)
    first = graph.kernel(function, [])
    params = NodeParams(type=KERNEL)
    params.of.kernel = kernel_node(function, [])
    early = EdgeData(from_port=1, type=1)  # programmatic
    second = graph.add(params, first, data=byref(early))
    expect(LOSSY_QUERY, graph.edges)
    count, data = c_size_t(1), EdgeData()
    one, two = handles([0]), handles([0])
    cuda("cuGraphGetEdges_v2", graph.handle, one, two, byref(data), byref(count))
    assert (one[0], two[0], data.from_port, data.type) == (first, second, 1, 1)
    empty = NodeParams(type=EMPTY)
    expect(INVALID_VALUE, lambda: graph.add(empty, first, data=byref(early)))
    expect(INVALID_VALUE, lambda: graph.add(empty, first, data=byref(EdgeData(from_port=9))))
    # The same two nodes with other data are another edge.
    cuda("cuGraphAddDependencies_v2", graph.handle, one, two, None, 1)
    cuda("cuGraphGetEdges_v2", graph.handle, None, None, None, byref(count))
    assert count.value == 2


@on_device()
def test_clones_know_their_originals(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    inner = Graph(cuda)
    inner.empty()
    a = graph.empty()
    child = graph.child(inner, a)
    clone = Graph(cuda, cuda.out("cuGraphClone", graph.handle))
    found = c_uint64()
    cuda("cuGraphNodeFindInClone", byref(found), child, clone.handle)
    assert found.value == clone.nodes()[1]
    assert node_type(cuda, found.value) == GRAPH
    assert clone.edges() == [tuple(clone.nodes())]
    expect(INVALID_VALUE, lambda: cuda("cuGraphNodeFindInClone", byref(found), a, inner.handle))
    # The child graph is a copy too.
    inside = c_uint64()
    cuda("cuGraphChildGraphNodeGetGraph", child, byref(inside))
    assert inside.value != inner.handle
    assert len(Graph(cuda, inside.value).nodes()) == 1
    inner.empty()
    assert len(Graph(cuda, inside.value).nodes()) == 1
    expect(INVALID_VALUE, lambda: cuda("cuGraphDestroy", inside.value))
    cuda("cuGraphDestroyNode", a)
    assert len(clone.nodes()) == 2
    graph.destroy()
    expect(INVALID_VALUE, Graph(cuda, inside.value).nodes)
    assert len(clone.nodes()) == 2


@on_device()
def test_a_child_graph_can_be_given_away(cuda: Device) -> None:
    cuda.open()
    graph, inner = Graph(cuda), Graph(cuda)
    node = inner.empty()
    params = NodeParams(type=GRAPH)
    params.of.child = Child(inner.handle, 1)
    child = graph.add(params)
    inside = c_uint64()
    cuda("cuGraphChildGraphNodeGetGraph", child, byref(inside))
    assert inside.value == inner.handle
    assert inner.nodes() == [node]
    expect(INVALID_VALUE, inner.destroy)
    expect(INVALID_VALUE, lambda: graph.add(params))  # it is not the program's any more
    params.of.child = Child(graph.handle, 0)
    expect(INVALID_VALUE, lambda: graph.add(params))
    graph.destroy()
    expect(INVALID_VALUE, inner.nodes)


@on_device()
def test_depth_has_a_bound(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    graph.empty()
    for _ in range(15):
        outer = Graph(cuda)
        outer.child(graph)
        graph = outer
    graph.run()
    expect(NOT_SUPPORTED, lambda: Graph(cuda).child(graph))


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
def test_the_text_of_a_graph(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(64)
    graph, inner = Graph(cuda), Graph(cuda)
    inner.empty()
    a = graph.set(memory, 0, 16)
    graph.child(inner, a)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        cuda("cuGraphDebugDotPrint", graph.handle, str(path).encode(), 0)
        plain = path.read_text()
        cuda("cuGraphDebugDotPrint", graph.handle, str(path).encode(), 1)
        verbose = path.read_text()
        missing = str(Path(folder) / "no" / "graph.dot").encode()
        expect(304, lambda: cuda("cuGraphDebugDotPrint", graph.handle, missing, 0))
    assert plain.startswith("digraph dot {")
    assert plain.endswith("}\n")
    assert '"graph_0_node_0" -> "graph_0_node_1"' in plain
    assert "MEMSET" in plain
    assert "EMPTY" in plain
    assert f"{memory:#x}" not in plain
    assert f"{memory:#x}: 16 x 1 elements of 4 bytes" in verbose
    assert f"{a:#x}" in verbose


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
