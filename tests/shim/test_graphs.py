"""Graphs over the wire: what only the client and the worker together can get wrong. The litmus
programs have the rules of capture and of every kind of node.
"""

from __future__ import annotations

from pathlib import Path

from helpers.graph_programs import said


def test_memory_of_a_graph_is_there_until_everything_of_it_is_gone(server: str) -> None:
    source = """
MIB = 1 << 20
stream, address = made("cuStreamCreate", 1), c_uint64()
before = cuda.memory()[0]
cuda("cuStreamBeginCapture_v2", stream, 2)
cuda("cuMemAllocAsync", byref(address), c_size_t(64 * MIB), stream)
cuda("cuMemsetD32Async", address, 9, c_size_t(16), stream)
graph = c_void_p()
cuda("cuStreamEndCapture", stream, byref(graph))
print((before - cuda.memory()[0]) // MIB, attribute(0), attribute(2) // MIB)
exec_ = ready(graph)
cuda("cuGraphLaunch", exec_, stream)
cuda("cuStreamSynchronize", stream)
print(attribute(0) // MIB, struct.unpack("<i", cuda.download(address.value, 4))[0])
print(cuda.result("cuGraphLaunch", exec_, stream))  # its memory is still in use
cuda("cuMemFreeAsync", address, stream)
print(attribute(0), cuda.result("cuGraphLaunch", exec_, stream))
cuda("cuStreamSynchronize", stream)
cuda("cuMemFree_v2", address)
print(cuda.result("cuMemFree_v2", address))
cuda("cuGraphDestroy", graph)
print((before - cuda.memory()[0]) // MIB)
cuda("cuGraphExecDestroy", exec_)
cuda.synchronize()
print((before - cuda.memory()[0]) // MIB, attribute(2), attribute(3) // MIB)
"""
    assert said(server, source) == ["64 0 64", "64 9", "1", "0 0", "1", "64", "0 0 64"]


def test_an_allocation_above_the_lease_is_refused_when_the_node_is_added(server: str) -> None:
    source = """
stream, address, graph = made("cuStreamCreate", 1), c_uint64(), c_void_p()
cuda("cuStreamBeginCapture_v2", stream, 2)
print(cuda.result("cuMemAllocAsync", byref(address), c_size_t(1 << 40), stream))
cuda("cuStreamEndCapture", stream, byref(graph))
"""
    assert said(server, source, RGPU_MEMORY=str(256 << 20)) == ["2"]


def test_host_memory_of_every_shape(server: str) -> None:
    """Rows, slices, more bytes than all staging memory of a graph, and from host to host."""
    source = """
SIZE = 5_000_001
stream, graph = made("cuStreamCreate", 1), made("cuGraphCreate", 0)
(a, given), (b, got), (c, third) = pinned(SIZE), pinned(SIZE), pinned(SIZE)
device = cuda.alloc(SIZE)
up = add(graph, "cuGraphAddMemcpyNode", copy(device, a, SIZE), ctx=1)
down = add(graph, "cuGraphAddMemcpyNode", copy(b, device, SIZE), up, ctx=1)
over = add(graph, "cuGraphAddMemcpyNode", copy(c, b, SIZE), down, ctx=1)
exec_ = ready(graph)
for turn in range(3):
    given.raw = os.urandom(SIZE)
    cuda("cuGraphLaunch", exec_, stream)
    cuda("cuStreamSynchronize", stream)
    print(got[:] == given[:], third[:] == given[:])
box = made("cuGraphCreate", 0)
shape = dict(width=100, rows=7, depth=5)
up = add(box, "cuGraphAddMemcpyNode", copy(device, a, 100, 7, 5, from_pitch=120, from_height=9,
         to_pitch=128, to_height=8, from_x=3, from_y=1, from_z=2), ctx=1)
add(box, "cuGraphAddMemcpyNode", copy(b, device, 100, 7, 5, from_pitch=128, from_height=8,
    to_pitch=110, to_height=7), up, ctx=1)
got.raw = bytes(SIZE)
cuda("cuGraphLaunch", ready(box), stream)
cuda("cuStreamSynchronize", stream)
rows = [(z, y) for z in range(5) for y in range(7)]
def row(text, z, y, pitch, height, start=0):
    at = start + (z * height + y) * pitch
    return text[at:at + 100]
start = 3 + (2 * 9 + 1) * 120
print(all(row(got, z, y, 110, 7) == row(given, z, y, 120, 9, start) for z, y in rows))
print(all(got[(z * 7 + y) * 110 + 100:(z * 7 + y + 1) * 110] == bytes(10) for z, y in rows))
"""
    assert said(server, source) == ["True True"] * 3 + ["True", "True"]


def test_a_launch_keeps_what_it_found(server: str) -> None:
    """A change of a host function or of a copy's memory takes effect with the next launch."""
    source = """
stream, other, graph = made("cuStreamCreate", 1), made("cuStreamCreate", 1), made("cuGraphCreate", 0)
flag, seen = cuda.alloc(4), []
cuda.upload(flag, bytes(4))
device = cuda.alloc(8)
(a, first), (b, second) = pinned(8), pinned(8)
first[:], second[:] = b"first   ", b"second  "
class Host(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("data", c_void_p)]
call = FUNCTION(seen.append)
def host(data):
    return Host(ctypes.cast(call, c_void_p), data)
up = add(graph, "cuGraphAddMemcpyNode", copy(device, a, 8), ctx=1)
node = add(graph, "cuGraphAddHostNode", host(1), up)
exec_ = ready(graph)
cuda("cuStreamWaitValue32_v2", stream, c_uint64(flag), 1, 0)
cuda("cuGraphLaunch", exec_, stream)
cuda("cuGraphExecHostNodeSetParams", exec_, node, byref(host(2)))
cuda("cuGraphExecMemcpyNodeSetParams", exec_, up, byref(copy(device, b, 8)), context)
middle, (c, taken) = cuda.alloc(8), pinned(8)
cuda("cuMemcpyDtoHAsync_v2", c, c_uint64(device), c_size_t(8), stream)
cuda("cuStreamWriteValue32_v2", other, c_uint64(flag), 1, 0)
cuda("cuStreamSynchronize", stream)
print(taken[:].decode().strip(), seen)
cuda("cuGraphLaunch", exec_, stream)
cuda("cuStreamSynchronize", stream)
print(cuda.download(device, 8).decode().strip(), seen)
"""
    assert said(server, source) == ["first [1]", "second [1, 2]"]


def test_a_copy_may_change_its_length(server: str) -> None:
    """The worker then makes a new executable graph, behind the launches of the old one."""
    source = """
stream, graph, device = made("cuStreamCreate", 1), made("cuGraphCreate", 0), cuda.alloc(1 << 20)
(a, given), (b, got) = pinned(1 << 20), pinned(1 << 20)
given.raw = os.urandom(1 << 20)
up = add(graph, "cuGraphAddMemcpyNode", copy(device, a, 1000), ctx=1)
down = add(graph, "cuGraphAddMemcpyNode", copy(b, device, 1 << 20), up, ctx=1)
exec_ = ready(graph)
cuda.upload(device, bytes(1 << 20))
for turn in range(20):
    cuda("cuGraphLaunch", exec_, stream)
    size = 1000 * (turn + 2)
    cuda("cuGraphExecMemcpyNodeSetParams", exec_, up, byref(copy(device, a, size)), context)
cuda("cuGraphLaunch", exec_, stream)
cuda("cuStreamSynchronize", stream)
print(got[:size] == given[:size], got[size:] == bytes((1 << 20) - size))
"""
    assert said(server, source) == ["True True"]


def test_a_graph_is_drawn(server: str, tmp_path: Path) -> None:
    source = f"""
graph = made("cuGraphCreate", 0)
first = made("cuGraphAddEmptyNode", graph, None, c_size_t(0))
made("cuGraphAddEmptyNode", graph, byref(first), c_size_t(1))
cuda("cuGraphDebugDotPrint", graph, {str(tmp_path / "graph.dot")!r}.encode(), 0)
"""
    said(server, source)
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert text.count("->") == 1


def test_user_objects_end_with_what_holds_them(server: str) -> None:
    source = """
import threading
gone = threading.Event()
end = FUNCTION(lambda data: gone.set() if data == 5 else None)
thing = made("cuUserObjectCreate", c_void_p(5), end, 1, 1)
graph = made("cuGraphCreate", 0)
cuda("cuGraphRetainUserObject", graph, thing, 1, 1)  # MOVE
exec_ = ready(graph)
cuda("cuGraphDestroy", graph)
print(gone.is_set())
cuda("cuGraphExecDestroy", exec_)
print(gone.wait(60))
"""
    assert said(server, source) == ["False", "True"]


def test_a_graph_whose_module_is_gone_is_refused(server: str) -> None:
    source = """
class Kernel(ctypes.Structure):
    _fields_ = ([("function", c_void_p), ("sizes", c_uint * 7), ("params", c_void_p),
                 ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p)])
EMPTY = b".version 7.0\\n.target sm_50\\n.address_size 64\\n.visible .entry name() { ret; }\\n"
module = made("cuModuleLoadData", EMPTY)
function = made("cuModuleGetFunction", module, b"name")
kernel = Kernel(function.value, (c_uint * 7)(1, 1, 1, 1, 1, 1, 0))
graph = made("cuGraphCreate", 0)
add(graph, "cuGraphAddKernelNode_v2", kernel)
exec_ = ready(graph)
cuda("cuGraphLaunch", exec_, None)
cuda.synchronize()
cuda("cuModuleUnload", module)
cuda("cuGraphLaunch", exec_, None)
print(cuda.result("cuCtxSynchronize"), cuda.result("cuCtxSynchronize"))
"""
    assert said(server, source) == ["400 0"]


def test_clusters_are_refused_by_a_kernel_node_as_by_a_launch(server: str) -> None:
    source = """
class Kernel(ctypes.Structure):
    _fields_ = ([("function", c_void_p), ("sizes", c_uint * 7), ("params", c_void_p),
                 ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p)])
EMPTY = b".version 7.0\\n.target sm_50\\n.address_size 64\\n.visible .entry name() { ret; }\\n"
function = made("cuModuleGetFunction", made("cuModuleLoadData", EMPTY), b"name")
graph = made("cuGraphCreate", 0)
sizes = (c_uint * 7)(2, 1, 1, 1, 1, 1, 0)
node = add(graph, "cuGraphAddKernelNode_v2", Kernel(function.value, sizes))
for attribute in (4, 11):  # CLUSTER_DIMENSION, PREFERRED_CLUSTER_DIMENSION
    for size in ((2, 1, 1), (1, 0, 1), (1, 1, 1)):
        value = (c_uint * 16)(*size)
        print(cuda.result("cuGraphKernelNodeSetAttribute", node, attribute, value), end=" ")
    cuda("cuGraphKernelNodeGetAttribute", node, attribute, value)
    print(list(value)[:3])
cuda("cuGraphLaunch", ready(graph), None)
cuda.synchronize()
"""
    assert said(server, source) == ["801 1 0 [1, 1, 1]"] * 2


def test_a_captured_launch_keeps_its_attributes(server: str) -> None:
    source = """
class Attribute(ctypes.Structure):
    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_int * 16)]
class Config(ctypes.Structure):
    _fields_ = [("sizes", c_uint * 7), ("stream", c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", c_uint)]
EMPTY = b".version 7.0\\n.target sm_50\\n.address_size 64\\n.visible .entry name() { ret; }\\n"
function = made("cuModuleGetFunction", made("cuModuleLoadData", EMPTY), b"name")
stream, graph = made("cuStreamCreate", 1), c_void_p()
given = (Attribute * 4)(Attribute(8, 0, (c_int * 16)(-3)), Attribute(4, 0, (c_int * 16)(1, 1, 1)),
                        Attribute(5, 0, (c_int * 16)(1)), Attribute(2, 0, (c_int * 16)(1)))
config = Config((c_uint * 7)(1, 1, 1, 1, 1, 1, 0), stream, given, 4)
cuda("cuStreamBeginCapture_v2", stream, 2)
cuda("cuLaunchKernelEx", byref(config), function, None, None)
cuda("cuStreamEndCapture", stream, byref(graph))
node, count = c_void_p(), c_size_t(1)
cuda("cuGraphGetNodes", graph, byref(node), byref(count))
for attribute in (8, 4, 5, 2, 14):  # PRIORITY, CLUSTER_DIMENSION, its policy, COOPERATIVE, CARVEOUT
    value = (c_int * 16)()
    cuda("cuGraphKernelNodeGetAttribute", node, attribute, value)
    print(list(value)[:2], end=" ")
cuda("cuGraphLaunch", ready(graph), stream)
print(cuda.result("cuStreamSynchronize", stream))
"""
    assert said(server, source) == ["[-3, 0] [1, 1] [1, 0] [1, 0] [0, 0] 0"]


def test_bad_handles_do_no_harm(server: str) -> None:
    source = """
graph, stream = made("cuGraphCreate", 0), made("cuStreamCreate", 0)
exec_ = ready(graph)
cuda("cuGraphExecDestroy", exec_)
for handle in (exec_, graph, stream, c_void_p(0), c_void_p(0x1234)):
    print(cuda.result("cuGraphLaunch", handle, stream),
          cuda.result("cuGraphUpload", handle, stream),
          cuda.result("cuGraphExecDestroy", handle), end=" ")
print(cuda.result("cuGraphDestroy", stream), cuda.result("cuGraphDestroy", graph),
      cuda.result("cuGraphDestroy", graph))
"""
    assert said(server, source) == ["1 1 1 " * 5 + "1 0 1"]


def test_a_forked_child_has_graphs_of_its_own(server: str) -> None:
    source = """
graph, stream = made("cuGraphCreate", 0), made("cuStreamCreate", 1)
cuda("cuStreamBeginCapture_v2", stream, 0)
child = os.fork()
if child == 0:
    cuda.open()
    own = made("cuGraphCreate", 0)
    os._exit(0 if cuda.alloc(64) and cuda.result("cuGraphDestroy", own) == 0 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
cuda("cuStreamEndCapture", stream, byref(c_void_p()))
"""
    assert said(server, source) == ["0"]


def test_a_refused_instantiation_harms_no_later_call(server: str) -> None:
    """A graph with conditional nodes is instantiated once."""
    source = """
graph, node, handle = made("cuGraphCreate", 0), c_void_p(), c_uint64()
cuda("cuGraphConditionalHandleCreate", byref(handle), graph, context, 1, 1)
words = (c_uint64 * 32)(13, 0, handle.value, 1 << 32, 0, context.value)
cuda("cuGraphAddNode_v2", byref(node), graph, None, None, c_size_t(0), byref(words))
made("cuGraphInstantiateWithFlags", graph, c_uint64(0))
assert cuda.result("cuGraphInstantiateWithFlags", byref(c_void_p()), graph, c_uint64(0)) == 801
cuda.synchronize()
memory = cuda.alloc(4096)
assert len(cuda.download(memory, 16)) == 16
policy = (c_uint64 * 8)()
cuda("cuStreamGetAttribute", None, 3, byref(policy))
assert policy[0] & 0xFFFFFFFF == 1, "CU_SYNC_POLICY_AUTO"
"""
    assert said(server, source) == []


def test_an_event_of_other_processes_is_refused_in_a_graph(server: str) -> None:
    """They would not learn of its records."""
    source = """
event, stream, graph = c_void_p(), made("cuStreamCreate", 1), c_void_p()
cuda("cuEventCreate", byref(event), 4 | 2)  # INTERPROCESS, DISABLE_TIMING
for call in ("cuGraphAddEventRecordNode", "cuGraphAddEventWaitNode"):
    own, node = made("cuGraphCreate", 0), c_void_p()
    cuda(call, byref(node), own, None, c_size_t(0), event)
    print(cuda.result("cuGraphInstantiateWithFlags", byref(c_void_p()), own, c_uint64(0)))
cuda("cuStreamBeginCapture_v2", stream, 2)
cuda("cuStreamWaitEvent", stream, event, 1)  # EXTERNAL
cuda("cuStreamEndCapture", stream, byref(graph))
print(cuda.result("cuGraphInstantiateWithFlags", byref(c_void_p()), graph, c_uint64(0)))
cuda.synchronize()
"""
    assert said(server, source) == ["801", "801", "801"]
