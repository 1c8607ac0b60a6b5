"""Batches of copies and memory operations, events of contexts, copies between contexts, and the
log, over every transport.
"""

from __future__ import annotations

from helpers import clients
from helpers.server import Server

START = """
import ctypes, os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from helpers import batches
from helpers.batches import ANY, AT_CALL, BARRIER, FLUSH, IN_STREAM, WAIT_32, WRITE_32, WRITE_64
cuda.open()
mine = c_void_p()
cuda("cuCtxGetCurrent", byref(mine))

def stream(flags=1):
    made = c_void_p()
    cuda("cuStreamCreate", byref(made), flags)
    return made

def event():
    made = c_void_p()
    cuda("cuEventCreate", byref(made), 0)
    return made

def context():
    made = c_void_p()
    cuda("cuCtxCreate_v2", byref(made), 0, 0)
    return made

def pinned(size):
    memory = c_void_p()
    cuda("cuMemHostAlloc", byref(memory), c_size_t(size), 0)
    return memory.value

def zeros(size):
    place = cuda.alloc(size)
    cuda("cuMemsetD8_v2", c_uint64(place), 0, c_size_t(size))
    cuda("cuCtxSynchronize")
    return place

def wait(on, flag):
    cuda("cuStreamWaitValue32_v2", on, c_uint64(flag), 1, 1)

def write(on, flag):
    cuda("cuStreamWriteValue32_v2", on, c_uint64(flag), 1, 0)
"""


def check(server: str, source: str) -> None:
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n")
    assert (code, output) == (0, "ok\n"), errors


def test_operations_of_a_batch(server: str) -> None:
    check(
        server,
        """
words, one, two = zeros(64), stream(), stream()
waits = [(WAIT_32, words, 1, 1), (WRITE_32, words + 4, 7, 0), (BARRIER, 0, 0, 0)]
assert batches.operations(cuda, one, [*waits, (WRITE_64, words + 8, 1 << 40, 1)]) == 0
assert cuda.result("cuStreamQuery", one) == 600
good = (WRITE_32, words, 1, 0)
for bad, result in (((FLUSH, 0, 0, 0), 801), ((WAIT_32, words, 0, 1 << 30), 801),
                    ((WAIT_32, words, 0, 8), 1), ((WRITE_32, words + 2, 0, 0), 1),
                    ((WRITE_32, words + 64, 0, 0), 1), ((WRITE_32, words, 0, 2), 1),
                    ((BARRIER, 0, 0, 2), 1), ((9, words, 0, 0), 1)):
    assert batches.operations(cuda, two, [good, bad]) == result, bad
cuda("cuStreamSynchronize", two)
assert cuda.result("cuStreamQuery", one) == 600, "a refused batch has written nothing"
assert batches.operations(cuda, two, [good]) == 0
cuda("cuStreamSynchronize", one)
assert cuda.download(words, 16) == bytes([1, 0, 0, 0, 7]) + bytes(8) + bytes([1, 0, 0])
""",
    )


def test_copies_of_a_batch(server: str) -> None:
    check(
        server,
        """
size = 300_000
work, first, second = stream(), cuda.alloc(size), cuda.alloc(size)
data, back, memory = ctypes.create_string_buffer(os.urandom(size), size), bytearray(size), pinned(size)
there = ctypes.addressof((ctypes.c_char * size).from_buffer(back))
up = (first, ctypes.addressof(data), size)
assert batches.copies(cuda, work, [up]) == 0
assert batches.copies(cuda, work, [(second, first, size)], [(0, ANY)]) == 0
assert batches.copies(cuda, work, [(memory, second, size), (there, second, size)], [(0, IN_STREAM), (1, ANY)]) == 0
cuda("cuStreamSynchronize", work)
assert bytes(back) == data.raw == ctypes.string_at(memory, size)
other = ctypes.create_string_buffer(size)
assert batches.copies(cuda, work, [(ctypes.addressof(other), memory, size)]) == 0
cuda("cuStreamSynchronize", work)
assert other.raw == data.raw
for orders in ([(1, ANY)], [(0, ANY), (0, ANY)], [(0, ANY), (1, ANY)], [(0, 0)], [(0, 4)]):
    assert batches.copies(cuda, work, [up], orders) == 1, orders
assert batches.copies(cuda, work, [up, (first, second, 0)]) == 1
assert batches.copies(cuda, work, [up, (first + 1, second, size)]) == 1
assert batches.copies(cuda, None, [up]) == 1
assert batches.copies(cuda, c_void_p(0x7777), [up]) == 400
""",
    )


def test_when_the_source_of_a_copy_is_read(server: str) -> None:
    """In stream order it is read after the host has changed it, at the call before."""
    check(
        server,
        """
work, other, flag, place = stream(), stream(), zeros(4), zeros(24)
memory, plain = pinned(64), ctypes.create_string_buffer(b"a" * 8, 8)
ctypes.memset(memory, 1, 64)
wait(work, flag)
assert batches.copies(cuda, work, [(place, memory, 8)], [(0, IN_STREAM)]) == 0
assert batches.copies(cuda, work, [(place + 8, memory, 8)], [(0, AT_CALL)]) == 0
assert batches.copies(cuda, work, [(place + 16, ctypes.addressof(plain), 8)], [(0, IN_STREAM)]) == 0
ctypes.memset(memory, 2, 64)
plain.raw = b"b" * 8
write(other, flag)
cuda("cuStreamSynchronize", work)
assert cuda.download(place, 24) == b"\\2" * 8 + b"\\1" * 8 + b"b" * 8
""",
    )


def test_an_event_of_a_context_covers_all_its_streams(server: str) -> None:
    check(
        server,
        """
flag, place, done = zeros(4), zeros(4), event()
streams = [stream(), stream(0)]
cuda("cuCtxRecordEvent", mine, done)
cuda("cuEventSynchronize", done)
wait(streams[0], flag)
cuda("cuCtxRecordEvent", mine, done)
assert cuda.result("cuEventQuery", done) == 600
assert cuda.result("cuStreamQuery", streams[1]) == 0, "an observer holds nothing up"
cuda("cuMemsetD32Async", c_uint64(place), 4, c_size_t(1), streams[1])
cuda("cuStreamSynchronize", streams[1])
other = context()
writer = stream()
assert cuda.result("cuCtxRecordEvent", other, done) == 400
assert cuda.result("cuCtxRecordEvent", c_void_p(0x7777), done) == 201
assert cuda.result("cuCtxWaitEvent", other, c_void_p(0x7777)) == 400
write(writer, flag)
cuda("cuEventSynchronize", done)
assert cuda.result("cuStreamQuery", streams[0]) == 0
""",
    )


def test_later_work_of_a_context_waits_for_an_event(server: str) -> None:
    check(
        server,
        """
flag, place, slow, done = zeros(4), zeros(4), stream(), event()
writer = stream()
wait(slow, flag)
cuda("cuEventRecord", done, slow)
other = context()
early = stream()
cuda("cuCtxWaitEvent", other, event())  # never recorded
cuda("cuMemsetD32Async", c_uint64(place), 4, c_size_t(1), early)
cuda("cuStreamSynchronize", early)
cuda("cuCtxWaitEvent", other, done)
late = stream()
for one in (early, late):
    cuda("cuMemsetD32Async", c_uint64(place), 5, c_size_t(1), one)
    assert cuda.result("cuStreamQuery", one) == 600
cuda("cuCtxSetCurrent", mine)
write(writer, flag)
for one in (early, late):
    cuda("cuStreamSynchronize", one)
assert cuda.download(place, 4) == bytes([5, 0, 0, 0])
""",
    )


def test_copies_between_contexts(server: str) -> None:
    check(
        server,
        """
size = 1 << 20
source, flag = cuda.alloc(size), zeros(4)
cuda("cuMemsetD8_v2", c_uint64(source), 3, c_size_t(size))
other = context()
target, busy = cuda.alloc(size), stream()
wait(busy, flag)
cuda("cuMemsetD8Async", c_uint64(target), 1, c_size_t(size), busy)
cuda("cuCtxSetCurrent", mine)
writer = stream()

def peer(to, source, count, *rest, call="cuMemcpyPeer"):
    sides = (c_uint64(to), other, c_uint64(source), mine)
    return cuda.result(call, *sides, c_size_t(count), *rest)

write(writer, flag)
assert peer(target, source, size) == 0
cuda("cuMemsetD8Async", c_uint64(target), 9, c_size_t(4), busy)
cuda("cuStreamSynchronize", busy)
assert cuda.download(target, size) == b"\\x09" * 4 + b"\\x03" * (size - 4)
assert peer(target + 8, target, 4, writer, call="cuMemcpyPeerAsync") == 0
cuda("cuStreamSynchronize", writer)
assert cuda.download(target, 12) == b"\\x09" * 4 + b"\\x03" * 4 + b"\\x09" * 4
assert peer(target + size - 4, source, 8) == 1
assert peer(77, source, 8) == 1
assert cuda.result("cuMemcpyPeer", c_uint64(target), c_void_p(0x77), c_uint64(source), mine, c_size_t(8)) == 201
assert cuda.result("cuCtxEnablePeerAccess", other, 0) == 217
assert cuda.result("cuCtxDisablePeerAccess", other) == 705
assert cuda.result("cuCtxEnablePeerAccess", mine, 0) == 201
assert cuda.result("cuCtxEnablePeerAccess", other, 1) == 1
""",
    )


def test_the_log_says_why_calls_fail(server: str) -> None:
    check(
        server,
        """
def dump(room=20_000):
    text, size = ctypes.create_string_buffer(room), c_size_t(room)
    cuda("cuLogsDumpToMemory", byref(start), text, byref(size), 0)
    assert len(text.value) == size.value
    return text.value.decode()

start = c_uint()
cuda("cuLogsCurrent", byref(start), 0)
assert dump() == ""
assert cuda.result("cuMemFree_v2", c_uint64(77)) == 1
assert cuda.result("cuMemAlloc_v2", byref(c_uint64()), c_size_t(1 << 40)) == 2
assert cuda.result("cuMulticastUnbind", c_uint64(0), 0, c_size_t(0), c_size_t(0)) == 801
lines = dump().splitlines()
assert lines[0].endswith("[CUDA][E][cuMemFree_v2] Returning 1 (CUDA_ERROR_INVALID_VALUE)"), lines
assert any("free memory, or ask for a larger lease" in line for line in lines), lines
assert "rgpu does not support this call: attribute 132 is 0" in lines[-1], lines
assert dump() == ""
""",
    )


def test_what_devices_lack_is_refused(server: str) -> None:
    check(
        server,
        '''
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry name() { ret; }
"""
value, config = c_int(), ctypes.create_string_buffer(64)
cuda("cuDeviceGetAttribute", byref(value), 120, 0)
assert value.value == 0
function = c_void_p(cuda.function(cuda.load(PTX), "name"))
for call in ("cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveClusters"):
    assert cuda.result(call, byref(value), function, config) == 912
array = (c_uint64 * 8)()
for call, count in (("cuMemDiscardBatchAsync", 5), ("cuMemPrefetchBatchAsync", 8),
                    ("cuMemDiscardAndPrefetchBatchAsync", 8), ("cuMemBatchDecompressAsync", 5)):
    assert cuda.result(call, *[None] * count) == 801
''',
    )


def test_a_child_has_a_log_of_its_own() -> None:
    with Server(device="emulated:64MiB") as running:
        check(
            running.address("unix"),
            """
assert cuda.result("cuMemFree_v2", c_uint64(77)) == 1
end = c_uint()
cuda("cuLogsCurrent", byref(end), 0)
assert end.value >= 1
if os.fork() == 0:
    cuda("cuInit", 0)
    cuda("cuLogsCurrent", byref(end), 0)
    os._exit(0 if end.value == 0 else 1)
assert os.waitpid(-1, 0)[1] == 0
""",
        )
