"""Managed memory over every transport: host and device use it at one address."""

from __future__ import annotations

import signal

import pytest
from helpers import clients
from helpers.ends import plant

START = """
import ctypes, faulthandler, os, signal, threading
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from helpers.shared_words import SharedWords
cuda.open()

def managed(size, flags=1):
    address = c_uint64()
    cuda("cuMemAllocManaged", byref(address), c_size_t(size), flags)
    return address.value

def words(count, seed=1):
    address = managed(count * 4)
    return SharedWords(cuda, address, address, count, seed)

class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]

GPU, HOST = Location(1, 0), Location(2, 0)

def range_attribute(number, address, size, count=1):
    values = (c_int * count)()
    cuda("cuMemRangeGetAttribute", values, c_size_t(4 * count), number, c_uint64(address), c_size_t(size))
    return values[:] if count > 1 else values[0]

def pointer_attribute(kind, number, address):
    value = kind()
    cuda("cuPointerGetAttribute", byref(value), number, c_uint64(address))
    return value.value

def attribute(number):
    value = c_int()
    cuda("cuDeviceGetAttribute", byref(value), number, 0)
    return value.value
"""


def check(server: str, source: str, **extra: str) -> None:
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n", **extra)
    assert (code, output) == (0, "ok\n"), errors


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_program_finds_what_it_must(server: str, seed: int) -> None:
    check(server, f"words(40000, {seed}).run(120)")


def test_what_the_host_writes_behind_a_launch_is_for_the_next_one(server: str) -> None:
    """The launches wait for a value, so both are outstanding while the host writes."""
    check(
        server,
        """
w = words(20000)
flag = cuda.alloc(4)
cuda.upload(flag, bytes(4))
gate, other = w.streams[1], w.streams[2]
cuda("cuStreamWaitValue32_v2", gate, c_uint64(flag), 1, 0)
w.launch(10000, 10000, 5, gate)
# The second half is the device's now. The host goes on with the first one, in the same page too.
w.words[0:5000] = [3] * 5000
w.words[9998] = 4
w.launch(0, 10000, 1, other)
cuda("cuStreamSynchronize", other)
assert w.words[0:5000] == [4] * 5000 and w.words[9997:10000] == [1, 5, 1], w.words[9997:10000]
cuda("cuStreamWriteValue32_v2", other, c_uint64(flag), 1, 0)
cuda("cuCtxSynchronize")
assert w.words[10000:20000] == [5] * 10000 and w.words[9998] == 5
""",
    )


def test_a_host_function_uses_it_between_two_kernels(server: str) -> None:
    check(
        server,
        """
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
w = words(30000)
seen = []
def between(data):
    seen.append((w.words[0], w.words[29999]))
    w.words[100] = 1000
    w.words[25000:25010] = [7] * 10
function = FUNCTION(between)
for turn in range(5):
    stream = w.streams[1]
    cuda("cuMemsetD32Async", c_uint64(w.device), turn, c_size_t(30000), stream)
    w.launch(0, 30000, 10, stream)
    cuda("cuLaunchHostFunc", stream, function, None)
    w.launch(0, 30000, 1, stream)
    cuda("cuStreamSynchronize", stream)
    assert seen == [(turn + 10, turn + 10)], seen
    assert w.words[99:102] == [turn + 11, 1001, turn + 11], w.words[99:102]
    assert w.words[24999:25011] == [turn + 11] + [8] * 10 + [turn + 11]
    seen.clear()
""",
    )


def test_copies_take_it_on_either_side(server: str) -> None:
    check(
        server,
        """
size = 1 << 20
a, b, plain = managed(size), managed(size), cuda.alloc(size)
here = (ctypes.c_char * size).from_address(a)
there = (ctypes.c_char * size).from_address(b)
here.raw = b"x" * size
ordinary = ctypes.create_string_buffer(size)
n = c_size_t(size)
cuda("cuMemcpyHtoD_v2", c_uint64(plain), c_void_p(a), n)      # named as host memory
here.raw = b"y" * size  # the copy has its bytes
cuda("cuMemcpyDtoH_v2", c_void_p(b), c_uint64(plain), n)
assert there.raw == b"x" * size
cuda("cuMemcpy", c_uint64(b), c_uint64(a), n)
assert there.raw == b"y" * size
cuda("cuMemcpyDtoH_v2", ordinary, c_uint64(b), n)
assert ordinary.raw == b"y" * size
cuda("cuMemcpy", c_uint64(a), c_uint64(ctypes.addressof(ordinary)), n)
cuda("cuMemsetD8_v2", c_uint64(b), 0x7a, n)
assert here.raw == ordinary.raw and there.raw == b"z" * size
""",
    )


def test_attributes_say_what_holds(server: str) -> None:
    check(
        server,
        """
assert [attribute(n) for n in (83, 89, 101, 88, 100)] == [1, 0, 0, 0, 0]
assert [attribute(n) for n in (19, 91, 99, 113, 41)] == [1, 0, 1, 0, 1]
address = managed(5000)
assert pointer_attribute(c_uint, 8, address + 9) == 1      # IS_MANAGED
assert pointer_attribute(c_uint, 2, address) == 2          # device memory
assert pointer_attribute(c_uint64, 3, address + 9) == address + 9
assert pointer_attribute(c_uint64, 4, address + 9) == address + 9
assert pointer_attribute(c_size_t, 12, address) == 5000
assert pointer_attribute(c_uint, 8, cuda.alloc(64)) == 0
""",
    )


def test_advice_and_prefetches_are_remembered(server: str) -> None:
    check(
        server,
        """
stream = words(4).streams[1]
address = managed(1 << 16)
def advise(advice, where, offset=0, size=1 << 16):
    return cuda.result("cuMemAdvise_v2", c_uint64(address + offset), c_size_t(size), advice, where)
def prefetch(where, size=1 << 16):
    return cuda.result("cuMemPrefetchAsync_v2", c_uint64(address), c_size_t(size), where, 0, stream)
assert [advise(1, GPU), advise(3, HOST), advise(5, GPU, size=4096), advise(5, HOST)] == [0] * 4
assert range_attribute(1, address, 1 << 16) == 1
assert range_attribute(2, address, 1 << 16) == -1 and range_attribute(5, address, 8) == 2
assert range_attribute(3, address, 4096, 3) == [0, -1, -2]
assert range_attribute(3, address, 1 << 16, 3) == [-1, -2, -2]
assert range_attribute(4, address, 8) == -2
assert prefetch(GPU) == 0 and range_attribute(4, address, 1 << 16) == 0
assert prefetch(HOST, 4096) == 0 and range_attribute(4, address, 4096) == -1
assert range_attribute(4, address, 1 << 16) == -2
assert [advise(2, GPU), advise(4, GPU), advise(6, HOST)] == [0] * 3
assert range_attribute(1, address, 8) == 0 and range_attribute(2, address, 8) == -2
# Unknown devices, memory that is not managed, and ranges that leave it.
assert [advise(3, Location(1, 7)), advise(3, Location(0, 0)), prefetch(Location(1, 7))] == [101] * 3
assert [advise(1, GPU, 4096), advise(7, GPU), advise(1, GPU, size=0)] == [1] * 3
plain = cuda.alloc(4096)
assert cuda.result("cuMemAdvise_v2", c_uint64(plain), c_size_t(8), 1, GPU) == 1
cuda.free(address)
assert advise(1, GPU) == 1
""",
    )


def test_attachments_are_accepted(server: str) -> None:
    check(
        server,
        """
w = words(1000)
def attach(stream, address, length, flags):
    return cuda.result("cuStreamAttachMemAsync", stream, c_uint64(address), c_size_t(length), flags)
assert attach(w.streams[1], w.device, 0, 4) == 0 and attach(w.streams[1], w.device, 4000, 4) == 0
w.run(20)
assert attach(None, w.device, 0, 1) == 0 and attach(w.streams[1], w.device, 0, 2) == 0
w.run(20)
assert attach(None, w.device, 0, 4) == 1 and attach(w.streams[1], w.device, 8, 4) == 1
assert attach(w.streams[1], w.device + 4, 0, 4) == 1 and attach(w.streams[1], w.device, 0, 3) == 1
assert attach(w.streams[1], cuda.alloc(64), 0, 4) == 1 and attach(c_void_p(99), w.device, 0, 4) == 400
assert cuda.result("cuMemAllocManaged", byref(c_uint64()), c_size_t(64), 4) == 1
managed(64, 2)
""",
    )


def test_it_is_charged_as_device_memory(server: str) -> None:
    check(
        server,
        """
free, total = cuda.memory()
address = managed(32 << 20)
assert free - cuda.memory()[0] >= 32 << 20
assert cuda.result("cuMemAllocManaged", byref(c_uint64()), c_size_t(total), 1) == 2
cuda.free(address)
assert cuda.result("cuMemFree_v2", c_uint64(address)) == 1
cuda("cuCtxSynchronize")
again = managed(total - (16 << 20))
(ctypes.c_char * 9).from_address(again)[:] = b"it is new"
""",
        RGPU_MEMORY=str(64 << 20),
        RGPU_LEASE="managed-quota",
    )


def test_threads_touch_the_same_pages(server: str) -> None:
    check(
        server,
        """
w = words(64 * 1024)
for turn in range(1, 6):
    w.launch(0, 64 * 1024, 1, w.streams[1])
    cuda("cuStreamSynchronize", w.streams[1])
    wrong = []
    def look(part):
        for first in range(0, 64 * 1024, 1024):
            if w.words[first + part] != turn: wrong.append((first, part))
    threads = [threading.Thread(target=look, args=(part,)) for part in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong, wrong
""",
    )


def test_destroying_the_context_takes_it_away(server: str) -> None:
    plant(signal.SIGSEGV)
    code, output, errors = clients.run(
        server,
        START
        + """
context = c_void_p()
cuda("cuCtxCreate_v2", byref(context), 0, 0)
address = managed(8192)
text = (ctypes.c_char * 8192).from_address(address)
text[:] = b"a" * 8192
cuda("cuCtxDestroy_v2", context)
print("gone", flush=True)
text[0]
""",
        RGPU_LEASE="killed",
    )
    assert (code, output) == (-11, "gone\n"), errors


def test_a_copy_of_boxes_between_contexts_sends_what_the_host_has_written(server: str) -> None:
    check(
        server,
        """
from helpers.boxes import PeerBox
mine, other, size = c_void_p(), c_void_p(), 40000
cuda("cuCtxGetCurrent", byref(mine))
source = managed(size)
cuda("cuCtxCreate_v2", byref(other), 0, 0)
target = cuda.alloc(size)
for turn in (1, 2):
    ctypes.memset(source, turn, size)
    box = PeerBox(width=size, height=1, depth=1, srctype=2, srcdevice=source, srccontext=mine,
                  dsttype=2, dstdevice=target, dstcontext=other)
    cuda("cuMemcpy3DPeer", byref(box))
    assert cuda.download(target, size) == bytes([turn]) * size
""",
    )
