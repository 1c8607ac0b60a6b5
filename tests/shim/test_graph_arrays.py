"""Copies with arrays as nodes of graphs, as a program sees them. `box_graphs` has their bytes in
all shapes (test_arrays.py).
"""

from __future__ import annotations

from helpers import clients

START = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from helpers import boxes
from helpers.boxes import ARRAY, DEVICE, HOST, LAYERED, NV12, Box, PeerBox, shape
cuda.open()
context, stream, graph, exec_ = c_void_p(), c_void_p(), c_void_p(), c_void_p()
cuda("cuCtxGetCurrent", byref(context))
cuda("cuStreamCreate", byref(stream), 1)

def array(*sizes, **more):
    return boxes.create(cuda, shape(*sizes, **more))

def pinned(size):
    memory = c_void_p()
    cuda("cuMemHostAlloc", byref(memory), c_size_t(size), 0)
    return (ctypes.c_char * size).from_address(memory.value)

def capture(mode=2):
    cuda("cuStreamBeginCapture_v2", stream, mode)

def captured():
    cuda("cuStreamEndCapture", stream, byref(graph))
    count, nodes = c_size_t(8), (c_void_p * 8)()
    cuda("cuGraphGetNodes", graph, nodes, byref(count))
    return [c_void_p(node) for node in list(nodes)[:count.value]]

def params(node):
    box = Box()
    cuda("cuGraphMemcpyNodeGetParams", node, byref(box))
    return box

def node(box):
    made = c_void_p()
    status = cuda.result("cuGraphAddMemcpyNode", byref(made), graph, None, c_size_t(0),
                         byref(box), context)
    return status, made

def ready():
    cuda("cuGraphInstantiateWithFlags", byref(exec_), graph, c_uint64(0))

def launch():
    cuda("cuGraphLaunch", exec_, stream)
    return cuda.result("cuStreamSynchronize", stream)

def row(width, to, source, **more):
    return Box(width=width, height=1, depth=1, dsttype=ARRAY, dstarray=to, srctype=ARRAY,
               srcarray=source, **more)
"""


def _said(server: str, source: str) -> list[str]:
    code, output, errors = clients.run(server, START + source)
    assert code == 0, errors
    return output.split("\n")[:-1]


def test_copies_of_one_row_are_captured(server: str) -> None:
    source = """
one, given, got = array(64), pinned(64), pinned(64)
capture()
cuda("cuMemcpyHtoAAsync_v2", c_void_p(one), c_size_t(16), given, c_size_t(48), stream)
cuda("cuMemcpyAtoHAsync_v2", got, c_void_p(one), c_size_t(24), c_size_t(40), stream)
into, out = map(params, captured())
print(into.srctype, into.srchost == ctypes.addressof(given), into.dsttype, into.dstarray == one,
      into.dstx, into.width, into.height, into.depth)
print(out.srctype, out.srcarray == one, out.srcx, out.dsttype,
      out.dsthost == ctypes.addressof(got), out.width)
ready()
for turn in range(3):
    given[:] = bytes((turn + n) % 256 for n in range(64))
    print(launch(), got[:40] == given[8:48], got[40:] == bytes(24))
"""
    ran = ["0 True True"] * 3
    assert _said(server, source) == ["1 True 3 True 16 48 1 1", "3 True 24 1 True 40", *ran]


def test_slices_between_contexts_are_captured(server: str) -> None:
    """cuMemcpy3DPeerAsync runs with the graph, not during the capture."""
    source = """
size = 16 * 8 * 5
first, second = array(16, 8, 5), array(16, 8, 5, flags=LAYERED)
memory = cuda.alloc(size)
data = bytes(range(128)) * 5
cuda.upload(memory, data)
def peer(**sides):
    return PeerBox(width=16, height=8, depth=5, srccontext=context, dstcontext=context, **sides)
into = peer(srctype=DEVICE, srcdevice=memory, srcpitch=16, srcrows=8, dsttype=ARRAY, dstarray=first)
over = peer(srctype=ARRAY, srcarray=first, dsttype=ARRAY, dstarray=second)
out = peer(srctype=ARRAY, srcarray=second, dsttype=DEVICE, dstdevice=memory, dstpitch=16, dstrows=8)
capture()
for copy in (into, over, out):
    cuda("cuMemcpy3DPeerAsync", byref(copy), stream)
cuda("cuMemsetD8Async", c_uint64(memory), 0, c_size_t(size), stream)
cuda("cuMemcpy3DPeerAsync", byref(out), stream)
print(len(captured()), cuda.download(memory, size) == data)
ready()
print(launch(), cuda.download(memory, size) == data)
"""
    assert _said(server, source) == ["5 True", "0 True"]


def test_a_copy_that_waits_ends_a_capture(server: str) -> None:
    source = """
one, data = array(64), pinned(64)
for mode in (0, 1):
    capture(mode)
    print(cuda.result("cuMemcpyHtoA_v2", c_void_p(one), c_size_t(0), data, c_size_t(64)),
          cuda.result("cuStreamEndCapture", stream, byref(graph)))
capture()
print(cuda.result("cuMemcpyHtoA_v2", c_void_p(one), c_size_t(0), data, c_size_t(64)))
print(len(captured()))
"""
    assert _said(server, source) == ["900 901", "900 901", "0", "0"]


def test_what_an_array_does_not_hold_is_refused_at_the_call(server: str) -> None:
    source = """
cuda("cuGraphCreate", byref(graph), 0)
one, two, planes = array(64, 8), array(64), array(64, 8, format=NV12)
for bad in (
    row(65, one, two), row(64, one, two, dstx=1), row(4, one, two, dsty=8), row(4, one, two, srcz=1),
    row(4, planes, two), row(4, one, two, srclevel=1), row(4, one, 0x1234), row(4, one, None),
    row(0, one, two),
):
    print(node(bad)[0], end=" ")
gone = array(64)
cuda("cuArrayDestroy", c_void_p(gone))
status, good = node(row(4, one, two))
print(node(row(4, one, gone))[0], status)
print(cuda.result("cuGraphMemcpyNodeSetParams", good, byref(row(65, one, two))))
ready()
memory = cuda.alloc(64)
linear = Box(width=4, height=1, depth=1, srctype=DEVICE, srcdevice=memory, dsttype=ARRAY,
             dstarray=one)
for change in (row(65, one, two), row(4, one, gone), linear, row(8, one, two, dsty=7)):
    print(cuda.result("cuGraphExecMemcpyNodeSetParams", exec_, good, byref(change), context))
print(launch())
"""
    assert _said(server, source) == [
        "1 1 1 1 1 1 400 400 1 400 0",
        *("1", "1", "400", "1", "0", "0"),
    ]


def test_a_graph_whose_array_is_gone_is_refused(server: str) -> None:
    source = """
cuda("cuGraphCreate", byref(graph), 0)
one, two, three = array(64), array(64), array(64)
node(row(64, one, two))
ready()
print(launch())
cuda("cuArrayDestroy", c_void_p(two))
cuda("cuGraphLaunch", exec_, stream)
print(cuda.result("cuStreamSynchronize", stream), cuda.result("cuStreamSynchronize", stream))
print(cuda.result("cuGraphInstantiateWithFlags", byref(c_void_p()), graph, c_uint64(0)))
count, nodes = c_size_t(1), (c_void_p * 1)()
cuda("cuGraphGetNodes", graph, nodes, byref(count))
other = row(64, one, three)
cuda("cuGraphExecMemcpyNodeSetParams", exec_, c_void_p(nodes[0]), byref(other), context)
print(launch())
"""
    assert _said(server, source) == ["0", "400 0", "400", "0"]
