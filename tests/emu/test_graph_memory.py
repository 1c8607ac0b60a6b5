"""Alloc and free nodes, and the counters of graph memory."""

from __future__ import annotations

from ctypes import byref, c_uint64

from emu.device import Device, expect, on_device
from emu.graphs import (
    ALLOC,
    FREE,
    GRAPH,
    Alloc,
    Child,
    Graph,
    NodeParams,
    copy_1d,
    handles,
    node_type,
    words,
)
from emu.kernels import U32, U64, load

INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED = 1, 2, 801
USED, USED_HIGH, RESERVED, RESERVED_HIGH = range(4)
AUTO_FREE = 1


def memory_of_graphs(cuda: Device) -> tuple[int, ...]:
    value = c_uint64()
    out = []
    for attribute in range(4):
        cuda("cuDeviceGetGraphMemAttribute", 0, attribute, byref(value))
        out.append(value.value)
    return tuple(out)


@on_device()
def test_memory_lives_from_its_alloc_node_to_its_free_node(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    result = cuda.alloc(64)
    graph = Graph(cuda)
    alloc, address = graph.alloc(64)
    assert node_type(cuda, alloc) == ALLOC
    set_ = graph.set(address, 6, 16, alloc)
    add = graph.kernel(function, [U64(address), U32(16)], set_, block=16)
    copy = graph.copy(copy_1d(result, address, 64), add)
    free = graph.free(address, copy)
    assert node_type(cuda, free) == FREE
    shown, pointer = Alloc(), c_uint64()
    cuda("cuGraphMemAllocNodeGetParams", alloc, byref(shown))
    cuda("cuGraphMemFreeNodeGetParams", free, byref(pointer))
    assert (shown.dptr, shown.bytes, pointer.value) == (address, 64, address)
    exec_ = graph.instantiate()
    for _ in range(3):  # freed by the graph itself, so it may be launched again
        cuda("cuGraphLaunch", exec_, 0)
        assert words(cuda, result, 16) == [7] * 16
    assert memory_of_graphs(cuda) == (0, 64, 64, 64)
    cuda("cuGraphExecDestroy", exec_)
    graph.destroy()
    assert memory_of_graphs(cuda)[RESERVED] == 0
    for attribute in (USED_HIGH, RESERVED_HIGH):
        cuda("cuDeviceSetGraphMemAttribute", 0, attribute, byref(c_uint64(0)))
    assert memory_of_graphs(cuda) == (0, 0, 0, 0)


@on_device()
def test_memory_that_is_left_is_the_programs(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    alloc, address = graph.alloc(64)
    graph.set(address, 9, 16, alloc)
    expect(INVALID_VALUE, lambda: cuda("cuMemFree_v2", address))  # not launched yet
    exec_ = graph.instantiate()
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, address, 16) == [9] * 16
    assert memory_of_graphs(cuda)[USED] == 64
    expect(INVALID_VALUE, lambda: cuda("cuGraphLaunch", exec_, 0))
    cuda("cuMemFree_v2", address)
    expect(INVALID_VALUE, lambda: cuda("cuMemFree_v2", address))
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuMemFreeAsync", address, 0)
    cuda("cuGraphLaunch", exec_, 0)
    # It outlives its graph and executable.
    cuda("cuGraphExecDestroy", exec_)
    graph.destroy()
    assert words(cuda, address, 16) == [9] * 16
    assert memory_of_graphs(cuda) == (64, 64, 64, 64)
    cuda("cuMemFree_v2", address)
    cuda("cuCtxSynchronize")
    assert memory_of_graphs(cuda) == (0, 64, 0, 64)
    expect(INVALID_VALUE, lambda: cuda.read(address, 4))


@on_device()
def test_a_launch_may_free_what_the_last_one_left(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    _, address = graph.alloc(64)
    exec_ = graph.instantiate(AUTO_FREE)
    for _ in range(3):
        cuda("cuGraphLaunch", exec_, 0)
    assert memory_of_graphs(cuda)[USED] == 64
    cuda("cuMemFree_v2", address)


@on_device()
def test_another_graph_may_free(cuda: Device) -> None:
    cuda.open()
    graph, freeing = Graph(cuda), Graph(cuda)
    _, address = graph.alloc(64)
    freeing.free(address)
    expect(INVALID_VALUE, lambda: freeing.free(address))  # twice
    plain = cuda.alloc(64)
    expect(INVALID_VALUE, lambda: freeing.free(plain))
    first, second = graph.instantiate(), freeing.instantiate()
    expect(INVALID_VALUE, lambda: cuda("cuGraphLaunch", second, 0))  # nothing to free
    for _ in range(2):
        cuda("cuGraphLaunch", first, 0)
        cuda("cuGraphLaunch", second, 0)
    assert memory_of_graphs(cuda)[USED] == 0


@on_device()
def test_what_a_graph_with_memory_may_not(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    empty = graph.empty()
    alloc, address = graph.alloc(64, empty)
    copied = c_uint64()
    expect(NOT_SUPPORTED, lambda: cuda("cuGraphClone", byref(copied), graph.handle))
    expect(NOT_SUPPORTED, lambda: cuda("cuGraphDestroyNode", empty))
    one, two = handles([empty]), handles([alloc])
    call = "cuGraphRemoveDependencies_v2"
    expect(NOT_SUPPORTED, lambda: cuda(call, graph.handle, one, two, None, 1))
    outer = Graph(cuda)
    expect(NOT_SUPPORTED, lambda: outer.child(graph))
    exec_ = graph.instantiate()
    expect(NOT_SUPPORTED, graph.instantiate)  # a second one
    cuda("cuGraphExecDestroy", exec_)
    cuda("cuGraphExecDestroy", graph.instantiate())
    params = NodeParams(type=GRAPH)
    params.of.child = Child(graph.handle, 1)
    outer.add(params)  # given away
    exec_ = outer.instantiate()
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuMemFree_v2", address)
    inner = Graph(cuda)
    inner.empty()
    child = outer.child(inner)
    cuda("cuGraphChildGraphNodeGetGraph", child, byref(copied))
    expect(NOT_SUPPORTED, lambda: Graph(cuda, copied.value).alloc(64))


@on_device(RGPU_EMU_MEMORY=str(64 << 20))
def test_memory_of_graphs_is_memory_of_the_device(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    expect(OUT_OF_MEMORY, lambda: graph.alloc(1 << 40))
    _, _ = graph.alloc(40 << 20)
    expect(OUT_OF_MEMORY, lambda: cuda.alloc(40 << 20))
    graph.destroy()
    cuda.free(cuda.alloc(40 << 20))
    wrong = Alloc(kind=1, where=1, device=1, bytes=64)
    call = "cuGraphAddMemAllocNode"
    other = Graph(cuda)
    expect(INVALID_VALUE, lambda: other.cuda.out(call, other.handle, None, 0, byref(wrong)))
    wrong = Alloc(kind=1, handles=1, where=1, bytes=64)
    expect(NOT_SUPPORTED, lambda: other.cuda.out(call, other.handle, None, 0, byref(wrong)))
