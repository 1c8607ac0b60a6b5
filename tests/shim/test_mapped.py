"""Page-locked memory that is mapped to the device, over every transport: allocated by the driver,
or registered where the program has it.
"""

from __future__ import annotations

import pytest
from helpers import clients

START = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from helpers.shared_words import SharedWords
cuda.open()
PORTABLE, DEVICEMAP, WRITECOMBINED = 1, 2, 4

def device_pointer(host):
    address = c_uint64()
    cuda("cuMemHostGetDevicePointer_v2", byref(address), c_void_p(host), 0)
    return address.value

def mapped(size, flags=DEVICEMAP):
    memory = c_void_p()
    cuda("cuMemHostAlloc", byref(memory), c_size_t(size), flags)
    return memory.value

def register(size, flags=DEVICEMAP):
    # Neither its begin nor its end is that of a page, and other bytes are on both sides of it.
    around = ctypes.create_string_buffer(b"-" * (size + 200), size + 200)
    host = ctypes.addressof(around) + 100
    ctypes.memset(host, 0, size)
    cuda("cuMemHostRegister_v2", c_void_p(host), c_size_t(size), flags)
    return around, host

def pointer_attribute(kind, number, address):
    value = kind()
    cuda("cuPointerGetAttribute", byref(value), number, c_uint64(address))
    return value.value
"""


def check(server: str, source: str, **extra: str) -> None:
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n", **extra)
    assert (code, output) == (0, "ok\n"), errors


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_program_on_allocated_memory(server: str, seed: int) -> None:
    check(
        server,
        f"""
host = mapped(120000)
assert device_pointer(host + 8) == host + 8
SharedWords(cuda, host, host, 30000, {seed}).run(100)
cuda("cuMemFreeHost", c_void_p(host))
""",
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_program_on_registered_memory(server: str, seed: int) -> None:
    check(
        server,
        f"""
around, host = register(40000)
device = device_pointer(host)
assert device != host and device_pointer(host + 400) == device + 400
SharedWords(cuda, host, device, 10000, {seed}).run(100)
cuda("cuMemHostUnregister", c_void_p(host))
assert around.raw[:100] == b"-" * 100 and around.raw[-100:] == b"-" * 100
""",
    )


def test_host_and_kernel_write_beside_each_other(server: str) -> None:
    """The host may go on with other bytes while a kernel runs, even in the same page."""
    check(
        server,
        """
def beside(w):
    flag = cuda.alloc(4)
    cuda.upload(flag, bytes(4))
    busy, go = w.streams[1], w.streams[2]
    cuda("cuStreamWaitValue32_v2", busy, c_uint64(flag), 1, 0)
    w.launch(0, 500, 9, busy)
    w.words[500:1000] = list(range(500))
    assert cuda.result("cuStreamQuery", busy) == 600
    w.words[1001] = 77
    cuda("cuStreamWriteValue32_v2", go, c_uint64(flag), 1, 0)
    cuda("cuEventRecord", w.event, busy)
    cuda("cuEventSynchronize", w.event)
    assert w.words[:] == [9] * 500 + list(range(500)) + [0, 77], w.words[490:510]
    w.launch(0, 1002, 1, busy)
    cuda("cuCtxSynchronize")
    assert w.words[:] == [10] * 500 + list(range(1, 501)) + [1, 78]
host = mapped(1002 * 4)
beside(SharedWords(cuda, host, host, 1002, 1))
around, host = register(1002 * 4)
beside(SharedWords(cuda, host, device_pointer(host), 1002, 1))
""",
    )


def test_a_copy_reads_what_the_host_has_written_by_then(server: str) -> None:
    check(
        server,
        """
size = 1 << 20
host, target = mapped(size), cuda.alloc(size)
text = (ctypes.c_char * size).from_address(host)
stream = c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
flag = cuda.alloc(4)
cuda.upload(flag, bytes(4))
go = c_void_p()
cuda("cuStreamCreate", byref(go), 1)
cuda("cuStreamWaitValue32_v2", stream, c_uint64(flag), 1, 0)
cuda("cuMemcpyHtoDAsync_v2", c_uint64(target), c_void_p(host), c_size_t(size), stream)
text.raw = b"q" * size  # the stream has not come to the copy yet
cuda("cuStreamWriteValue32_v2", go, c_uint64(flag), 1, 0)
cuda("cuStreamSynchronize", stream)
assert cuda.download(target, size) == b"q" * size
cuda("cuMemsetD8_v2", c_uint64(target), 0x77, c_size_t(size))
cuda("cuMemcpyDtoHAsync_v2", c_void_p(host), c_uint64(target), c_size_t(size), stream)
cuda("cuStreamSynchronize", stream)
assert text.raw == b"w" * size
""",
    )


def test_a_host_function_uses_registered_memory(server: str) -> None:
    check(
        server,
        """
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
around, host = register(4000)
w = SharedWords(cuda, host, device_pointer(host), 1000, 1)
seen = []
def between(data):
    seen.append(w.words[0])
    w.words[1] = 100
function = FUNCTION(between)
stream = w.streams[1]
w.launch(0, 1000, 10, stream)
cuda("cuLaunchHostFunc", stream, function, None)
w.launch(0, 1000, 1, stream)
cuda("cuStreamSynchronize", stream)
assert seen == [10] and w.words[:3] == [11, 101, 11], (seen, w.words[:3])
""",
    )


def test_a_kernel_gets_page_locked_memory_by_its_host_address(server: str) -> None:
    """With unified addressing the program need not ask for a device address: Dr.Jit does not."""
    check(
        server,
        """
from helpers.shared_words import PTX
add = cuda.function(cuda.load(PTX), "add")
for size, at, flags in ((120000, 0, 0), (8192, 4096, PORTABLE)):
    memory = mapped(size, flags)
    words = (c_uint * 1000).from_address(memory + at)
    for turn in range(1, 4):
        words[:] = [turn * n for n in range(1000)]
        cuda.launch(add, 4, 64, memory + at, 1000, turn)
        cuda.synchronize()
        assert list(words) == [turn * n + turn for n in range(1000)]
    cuda("cuMemFreeHost", c_void_p(memory))
""",
    )


def test_the_kernel_of_a_graph_gets_page_locked_memory_by_its_host_address(server: str) -> None:
    check(
        server,
        """
from helpers.shared_words import PTX
class Node(ctypes.Structure):
    _fields_ = [("func", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
                ("params", ctypes.POINTER(c_void_p)), ("extra", c_void_p), ("kern", c_void_p),
                ("ctx", c_void_p)]
add = cuda.function(cuda.load(PTX), "add")
one, other = mapped(8192, 0), mapped(8192, PORTABLE)
words = [(c_uint * 1000).from_address(memory + 4096) for memory in (one, other)]
stream, graph, node, exec_ = c_void_p(), c_void_p(), c_void_p(), c_void_p()

def params(memory, value):
    params.values = [c_uint64(memory + 4096), c_uint64(1000), c_uint64(value)]
    pointers = (c_void_p * 3)(*map(ctypes.addressof, params.values))
    return Node(func=add, grid=(4, 1, 1), block=(64, 1, 1), params=pointers)

def run(want_one, want_other):
    words[0][:], words[1][:] = range(1000), range(1000)
    cuda("cuGraphLaunch", exec_, None)
    cuda.synchronize()
    for found, want in zip(words, (want_one, want_other)):
        assert list(found) == [n + want for n in range(1000)], (found[:3], want)

cuda("cuGraphCreate", byref(graph), 0)
cuda("cuGraphAddKernelNode_v2", byref(node), graph, None, c_size_t(0), byref(params(one, 5)))
found = Node()
cuda("cuGraphKernelNodeGetParams_v2", node, byref(found))
assert c_uint64.from_address(found.params[0]).value == one + 4096   # what the program gave
cuda("cuGraphInstantiateWithFlags", byref(exec_), graph, c_uint64(0))
run(5, 0)
cuda("cuGraphExecKernelNodeSetParams_v2", exec_, node, byref(params(other, 7)))
run(0, 7)
cuda("cuGraphKernelNodeSetParams_v2", node, byref(params(other, 9)))
cuda("cuGraphInstantiateWithFlags", byref(exec_), graph, c_uint64(0))
run(0, 9)
cuda("cuStreamCreate", byref(stream), 1)
cuda("cuStreamBeginCapture_v2", stream, 2)
launch = params(one, 3)
cuda("cuLaunchKernel", c_void_p(add), 4, 1, 1, 64, 1, 1, 0, stream, launch.params, None)
cuda("cuStreamEndCapture", stream, byref(graph))
cuda("cuGraphInstantiateWithFlags", byref(exec_), graph, c_uint64(0))
run(3, 0)
""",
    )


def test_calls_for_device_memory_take_page_locked_memory_by_its_host_address(server: str) -> None:
    """Sets, copies and values, at once and by a graph that a stream has captured: cuda.core fills
    page-locked buffers so.
    """
    check(
        server,
        """
memory = mapped(4096, 0)
words = (c_uint * 1024).from_address(memory)
there = cuda.alloc(4096)
stream, graph, exec_ = c_void_p(), c_void_p(), c_void_p()
cuda("cuStreamCreate", byref(stream), 1)

def at(word):
    return c_uint64(memory + 4 * word)

def set_and_write(value):
    cuda("cuMemsetD32Async", at(0), value, c_size_t(4), stream)
    cuda("cuMemsetD2D8Async", at(8), c_size_t(16), value, c_size_t(4), c_size_t(3), stream)
    cuda("cuStreamWriteValue32_v2", stream, at(30), value, 0)
    cuda("cuStreamWaitValue32_v2", stream, at(30), value, 1)

def check_set(value):
    cuda("cuStreamSynchronize", stream)
    bytes_ = value * 0x01010101
    assert words[0:5] == [value] * 4 + [7], words[0:5]
    assert words[8:18] == [bytes_, 7, 7, 7, bytes_, 7, 7, 7, bytes_, 7], words[8:18]
    assert words[30] == value

words[:] = [7] * 1024
set_and_write(5)
check_set(5)
cuda("cuStreamBeginCapture_v2", stream, 2)
set_and_write(6)
cuda("cuMemcpyDtoDAsync_v2", at(100), at(0), c_size_t(16), stream)
cuda("cuMemcpyDtoDAsync_v2", c_uint64(there), at(100), c_size_t(16), stream)
cuda("cuStreamEndCapture", stream, byref(graph))
cuda("cuGraphInstantiateWithFlags", byref(exec_), graph, c_uint64(0))
assert words[0] == 5                                            # nothing has run
cuda("cuGraphLaunch", exec_, stream)
check_set(6)
assert words[99:105] == [7, 6, 6, 6, 6, 7]
assert cuda.download(there, 16) == bytes(words)[:16]

cuda("cuMemsetD16_v2", at(200), 0x1234, c_size_t(3))
assert bytes(words)[800:808] == bytes.fromhex("341234123412") + bytes(2), bytes(words)[798:810]
cuda("cuMemcpyHtoD_v2", at(300), b"from the host!!!", c_size_t(16))
cuda("cuMemcpyDtoD_v2", c_uint64(there), at(300), c_size_t(16))
assert cuda.download(there, 16) == b"from the host!!!", (cuda.download(there, 16), words[298:306])
back = ctypes.create_string_buffer(16)
cuda("cuMemcpyDtoH_v2", back, at(300), c_size_t(16))
assert back.raw == b"from the host!!!"
# What does not lie in one allocation is refused, as ever.
assert cuda.result("cuMemsetD8_v2", at(1023), 0, c_size_t(5)) == 1
assert cuda.result("cuMemcpyDtoD_v2", c_uint64(there), at(1023), c_size_t(8)) == 1
""",
    )


def test_flags_and_attributes(server: str) -> None:
    check(
        server,
        """
for flags in (DEVICEMAP, DEVICEMAP | PORTABLE, DEVICEMAP | WRITECOMBINED):
    host = mapped(5000, flags)
    found = c_uint()
    cuda("cuMemHostGetFlags", byref(found), c_void_p(host))
    assert found.value == flags
    assert pointer_attribute(c_uint, 2, host + 9) == 1     # host memory
    assert pointer_attribute(c_uint64, 3, host + 9) == host + 9
    assert pointer_attribute(c_uint64, 4, host + 9) == host + 9
    assert pointer_attribute(c_uint, 8, host) == 0
    cuda("cuMemFreeHost", c_void_p(host))
    assert cuda.result("cuMemFreeHost", c_void_p(host)) == 1
around, host = register(5000)
device = pointer_attribute(c_uint64, 3, host + 9) - 9    # as cuMemHostGetDevicePointer
assert device_pointer(host) == device
pinned = mapped(5000, PORTABLE)
assert pointer_attribute(c_uint64, 3, pinned + 9) == device_pointer(pinned) + 9
assert pointer_attribute(c_uint64, 4, device_pointer(pinned) + 9) == pinned + 9
cuda("cuMemFreeHost", c_void_p(pinned))
assert pointer_attribute(c_uint64, 4, device + 9) == host + 9
assert pointer_attribute(c_uint, 2, device) == 1
assert cuda.result("cuMemFree_v2", c_uint64(device)) == 1
assert cuda.result("cuMemHostGetFlags", byref(c_uint()), c_void_p(host)) == 1
cuda("cuMemHostUnregister", c_void_p(host))
assert cuda.result("cuMemHostGetDevicePointer_v2", byref(c_uint64()), c_void_p(host), 0) == 1
assert cuda.result("cuMemcpyDtoH_v2", c_void_p(host), c_uint64(device), c_size_t(8)) == 1
# What the device may not write, and memory of another device.
assert cuda.result("cuMemHostRegister_v2", c_void_p(host), c_size_t(8), 8) == 801
assert cuda.result("cuMemHostRegister_v2", c_void_p(host), c_size_t(8), 4) == 801
assert cuda.result("cuMemHostGetDevicePointer_v2", byref(c_uint64()), c_void_p(host), 0) == 1
""",
    )


def test_it_is_charged_to_the_lease(server: str) -> None:
    """The device has an image of the memory, so it is charged as device memory."""
    check(
        server,
        """
free, total = cuda.memory()
host = mapped(16 << 20)
around, registered = register(8 << 20)
assert free - cuda.memory()[0] >= 16 << 20
device_pointer(registered)
assert free - cuda.memory()[0] >= 24 << 20
memory = c_void_p()
assert cuda.result("cuMemHostAlloc", byref(memory), c_size_t(total), DEVICEMAP) == 2
cuda("cuMemHostAlloc", byref(memory), c_size_t(total), 0)     # only the client's
cuda("cuMemFreeHost", c_void_p(host))
cuda("cuMemHostUnregister", c_void_p(registered))
cuda("cuCtxSynchronize")
assert free - cuda.memory()[0] < 2 << 20
""",
        RGPU_MEMORY=str(64 << 20),
        RGPU_LEASE="mapped-quota",
    )


@pytest.mark.parametrize("waits", ["before the write", "behind the write"])
def test_a_stream_waits_for_a_value_in_page_locked_memory(server: str, waits: str) -> None:
    """Also without DEVICEMAP: with unified addressing the device sees all of it."""
    check(
        server,
        f"""
stream = c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
word = c_uint.from_address(mapped(64, 0))
def begin():
    address = c_uint64(ctypes.addressof(word))
    cuda("cuStreamWaitValue32_v2", stream, address, 5, 0)
if "{waits}" == "before the write":
    begin()
    assert cuda.result("cuStreamQuery", stream) == 600
    word.value = 5
else:
    word.value = 5
    begin()
cuda("cuStreamSynchronize", stream)
""",
    )


def test_memory_in_use_gets_what_was_written_before_it_is_unregistered(server: str) -> None:
    check(
        server,
        """
from helpers.shared_words import PTX
add = cuda.function(cuda.load(PTX), "add")
around, host = register(4000)
cuda.launch(add, 4, 64, device_pointer(host), 1000, 7)
cuda("cuMemHostUnregister", c_void_p(host))
assert list((c_uint * 1000).from_address(host)) == [7] * 1000
""",
    )


def test_memory_that_kernels_cannot_write_is_not_registered(server: str) -> None:
    check(
        server,
        """
import mmap
library = ctypes.CDLL(None)
library.mmap.restype = c_void_p
library.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, ctypes.c_long]
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
read_only = library.mmap(None, 8192, mmap.PROT_READ, flags, -1, 0)
for address in (4096, read_only):
    assert cuda.result("cuMemHostRegister_v2", c_void_p(address), c_size_t(8192), DEVICEMAP) == 1
""",
    )
