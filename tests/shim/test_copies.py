"""Copies as a program sees them: which bytes move, when they may be changed, which copies are
refused.
"""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.server import Server

START = """
import ctypes, os
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
cuda.open()

def address(text):
    return c_void_p(ctypes.addressof(text))

def stream():
    made = c_void_p()
    cuda("cuStreamCreate", byref(made), 1)
    return made

def pinned(size):
    memory = c_void_p()
    cuda("cuMemHostAlloc", byref(memory), c_size_t(size), 0)
    return memory, (ctypes.c_char * size).from_address(memory.value)

class Plane(ctypes.Structure):
    _fields_ = [
        (side + name, kind)
        for side in ("src", "dst")
        for name, kind in (
            ("x", c_size_t), ("y", c_size_t), ("type", c_int), ("host", c_void_p),
            ("device", c_uint64), ("array", c_void_p), ("pitch", c_size_t),
        )
    ] + [("width", c_size_t), ("height", c_size_t)]
"""


# More than all staging memory; and, beside such a copy, more than a quarter of what it leaves.
LONG = """
from array import array
MIB = 1 << 20
sizes = 260 * MIB, 66 * MIB + 12
ones = [c_void_p(), stream()]
cuda("cuStreamCreate", byref(ones[0]), 0)
flag = cuda.alloc(4)
places, memories = [cuda.alloc(size) for size in sizes], [pinned(size) for size in sizes]

def pieces(size):
    return [(at, min(MIB, size - at)) for at in range(0, size, MIB)]

def numbers(at, count):
    return array("I", [at]).tobytes() * (count // 4)

def behind_a_wait(copy):
    cuda("cuMemsetD32_v2", c_uint64(flag), 0, c_size_t(1))
    cuda("cuCtxSynchronize")
    for i, size in enumerate(sizes):
        cuda("cuStreamWaitValue32_v2", ones[i], c_uint64(flag), 1, 1)
        copy(places[i], memories[i][0], size, ones[i])
    cuda("cuStreamWriteValue32_v2", last, c_uint64(flag), 1, 0)

last = stream()
"""


def check(server: str, source: str, **extra: str) -> None:
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n", **extra)
    assert (code, output) == (0, "ok\n"), errors


def test_linear_both_ways(server: str) -> None:
    check(
        server,
        """
for size in (1, 7, 4096, 8191, 8192, 100_000, (1 << 20) - 1, 1 << 20, (3 << 20) + 5):
    data = os.urandom(size)
    place = cuda.alloc(size)
    cuda.upload(place, data)
    assert cuda.download(place, size) == data
    cuda.free(place)
""",
    )


def test_planes_touch_only_their_rows(server: str) -> None:
    check(
        server,
        """
shapes = (1000, 70, 1024, 2048), ((1 << 20) + 100, 3, (1 << 20) + 164, 2 << 20)
for width, height, host_pitch, pitch in shapes:
    place = cuda.alloc(pitch * (height + 1))
    source = bytearray(os.urandom(host_pitch * height))
    back = bytearray(b"\\xee" * len(source))
    for data, out in ((source, False), (back, True)):
        host = (ctypes.c_char * len(data)).from_buffer(data)
        plane = Plane(width=width, height=height - 1)
        ends = ("dst", "src") if out else ("src", "dst")
        for end, values in zip(ends, (
            {"x": 3, "y": 1, "type": 1, "host": ctypes.addressof(host), "pitch": host_pitch},
            {"x": 16, "y": 1, "type": 2, "device": place, "pitch": pitch},
        )):
            for name, value in values.items():
                setattr(plane, end + name, value)
        cuda("cuMemcpy2D_v2", byref(plane))
        del host
    for row in range(height):
        begin = row * host_pitch
        whole = back[begin : begin + host_pitch]
        if row == 0:
            assert set(whole) == {0xEE}
        else:
            assert whole[3 : 3 + width] == source[begin + 3 : begin + 3 + width]
            assert set(whole[:3]) == set(whole[3 + width :]) == {0xEE}
    cuda.free(place)
""",
    )


def test_pinned_memory_is_read_in_stream_order(server: str) -> None:
    check(
        server,
        """
size = 3 << 20
flag, place = cuda.alloc(4), cuda.alloc(size)
cuda("cuMemsetD32_v2", c_uint64(flag), 0, c_size_t(1))
first, second = stream(), stream()
cuda("cuCtxSynchronize")
memory, view = pinned(size)
ctypes.memset(memory, 1, size)
cuda("cuStreamWaitValue32_v2", first, c_uint64(flag), 1, 1)
cuda("cuMemcpyHtoDAsync_v2", c_uint64(place), memory, c_size_t(size), first)
ctypes.memset(memory, 2, size)  # allowed: the stream has not come to the copy
cuda("cuStreamWriteValue32_v2", second, c_uint64(flag), 1, 0)
cuda("cuStreamSynchronize", first)
ctypes.memset(memory, 3, size)
assert cuda.download(place, size) == b"\\2" * size
cuda("cuMemFreeHost", memory)
""",
    )


def test_a_wait_in_one_context_is_not_over_when_another_is_synchronised(server: str) -> None:
    check(
        server,
        """
size = 1 << 20
flag, place = cuda.alloc(4), cuda.alloc(size)
cuda("cuMemsetD32_v2", c_uint64(flag), 0, c_size_t(1))
first, second = stream(), stream()
memory, view = pinned(size)
cuda("cuCtxSynchronize")
ctypes.memset(memory, 1, size)
cuda("cuStreamWaitValue32_v2", first, c_uint64(flag), 1, 1)
other = c_void_p()
cuda("cuCtxCreate_v2", byref(other), 0, 0)
cuda("cuCtxSynchronize")
cuda("cuCtxPopCurrent_v2", byref(other))
cuda("cuMemcpyHtoDAsync_v2", c_uint64(place), memory, c_size_t(size), first)
ctypes.memset(memory, 2, size)
cuda("cuStreamWriteValue32_v2", second, c_uint64(flag), 1, 0)
cuda("cuStreamSynchronize", first)
assert cuda.download(place, size) == b"\\2" * size
cuda("cuCtxDestroy_v2", other)
""",
    )


def test_memory_that_bytes_are_to_land_in_is_read_and_written_behind_them(server: str) -> None:
    check(
        server,
        """
size = 6 << 20
old, new, place = cuda.alloc(size), cuda.alloc(size), cuda.alloc(size)
cuda("cuMemsetD8_v2", c_uint64(old), 7, c_size_t(size))
cuda("cuMemsetD8_v2", c_uint64(new), 9, c_size_t(size))
memory, view = pinned(size)
one = c_void_p()
cuda("cuStreamCreate", byref(one), 0)  # the default stream waits for it, and it for that one

def deliver(source):
    ctypes.memset(memory, 1, size)
    cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(source), c_size_t(size), one)

deliver(old)
cuda("cuMemcpyHtoD_v2", c_uint64(place), memory, c_size_t(size))
ctypes.memset(memory, 2, size)  # allowed: the copy was synchronous
assert cuda.download(place, size) == b"\\7" * size
deliver(new)
cuda("cuMemcpyHtoDAsync_v2", c_uint64(place), memory, c_size_t(size), one)
cuda("cuStreamSynchronize", one)
assert cuda.download(place, size) == b"\\x09" * size
deliver(old)
cuda("cuMemcpyDtoH_v2", memory, c_uint64(new), c_size_t(size))
cuda("cuStreamSynchronize", one)
assert view.raw == b"\\x09" * size
""",
    )


def test_bytes_land_without_anybody_waiting(server: str) -> None:
    check(
        server,
        """
import select, time
place = cuda.alloc(4096)
one = stream()
memory, view = pinned(4096)
cuda("cuMemsetD8Async", c_uint64(place), 5, c_size_t(4096), one)
cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(place), c_size_t(4096), one)
deadline = time.monotonic() + 60
while view[4095] != b"\\5":  # no CUDA call: natively the bytes come all the same
    assert time.monotonic() < deadline
    select.select([], [], [], 0.001)
""",
    )


def test_a_buffer_is_given_back_only_when_its_bytes_have_landed(server: str) -> None:
    check(
        server,
        """
size = 8 << 20
place = cuda.alloc(size)
one = stream()
for _ in range(5):
    memory, view = pinned(size)
    cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(place), c_size_t(size), one)
    del view
    cuda("cuMemFreeHost", memory)
cuda("cuStreamSynchronize", one)
""",
    )


def test_memory_that_is_not_there_is_an_error_and_not_the_end(server: str) -> None:
    check(
        server,
        """
import mmap
size = 4 << 20
place = cuda.alloc(size)
libc = ctypes.CDLL(None)
libc.mmap.restype = c_void_p
libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, ctypes.c_long]
half = libc.mmap(None, size, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.munmap(c_void_p(half + size // 2), c_size_t(size // 2))
for call, arguments in (
    ("cuMemcpyDtoH_v2", (c_void_p(half), c_uint64(place), c_size_t(size))),
    ("cuMemcpyDtoH_v2", (c_void_p(half + size // 2 - 8), c_uint64(place), c_size_t(16))),
    ("cuMemcpyHtoD_v2", (c_uint64(place), c_void_p(half), c_size_t(size))),
    ("cuMemcpyHtoD_v2", (c_uint64(place), c_void_p(half + size // 2 - 8), c_size_t(16))),
    ("cuMemcpyHtoD_v2", (c_uint64(place), c_void_p(half + size // 2 - 4096), c_size_t(8192))),
    ("cuMemcpyHtoD_v2", (c_uint64(place + size - 4), b"12345678", c_size_t(8))),
    ("cuMemcpyHtoD_v2", (c_uint64(0), b"12345678", c_size_t(8))),
    ("cuMemcpyDtoH_v2", (None, c_uint64(place), c_size_t(8))),
):
    assert cuda.result(call, *arguments) == 1, call
cuda.upload(place, b"still here")
assert cuda.download(place, 10) == b"still here"
""",
    )


def test_direction_follows_from_the_addresses(server: str) -> None:
    check(
        server,
        """
there = cuda.alloc(64)
here, also = ctypes.create_string_buffer(b"x" * 64, 64), ctypes.create_string_buffer(64)
first, second = address(here).value, address(also).value
for to, source in ((there, first), (second, there), (first, second)):
    cuda("cuMemcpy", c_uint64(to), c_uint64(source), c_size_t(64))
assert also.raw == b"x" * 64
kind = ctypes.c_uint()
cuda("cuPointerGetAttribute", byref(kind), 2, c_uint64(there + 5))
assert kind.value == 2
assert cuda.result("cuPointerGetAttribute", byref(kind), 2, c_uint64(second)) == 1
""",
    )


@pytest.mark.parametrize("kind", ["unix", pytest.param("shm", marks=pytest.mark.full)])
def test_long_copies_go_through_little_staging_memory(running: Server, kind: str) -> None:
    check(
        running.address(kind),
        LONG
        + """
for place, size in zip(places, sizes):
    for at, count in pieces(size):
        cuda("cuMemsetD32_v2", c_uint64(place + at), at, c_size_t(count // 4))
behind_a_wait(lambda place, memory, size, one: cuda(
    "cuMemcpyDtoHAsync_v2", memory, c_uint64(place), c_size_t(size), one))
for one, place, size, (memory, view) in zip(ones, places, sizes, memories):
    cuda("cuMemsetD8Async", c_uint64(place), 3, c_size_t(size), one)  # comes behind the copy
    cuda("cuStreamSynchronize", one)
    assert all(view[at : at + count] == numbers(at, count) for at, count in pieces(size))
behind_a_wait(lambda place, memory, size, one: cuda(
    "cuMemcpyHtoDAsync_v2", c_uint64(place), memory, c_size_t(size), one))
for one, place, size, (memory, view) in zip(ones, places, sizes, memories):
    cuda("cuMemFreeHost", memory)  # waits until the bytes have been read
    cuda("cuStreamSynchronize", one)
    assert all(cuda.download(place + at, count) == numbers(at, count) for at, count in pieces(size))
    cuda.free(place)
""",
        RGPU_LEASE="long",
        RGPU_MEMORY="400MiB",
    )
