"""Copies between the memory of two devices, by every function that can name both (ADR 0022)."""

from __future__ import annotations

import pytest
from helpers.two_devices import HEAD, WAYS, Pair, said

START = (
    HEAD
    + r"""
import functools, random

class Box(ctypes.Structure):
    _side = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t), ("type", c_int),
             ("host", c_void_p), ("device", c_uint64), ("array", c_uint64), ("context", c_uint64),
             ("pitch", c_size_t), ("height", c_size_t)]
    _fields_ = ([("from_" + n, t) for n, t in _side] + [("to_" + n, t) for n, t in _side] +
                [("width", c_size_t), ("rows", c_size_t), ("depth", c_size_t)])

@functools.cache
def bytes_of(size, seed):
    return random.Random(seed).randbytes(size)

def put(device, size, seed):
    current(device)
    address = cuda.alloc(size)
    cuda.upload(address, bytes_of(size, seed))
    return address

def got(device, address, size):
    current(device)
    return cuda.download(address, size)
"""
)


@pytest.fixture(params=WAYS)
def server(pair: Pair, request: pytest.FixtureRequest) -> str:
    return pair.address(request.param)


@pytest.mark.parametrize("size", [1, 70_001, 9 << 20])
def test_bytes_arrive_by_every_function(server: str, size: int) -> None:
    source = f"""
    size = {size}
    def peer(to, a, source, b, _):
        cuda("cuMemcpyPeer", c_uint64(to), contexts[a], c_uint64(source), contexts[b], c_size_t(size))
    def peer_async(to, a, source, b, stream):
        cuda("cuMemcpyPeerAsync", c_uint64(to), contexts[a], c_uint64(source), contexts[b],
             c_size_t(size), stream)
    def call(name):
        asynchronous = "Async" in name
        def run(to, a, source, b, stream):
            cuda(name, c_uint64(to), c_uint64(source), c_size_t(size), *[stream] * asynchronous)
        return run
    streams = []
    for device in (0, 1):
        current(device)
        streams.append(made("cuStreamCreate", 1))
    sources, targets = ([put(device, size, side + str(device)) for device in (0, 1)]
                        for side in ("source", "target"))
    functions = [peer, peer_async, *map(call, ("cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy",
                                               "cuMemcpyAsync"))]
    for number, function in enumerate(functions):
        for a, b in ((0, 1), (1, 0)):
            for where in (0, 1):
                current(a)
                cuda("cuMemsetD8_v2", c_uint64(targets[a]), number, c_size_t(size))
                cuda("cuCtxSynchronize")
                current(where)
                function(targets[a], a, sources[b], b, streams[where])
                cuda("cuStreamSynchronize", streams[where])
                assert got(a, targets[a], size) == bytes_of(size, "source" + str(b)), (number, a, where)
    print("ok")
    """
    assert said(server, source, START) == ["ok"]


def test_the_order_of_the_stream_holds_on_both_devices(server: str) -> None:
    """Work before the copy in its stream is seen by it, and work behind it waits, whichever device
    the stream is of. Pieces of a long copy too.
    """
    source = """
    size = 18 << 20  # five pieces
    for where in (0, 1):
        for a, b in ((0, 1), (1, 0)):
            to, source = put(a, size, 1), put(b, size, 2)
            current(where)
            stream, host = made("cuStreamCreate", 1), made("cuMemHostAlloc", c_size_t(size), 0)
            ctypes.memmove(host.value, bytes_of(size, 3), size)
            own, far = (source, to) if where == b else (to, source)
            gate = cuda.alloc(4)
            cuda.upload(gate, bytes(4))
            cuda("cuStreamWaitValue32_v2", stream, c_uint64(gate), 1, 0)
            cuda("cuMemcpyHtoDAsync_v2", c_uint64(source), host, c_size_t(size), stream)
            cuda("cuMemcpyPeerAsync", c_uint64(to), contexts[a], c_uint64(source), contexts[b],
                 c_size_t(size), stream)
            cuda("cuMemsetD8Async", c_uint64(own), 9, c_size_t(size), stream)
            cuda("cuMemcpyDtoHAsync_v2", host, c_uint64(far), c_size_t(size), stream)
            assert cuda.result("cuStreamQuery", stream) == 600
            cuda("cuStreamWriteValue32_v2", made("cuStreamCreate", 1), c_uint64(gate), 1, 0)
            cuda("cuStreamSynchronize", stream)
            assert ctypes.string_at(host.value, size) == bytes_of(size, 3), (where, a)
            cuda("cuMemFreeHost", host)
            for address in (to, source):
                cuda.free(address)
    print("ok")
    """
    assert said(server, source, START) == ["ok"]


def test_rows_and_slices_keep_their_gaps(server: str) -> None:
    source = """
    width, rows, depth, pitch_a, pitch_b = 300, 7, 5, 512, 333
    span_a, span_b = pitch_a * rows * depth, pitch_b * rows * depth
    def expected():
        old, new = bytearray(bytes_of(span_a, 1)), bytes_of(span_b, 2)
        for row in range(rows * depth):
            old[row * pitch_a:row * pitch_a + width] = new[row * pitch_b:row * pitch_b + width]
        return bytes(old)
    class Plane(ctypes.Structure):
        _side = [("x", c_size_t), ("y", c_size_t), ("type", c_int), ("host", c_void_p),
                 ("device", c_uint64), ("array", c_uint64), ("pitch", c_size_t)]
        _fields_ = ([("from_" + n, t) for n, t in _side] + [("to_" + n, t) for n, t in _side] +
                    [("width", c_size_t), ("rows", c_size_t)])
    for kind in (2, 4):  # device, unified
        for asynchronous in (False, True):
            to, source = put(1, span_a, 1), put(0, span_b, 2)
            current(kind // 4)
            more = {"from_type": kind, "to_type": kind, "from_device": source, "to_device": to,
                    "from_pitch": pitch_b, "to_pitch": pitch_a, "width": width}
            box = Box(from_height=rows, to_height=rows, rows=rows, depth=depth,
                      from_context=contexts[0].value, to_context=contexts[1].value, **more)
            plane = Plane(rows=rows * depth, **more)
            for name, params in (("cuMemcpy3DPeer", box), ("cuMemcpy2D", plane)):
                current(1)
                cuda.upload(to, bytes_of(span_a, 1))
                current(kind // 4)
                suffix = ("Async" if asynchronous else "") + ("_v2" if "2D" in name else "")
                cuda(name + suffix, byref(params), *[None] * asynchronous)
                cuda("cuCtxSynchronize")
                assert got(1, to, span_a) == expected(), (name, kind, asynchronous)
    print("ok")
    """
    assert said(server, source, START) == ["ok"]


def test_an_array_of_one_device_is_copied_to_one_of_another(server: str) -> None:
    source = """
    class Shape(ctypes.Structure):
        _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]
    arrays, size = [], 64 * 16
    for device in (0, 1):
        current(device)
        arrays.append(made("cuArrayCreate_v2", byref(Shape(64, 16, 1, 1))))
    back = create_string_buffer(size)
    def box(to, source, **more):
        return Box(width=64, rows=16, depth=1, from_height=16, to_height=16, from_pitch=64,
                   to_pitch=64, **to, **source, **more)
    data = create_string_buffer(bytes_of(size, 5), size)
    current(0)
    cuda("cuMemcpy3D_v2", byref(box({"to_type": 3, "to_array": arrays[0].value},
                                    {"from_type": 1, "from_host": ctypes.addressof(data)})))
    cuda("cuMemcpy3DPeer", byref(box({"to_type": 3, "to_array": arrays[1].value},
                                     {"from_type": 3, "from_array": arrays[0].value})))
    current(1)
    cuda("cuMemcpy3D_v2", byref(box({"to_type": 1, "to_host": ctypes.addressof(back)},
                                    {"from_type": 3, "from_array": arrays[1].value})))
    print(back.raw == bytes_of(size, 5))
    row = made("cuArrayCreate_v2", byref(Shape(64, 0, 1, 1)))
    near = put(0, 64, 6)
    cuda("cuMemcpyDtoA_v2", row, c_size_t(0), c_uint64(near), c_size_t(64))
    cuda("cuMemcpyAtoH_v2", back, row, c_size_t(0), c_size_t(64))
    print(back.raw[:64] == bytes_of(64, 6))
    """
    assert said(server, source, START) == ["True", "True"]


def test_a_copy_finds_the_device_of_its_address(server: str) -> None:
    """Between the host and a device that is not current, and within such a device; in a batch."""
    source = """
    size = 1 << 20
    far, far_too = put(1, size, 1), put(1, size, 2)
    current(0)
    near, stream, pinned = cuda.alloc(size), made("cuStreamCreate", 1), made("cuMemHostAlloc", c_size_t(size), 0)
    cuda.upload(far, bytes_of(size, 3))
    print(cuda.download(far, size) == bytes_of(size, 3))
    ctypes.memmove(pinned.value, bytes_of(size, 4), size)
    cuda("cuMemcpyHtoDAsync_v2", c_uint64(far), pinned, c_size_t(size), stream)
    cuda("cuMemcpyDtoDAsync_v2", c_uint64(far_too), c_uint64(far), c_size_t(size), stream)
    cuda("cuMemcpyDtoHAsync_v2", pinned, c_uint64(far_too), c_size_t(size), stream)
    cuda("cuMemcpyAsync", c_uint64(near), c_uint64(far_too), c_size_t(size), stream)
    cuda("cuStreamSynchronize", stream)
    print(ctypes.string_at(pinned.value, size) == bytes_of(size, 4), cuda.download(near, size) == bytes_of(size, 4))
    class Attributes(ctypes.Structure):
        _fields_ = [("order", c_int), ("rest", c_int * 5)]
    pair = c_uint64 * 2
    cuda.upload(near, bytes_of(size, 7))
    cuda("cuMemcpyBatchAsync_v2", pair(far, near), pair(near, far_too), (c_size_t * 2)(size, size),
         c_size_t(2), byref(Attributes(1)), (c_size_t * 1)(0), c_size_t(1), stream)
    cuda("cuStreamSynchronize", stream)
    print(cuda.download(far, size) == bytes_of(size, 7), cuda.download(near, size) == bytes_of(size, 4))
    print([cuda.result("cuMemcpyDtoD_v2", c_uint64(a), c_uint64(b), c_size_t(size + 1))
           for a, b in ((near, far), (far, near), (far, far_too))])
    print(cuda.result("cuMemcpyPeer", c_uint64(near), contexts[0], c_uint64(far), c_uint64(5), c_size_t(4)))
    """
    assert said(server, source, START) == [
        "True", "True True", "True True", "[1, 1, 1]", "201",
    ]  # fmt: skip


def test_managed_memory_is_copied_to_that_of_another_device(server: str) -> None:
    source = """
    memory, words, fill = [], [], []
    for device in (0, 1):
        current(device)
        memory.append(made("cuMemAllocManaged", c_size_t(8192), 1))
        words.append((c_int * 2048).from_address(memory[-1].value))
        fill.append(cuda.function(cuda.load(PTX), "fill"))
    for turn in range(4):
        own, other = turn % 2, 1 - turn % 2
        current(own)
        words[own][0] = 10 + turn
        assert launch(fill[own], memory[own].value + 4, 20 + turn) == 0
        if turn < 2:
            cuda("cuMemcpy", memory[other], memory[own], c_size_t(8192))
        else:
            stream = made("cuStreamCreate", 0)
            cuda("cuMemcpyAsync", memory[other], memory[own], c_size_t(8192), stream)
            cuda("cuStreamSynchronize", stream)
        print(words[other][0], words[other][1])
        current(other)
        assert launch(fill[other], memory[other], 5) == 0
        cuda("cuCtxSynchronize")
        print(words[other][0], words[other][1])
    """
    lines = [f"{first} {20 + turn}" for turn in range(4) for first in (10 + turn, 5)]
    assert said(server, source, START) == lines
