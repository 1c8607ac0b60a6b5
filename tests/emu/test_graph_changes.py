"""Changes of executable graphs: parameters, switches and whole updates."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint32

from emu.device import Device, expect, finish, in_thread, on_device
from emu.graphs import (
    KERNEL,
    MEMSET,
    ON_DEVICE,
    ON_HOST,
    RELAXED,
    Graph,
    HostFn,
    HostNode,
    NodeParams,
    Set,
    UpdateResult,
    copy_1d,
    kernel_node,
    node_type,
    put,
    words,
)
from emu.kernels import U32, U64, load

INVALID_VALUE, UPDATE_FAILURE = 1, 910
WAIT_32, WRITE_32, EQUAL = 1, 2, 1
NON_BLOCKING = 1


@on_device()
def test_parameters_of_an_executable_change_alone(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    function, other = cuda.function(module, "add"), cuda.function(module, "bump")
    memory = cuda.alloc(64)
    cuda("cuMemsetD32_v2", memory, 0, 16)
    host = (c_uint32 * 1)(77)
    graph = Graph(cuda)
    kernel = graph.kernel(function, [U64(memory), U32(4)], block=4)
    set_ = graph.set(memory + 16, 1, 4, kernel)
    copy = graph.copy(copy_1d(memory + 32, memory, 4), set_)
    calls: list[int] = []
    host_node = graph.host(lambda _: calls.append(1), copy)
    exec_ = graph.instantiate()
    wider = kernel_node(function, [U64(memory), U32(8)], block=8)
    cuda("cuGraphExecKernelNodeSetParams_v2", exec_, kernel, byref(wider))
    plan = Set(dst=memory + 16, value=9, element=4, width=2, height=1)
    cuda("cuGraphExecMemsetNodeSetParams", exec_, set_, byref(plan), 0)
    moved = copy_1d(memory + 36, memory, 4)
    cuda("cuGraphExecMemcpyNodeSetParams", exec_, copy, byref(moved), 0)
    replaced = HostFn(lambda _: calls.append(2))
    cuda("cuGraphExecHostNodeSetParams", exec_, host_node, byref(HostNode(replaced, None)))
    # A host side cannot become a device side.
    from_host = copy_1d(memory, ctypes.addressof(host), 4, (ON_DEVICE, ON_HOST))
    call = "cuGraphExecMemcpyNodeSetParams"
    expect(INVALID_VALUE, lambda: cuda(call, exec_, copy, byref(from_host), 0))
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuStreamSynchronize", 0)
    assert words(cuda, memory, 12) == [1] * 4 + [9, 9, 1, 1] + [0, 1, 0, 0]
    assert calls == [2]
    # The template did not change, and another function is allowed.
    bump = kernel_node(other, [])
    params = NodeParams(type=KERNEL)
    params.of.kernel = bump
    cuda("cuGraphExecNodeSetParams", exec_, kernel, byref(params))
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuStreamSynchronize", 0)
    assert words(cuda, memory, 4) == [1] * 4
    graph.run()
    assert words(cuda, memory, 12)[8] == 2
    assert calls == [2, 2, 1]
    params.type = MEMSET
    expect(INVALID_VALUE, lambda: cuda("cuGraphExecNodeSetParams", exec_, kernel, byref(params)))
    stranger = Graph(cuda).empty()
    expect(
        INVALID_VALUE,
        lambda: cuda("cuGraphExecKernelNodeSetParams_v2", exec_, stranger, byref(bump)),
    )


@on_device()
def test_nodes_are_switched_off_and_on(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(16)
    graph = Graph(cuda)
    set_ = graph.set(memory, 5, 4)
    kernel = graph.kernel(function, [U64(memory), U32(4)], set_, block=4)
    empty = graph.empty(kernel)
    exec_ = graph.instantiate()
    enabled = c_uint32(7)
    for state, expected in ((0, 5), (1, 6), (0, 5)):
        cuda("cuGraphNodeSetEnabled", exec_, kernel, state)
        cuda("cuGraphNodeGetEnabled", exec_, kernel, byref(enabled))
        assert enabled.value == state
        cuda("cuGraphLaunch", exec_, 0)
        assert words(cuda, memory, 4) == [expected] * 4
    expect(INVALID_VALUE, lambda: cuda("cuGraphNodeSetEnabled", exec_, empty, 0))


@on_device()
def test_a_whole_executable_is_updated(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(32)

    def make(value: int, inner_value: int) -> tuple[Graph, list[int]]:
        graph, inner = Graph(cuda), Graph(cuda)
        inner.set(memory + 16, inner_value, 4)
        first = graph.set(memory, value, 4)
        second = graph.kernel(function, [U64(memory), U32(4)], first, block=4)
        return graph, [first, second, graph.child(inner, second)]

    graph, nodes = make(1, 2)
    exec_ = graph.instantiate()
    fresh, _ = make(10, 20)
    result = UpdateResult()
    cuda("cuGraphExecUpdate_v2", exec_, fresh.handle, byref(result))
    assert result.result == 0
    fresh.destroy()
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 8) == [11] * 4 + [20] * 4
    # Nodes are still named by the first template.
    plan = Set(dst=memory, value=30, element=4, width=4, height=1)
    cuda("cuGraphExecMemsetNodeSetParams", exec_, nodes[0], byref(plan), 0)
    inner = Graph(cuda)
    inner.set(memory + 16, 40, 4)
    cuda("cuGraphExecChildGraphNodeSetParams", exec_, nodes[2], inner.handle)
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 8) == [31] * 4 + [40] * 4
    inner.set(memory, 0, 1)
    call = "cuGraphExecChildGraphNodeSetParams"
    expect(INVALID_VALUE, lambda: cuda(call, exec_, nodes[2], inner.handle))


@on_device()
def test_why_an_update_fails(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(32)
    graph = Graph(cuda)
    a = graph.set(memory, 1, 4)
    b = graph.set(memory, 2, 4, a)
    graph.empty(b)
    exec_ = graph.instantiate()
    result = UpdateResult()

    def update(fresh: Graph) -> tuple[int, int, int]:
        call = "cuGraphExecUpdate_v2"
        expect(UPDATE_FAILURE, lambda: cuda(call, exec_, fresh.handle, byref(result)))
        return result.result, result.node, result.source

    fewer = Graph(cuda)
    fewer.empty()
    assert update(fewer) == (2, 0, 0)  # TOPOLOGY_CHANGED
    other = Graph(cuda)
    first = other.set(memory, 1, 4)
    second = other.empty(first)
    other.empty(second)
    assert update(other) == (3, second, 0)  # NODE_TYPE_CHANGED
    other = Graph(cuda)
    first = other.set(memory, 1, 4)
    second = other.set(memory, 2, 4, first)
    third = other.empty(first)
    assert update(other) == (2, third, first)
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 4) == [2] * 4
    expect(INVALID_VALUE, lambda: cuda("cuGraphExecUpdate_v2", exec_, 12345, byref(result)))
    assert node_type(cuda, third) == 5


@on_device()
def test_threads_may_launch_and_change_an_executable(cuda: Device) -> None:
    context = cuda.open()
    function = cuda.function(load(cuda), "add")
    memory = cuda.alloc(4)
    put(cuda, memory, [0])
    graph = Graph(cuda)
    kernel = graph.kernel(function, [U64(memory), U32(1)])
    exec_ = graph.instantiate()
    rounds = 40

    def launch() -> None:
        cuda("cuCtxSetCurrent", context)
        stream = cuda.stream(NON_BLOCKING)
        for _ in range(rounds):
            cuda("cuGraphLaunch", exec_, stream)
        cuda("cuStreamSynchronize", stream)

    def change() -> None:
        cuda("cuCtxSetCurrent", context)
        mode = c_uint32(RELAXED)
        cuda("cuThreadExchangeStreamCaptureMode", byref(mode))
        for block in range(1, rounds):
            node = kernel_node(function, [U64(memory), U32(1)], block=block)
            cuda("cuGraphExecKernelNodeSetParams_v2", exec_, kernel, byref(node))

    threads = [in_thread(launch) for _ in range(3)] + [in_thread(change)]
    for thread in threads:
        finish(thread)
    assert words(cuda, memory, 1) == [3 * rounds]
