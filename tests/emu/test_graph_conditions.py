"""Conditional nodes, whose values kernels set."""

from __future__ import annotations

from ctypes import byref, c_uint64

from emu.device import Device, expect, finish, in_thread, on_device
from emu.graphs import (
    CONDITIONAL,
    Conditional,
    Graph,
    InstantiateParams,
    NodeParams,
    UpdateResult,
    node_type,
    words,
)
from emu.kernels import HEAD, U32, U64, load

INVALID_VALUE, INVALID_CONTEXT, NOT_SUPPORTED = 1, 201, 801
IF, WHILE, SWITCH = range(3)
PTX = (
    HEAD
    + """
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set_value(.param .u64 handle, .param .u32 value)
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [handle]; ld.param.u32 %r1, [value];
  { .param .b64 h; .param .b32 v; st.param.b64 [h], %rd1; st.param.b32 [v], %r1;
    call.uni cudaGraphSetConditional, (h, v); }
  ret;
}
.visible .entry count_down(.param .u64 counter, .param .u64 handle)
{
  .reg .b64 %rd<3>; .reg .b32 %r<3>;
  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [handle];
  ld.global.u32 %r1, [%rd1]; sub.u32 %r2, %r1, 1; st.global.u32 [%rd1], %r2;
  { .param .b64 h; .param .b32 v; st.param.b64 [h], %rd2; st.param.b32 [v], %r2;
    call.uni cudaGraphSetConditional, (h, v); }
  ret;
}
"""
)


@on_device()
def test_if_runs_its_body_or_the_other_one(cuda: Device) -> None:
    cuda.open()
    set_value = cuda.function(load(cuda, PTX), "set_value")
    memory = cuda.alloc(8)
    for value, expected in ((0, [5, 9]), (1, [9, 5]), (7, [9, 5])):
        graph = Graph(cuda)
        handle = graph.value()
        setter = graph.kernel(set_value, [U64(handle), U32(value)], graph.set(memory, 5, 2))
        yes, no = graph.conditional(handle, IF, 2, setter)
        yes.set(memory, 9, 1)
        no.set(memory + 4, 9, 1)
        graph.run()
        assert words(cuda, memory, 2) == expected
        assert node_type(cuda, graph.nodes()[-1]) == CONDITIONAL


@on_device()
def test_while_runs_its_body_until_the_value_is_zero(cuda: Device) -> None:
    cuda.open()
    module = load(cuda, PTX)
    add = cuda.function(load(cuda), "add")
    count_down = cuda.function(module, "count_down")
    counter, sum_ = cuda.alloc(4), cuda.alloc(4)
    graph = Graph(cuda)
    handle = graph.value(1)
    first = graph.set(counter, 5, 1)
    (body,) = graph.conditional(handle, WHILE, 1, first)
    step = body.kernel(add, [U64(sum_), U32(1)])
    body.kernel(count_down, [U64(counter), U64(handle)], step)
    exec_ = graph.instantiate()
    cuda("cuMemsetD32_v2", sum_, 0, 1)
    for turn in range(1, 4):  # the value is assigned at each launch
        cuda("cuGraphLaunch", exec_, 0)
        assert words(cuda, sum_, 1) == [5 * turn]


@on_device()
def test_a_value_without_assignment_keeps(cuda: Device) -> None:
    cuda.open()
    set_value = cuda.function(load(cuda, PTX), "set_value")
    memory = cuda.alloc(4)
    graph = Graph(cuda)
    handle = graph.value(1, flags=0)
    (body,) = graph.conditional(handle, IF, 1)
    body.set(memory, 9, 1)
    exec_ = graph.instantiate()
    cuda("cuMemsetD32_v2", memory, 5, 1)
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 1) == [5]
    cuda.launch(set_value, [U64(handle), U32(1)])
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 1) == [9]


@on_device()
def test_switch_and_conditions_within_conditions(cuda: Device) -> None:
    cuda.open()
    set_value = cuda.function(load(cuda, PTX), "set_value")
    memory = cuda.alloc(16)
    for value, expected in ((0, [9, 1, 1, 1]), (2, [1, 1, 9, 8]), (3, [1, 1, 1, 1])):
        graph = Graph(cuda)
        outer, inner = graph.value(value), graph.value()
        bodies = graph.conditional(outer, SWITCH, 3, graph.set(memory, 1, 4))
        for i, body in enumerate(bodies):
            body.set(memory + 4 * i, 9, 1)
        # A child graph with a condition, in a body.
        setter = bodies[2].kernel(set_value, [U64(inner), U32(1)])
        (deep,) = bodies[2].conditional(inner, IF, 1, setter)
        nested = Graph(cuda)
        nested.set(memory + 12, 8, 1)
        deep.child(nested)
        graph.run()
        assert words(cuda, memory, 4) == expected


@on_device()
def test_what_is_refused(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    handle = graph.value()
    expect(INVALID_VALUE, lambda: graph.value(0, 2))
    other = Graph(cuda)
    expect(INVALID_VALUE, lambda: other.conditional(handle, IF, 1))  # of another graph
    for kind, size in ((IF, 0), (IF, 3), (WHILE, 2), (SWITCH, 0), (9, 1)):
        expect(INVALID_VALUE, lambda k=kind, n=size: graph.conditional(handle, k, n))
    params, exec_ = InstantiateParams(), c_uint64()
    call = "cuGraphInstantiateWithParams"
    expect(INVALID_VALUE, lambda: cuda(call, byref(exec_), graph.handle, byref(params)))
    assert params.result == 5  # CONDITIONAL_HANDLE_UNUSED
    (body,) = graph.conditional(handle, IF, 1)
    expect(INVALID_VALUE, lambda: graph.conditional(handle, IF, 1))  # used already
    host = body.host(lambda _: None)
    expect(NOT_SUPPORTED, lambda: cuda(call, byref(exec_), graph.handle, byref(params)))
    assert (params.result, params.node) == (3, host)  # NODE_OPERATION_NOT_SUPPORTED
    expect(NOT_SUPPORTED, lambda: body.alloc(64))
    expect(INVALID_VALUE, body.destroy)
    wrong = NodeParams(type=CONDITIONAL)
    wrong.of.conditional = Conditional(handle=graph.value(), size=1, ctx=12345)
    expect(INVALID_CONTEXT, lambda: graph.add(wrong))
    cuda("cuGraphDestroyNode", graph.nodes()[0])
    expect(INVALID_VALUE, body.nodes)


@on_device()
def test_a_loop_without_end_is_cancelled_with_its_context(cuda: Device) -> None:
    cuda("cuInit", 0)
    context = cuda.out("cuCtxCreate_v4", None, 0, 0)
    graph = Graph(cuda)
    (body,) = graph.conditional(graph.value(1), WHILE, 1)
    memory = cuda.alloc(4)
    body.set(memory, 1, 1)
    exec_ = graph.instantiate()
    cuda("cuGraphLaunch", exec_, 0)
    finish(in_thread(lambda: cuda("cuCtxDestroy_v2", context)))


@on_device()
def test_a_wild_handle_is_a_fault(cuda: Device) -> None:
    cuda.open()
    set_value = cuda.function(load(cuda, PTX), "set_value")
    cuda.launch(set_value, [U64(0x2000_0FFF_0000), U32(1)])
    expect(700, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_an_update_takes_the_values_of_another_graph(cuda: Device) -> None:
    """Default values and handles are those of the new graph, and kernels set these."""
    cuda.open()
    set_value = cuda.function(load(cuda, PTX), "set_value")
    memory = cuda.alloc(8)

    def build(value: int, chosen: int) -> Graph:
        graph = Graph(cuda)
        first, second = graph.value(value), graph.value()
        start = graph.set(memory, 5, 2)
        bodies = graph.conditional(first, SWITCH, 2, start)
        for i, body in enumerate(bodies):
            body.set(memory + 4 * i, 9, 1)
        setter = graph.kernel(set_value, [U64(second), U32(chosen)], graph.nodes()[-1])
        (last,) = graph.conditional(second, IF, 1, setter)
        last.set(memory + 4, 7, 1)
        return graph

    exec_ = build(0, 1).instantiate()
    for value, chosen, expected in ((1, 0, [5, 9]), (0, 1, [9, 7]), (2, 0, [5, 5])):
        result = UpdateResult()
        graph = build(value, chosen)
        cuda("cuGraphExecUpdate_v2", exec_, graph.handle, byref(result))
        cuda("cuGraphDestroy", graph.handle)
        cuda("cuGraphLaunch", exec_, 0)
        assert words(cuda, memory, 2) == expected
    other = Graph(cuda)
    bodies = other.conditional(other.value(), SWITCH, 3, other.set(memory, 5, 2))
    assert len(bodies) == 3
    expect(910, lambda: cuda("cuGraphExecUpdate_v2", exec_, other.handle, byref(UpdateResult())))
    cuda("cuGraphLaunch", exec_, 0)
    assert words(cuda, memory, 2) == [5, 5]
