"""The values of conditional handles: whose they are, and when they are given back."""

from __future__ import annotations

from helpers.graph_programs import said


def test_values_of_graphs_that_were_never_instantiated_are_given_back(server: str) -> None:
    """A value takes 8 bytes of the context's memory, in pages that are charged."""
    source = """
before = cuda.memory()[0]
def make(count):
    graph, handle = made("cuGraphCreate", 0), c_uint64()
    for _ in range(count):
        cuda("cuGraphConditionalHandleCreate", byref(handle), graph, None, 1, 1)
    return graph
for _ in range(4):
    graph = make(300)
    copy = made("cuGraphClone", graph)
    cuda("cuGraphDestroy", graph)
    cuda("cuGraphDestroy", copy)
print(before - cuda.memory()[0], cuda.result("cuCtxSynchronize"))
graph = make(300)
copy = made("cuGraphClone", graph)
cuda("cuGraphDestroy", graph)
make(300)   # the copy still has the values
print(before - cuda.memory()[0])
if os.fork() == 0:
    os._exit(0)
os.wait()
context = c_void_p()
cuda("cuCtxCreate_v2", byref(context), 0, 0)
graph = make(10)
cuda("cuCtxDestroy_v2", context)   # and the values with it
cuda("cuGraphDestroy", graph)
cuda("cuCtxSetCurrent", made_first)
print(cuda.result("cuCtxSynchronize"))
"""
    source = source.replace("before =", "made_first = context\nbefore =", 1)
    assert said(server, source) == ["4096 0", "8192", "0"]


def test_an_update_takes_the_values_of_another_graph(server: str) -> None:
    """They are then those of the executable graph, so no other can be made with them."""
    source = """
def build(value):
    graph, node, handle = made("cuGraphCreate", 0), c_void_p(), c_uint64()
    cuda("cuGraphConditionalHandleCreate", byref(handle), graph, context, value, 1)
    words = (c_uint64 * 32)(13, 0, handle.value, 1 << 32, 0, context.value)
    cuda("cuGraphAddNode_v2", byref(node), graph, None, None, c_size_t(0), byref(words))
    body = c_void_p.from_address(words[4])
    params = (c_uint64 * 5)(memory, 0, 7 | 4 << 32, 1, 1)
    cuda("cuGraphAddMemsetNode", byref(node), body, None, c_size_t(0), byref(params), context)
    return graph

def run(value):
    cuda("cuMemsetD32_v2", c_uint64(memory), 0, c_size_t(1))
    cuda("cuGraphLaunch", exec_, None)
    assert struct.unpack("<I", cuda.download(memory, 4)) == (value,)

memory, info = cuda.alloc(4), (c_uint64 * 3)()
exec_ = made("cuGraphInstantiateWithFlags", build(0), c_uint64(0))
run(0)
first, second = build(1), build(0)
update = lambda graph: cuda.result("cuGraphExecUpdate_v2", exec_, graph, byref(info))
print(update(first))
run(7)
print(update(first), cuda.result("cuGraphInstantiateWithFlags", byref(c_void_p()), first, c_uint64(0)))
run(7)
before = cuda.memory()[0]
for _ in range(40):
    assert update(second) == 0
    run(0)
    cuda("cuGraphDestroy", second)
    second = build(0)
cuda.synchronize()
print(before - cuda.memory()[0], update(build(1)))
run(7)
"""
    assert said(server, source) == ["0", "0 801", "0 0"]
