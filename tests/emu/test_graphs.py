"""Graphs as templates: nodes, edges, questions, copies."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint64
from pathlib import Path
from tempfile import TemporaryDirectory

from emu.device import Device, expect, on_device
from emu.graphs import (
    EMPTY,
    GRAPH,
    KERNEL,
    Child,
    EdgeData,
    Graph,
    InstantiateParams,
    NodeParams,
    handles,
    kernel_node,
    node_type,
)
from emu.kernels import load

INVALID_VALUE, LOSSY_QUERY, NOT_SUPPORTED = 1, 402, 801
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
