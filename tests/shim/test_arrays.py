"""Arrays, textures and copies of boxes as a program sees them, over every transport."""

from __future__ import annotations

from helpers import clients
from helpers.server import Server

START = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
from helpers import box_graphs, box_models, boxes, textures
from helpers.boxes import CUBEMAP, F32, LAYERED, NV12, SPARSE, SURFACE, U8, Box, Shape, shape
from helpers.textures import NORMALIZED, Resource, Texture, View
cuda.open()
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))
"""


def check(server: str, source: str, **extra: str) -> None:
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n", **extra)
    assert (code, output) == (0, "ok\n"), errors


def test_copies_of_random_extents(server: str) -> None:
    check(server, "box_models.random_copies(cuda, context.value, 3, 150)")


def test_copies_that_need_many_frames(server: str) -> None:
    check(server, "box_models.big_copies(cuda, context.value, 4)")


def test_copies_of_one_row(server: str) -> None:
    check(server, "box_models.linear_copies(cuda, context.value, 5)")


def test_copies_are_nodes_of_graphs(server: str) -> None:
    check(server, "box_graphs.random_nodes(cuda, context.value, 8, 30)")


def test_nodes_with_more_bytes_than_the_staging_memory(server: str) -> None:
    check(server, "box_graphs.big_nodes(cuda, context.value, 9)")


def test_a_box_that_is_longer_than_the_staging_memory(running: Server) -> None:
    """Pinned memory in both directions behind a wait: a thread of the worker moves the pieces."""
    check(
        running.unix,
        """
size = 130 << 20
flag, streams = c_uint64(cuda.alloc(4)), [c_void_p(), c_void_p()]
for one in streams:
    cuda("cuStreamCreate", byref(one), 1)
array = boxes.create(cuda, shape(13312, 1024, 10))
memory = c_void_p()
cuda("cuMemHostAlloc", byref(memory), c_size_t(size), 0)
import numpy as np
words = np.frombuffer((ctypes.c_char * size).from_address(memory.value), np.uint64)
cuda("cuMemsetD32_v2", flag, 0, c_size_t(1))
cuda("cuCtxSynchronize")
sides = {"type": 1, "host": memory, "pitch": 13312, "rows": 1024}, {"type": 3, "array": array}
into, out = (
    Box(width=13312, height=1024, depth=10, **{
        side + name: value
        for side, values in zip(("src", "dst"), order, strict=True)
        for name, value in values.items()
    })
    for order in (sides, sides[::-1])
)
cuda("cuStreamWaitValue32_v2", streams[0], flag, 1, 1)
cuda("cuMemcpy3DAsync_v2", byref(into), streams[0])
words[:] = np.arange(size >> 3)  # allowed: the stream has not come to the copy
cuda("cuStreamWriteValue32_v2", streams[1], flag, 1, 0)
cuda("cuStreamSynchronize", streams[0])
ctypes.memset(memory, 0, size)
cuda("cuMemcpy3DAsync_v2", byref(out), streams[0])
cuda("cuStreamSynchronize", streams[0])
assert (words == np.arange(size >> 3)).all()
""",
    )


def test_in_hostile_timing() -> None:
    """A device that delays everything that it may delay."""
    with Server(device="emulated:1GiB", RGPU_EMU_TIMING="hostile:11") as slow:
        check(slow.unix, "box_models.random_copies(cuda, context.value, 6, 60)")
        check(slow.unix, "box_models.big_copies(cuda, context.value, 7)")
        check(slow.unix, "box_graphs.random_nodes(cuda, context.value, 10, 15)")


def test_pinned_memory_is_read_in_stream_order(server: str) -> None:
    check(
        server,
        """
flag, streams = c_uint64(cuda.alloc(4)), [c_void_p(), c_void_p()]
for one in streams:
    cuda("cuStreamCreate", byref(one), 1)
array = boxes.create(cuda, shape(1024, 512, 2))
memory = c_void_p()
cuda("cuMemHostAlloc", byref(memory), c_size_t(1 << 20), 0)
ctypes.memset(memory, 1, 1 << 20)
cuda("cuMemsetD32_v2", flag, 0, c_size_t(1))
cuda("cuCtxSynchronize")
into = Box(width=1024, height=512, depth=2, srctype=1, srchost=memory, srcpitch=1024, srcrows=512,
           dsttype=3, dstarray=array)
out = Box(width=1024, height=512, depth=2, dsttype=1, dsthost=memory, dstpitch=1024, dstrows=512,
          srctype=3, srcarray=array)
cuda("cuStreamWaitValue32_v2", streams[0], flag, 1, 1)
cuda("cuMemcpy3DAsync_v2", byref(into), streams[0])
ctypes.memset(memory, 2, 1 << 20)  # allowed: the stream has not come to the copy
cuda("cuStreamWriteValue32_v2", streams[1], flag, 1, 0)
cuda("cuStreamSynchronize", streams[0])
ctypes.memset(memory, 3, 1 << 20)
cuda("cuMemcpy3DAsync_v2", byref(out), streams[0])
cuda("cuStreamSynchronize", streams[0])
assert ctypes.string_at(memory, 1 << 20) == b"\\2" * (1 << 20)
""",
    )


def test_arrays_answer_without_a_round_trip(server: str) -> None:
    check(
        server,
        """
array = boxes.create(cuda, shape(16, 8, 4, format=F32, channels=2, flags=SURFACE | LAYERED))
assert boxes.describe(cuda, array) == (16, 8, 4, F32, 2, SURFACE | LAYERED)
mipmapped = boxes.create_mipmapped(cuda, shape(20, 9, 5, format=F32), 5)
level = boxes.level(cuda, mipmapped, 2)
assert boxes.level(cuda, mipmapped, 2) == level
assert boxes.describe(cuda, level) == (5, 2, 1, F32, 1, 0)
video = boxes.create(cuda, shape(8, 6, format=NV12, channels=3))
plane = c_void_p()
cuda("cuArrayGetPlane", byref(plane), c_void_p(video), 1)
assert boxes.describe(cuda, plane.value) == (4, 3, 0, U8, 2, 0)
out = ctypes.create_string_buffer(64)
for call, handle, rest, result in (
    ("cuArrayDestroy", level, (), 400),
    ("cuArrayDestroy", plane.value, (), 400),
    ("cuArrayDestroy", mipmapped, (), 400),
    ("cuMipmappedArrayDestroy", array, (), 400),
    ("cuMipmappedArrayDestroy", mipmapped, (), 0),
    ("cuMipmappedArrayDestroy", mipmapped, (), 400),
    ("cuArrayDestroy", array, (), 0),
    ("cuArrayDestroy", array, (), 400),
):
    assert cuda.result(call, c_void_p(handle), *rest) == result, call
for call, rest, result in (
    ("cuArrayGetSparseProperties", (), 1),
    ("cuArrayGetMemoryRequirements", (0,), 1),
    ("cuArrayGetMemoryRequirements", (9,), 101),
):
    assert cuda.result(call, out, c_void_p(video), *rest) == result, call
assert cuda.result("cuArray3DGetDescriptor_v2", out, c_void_p(level)) == 400
assert cuda.result("cuArrayGetPlane", byref(plane), c_void_p(video), 2) == 1
for bad, result in ((shape(0), 1), (shape(4, flags=SPARSE), 801), (shape(4, channels=3), 1)):
    made = c_void_p(5)
    assert cuda.result("cuArray3DCreate_v2", byref(made), byref(bad)) == result
    assert made.value == 5
""",
    )


def test_textures_and_surfaces(server: str) -> None:
    check(
        server,
        """
array = boxes.create(cuda, shape(8, 8, format=F32, flags=SURFACE))
resource, wanted = textures.in_array(array), textures.texture(NORMALIZED, bias=1.5, filter=1)
view = View(format=22, width=8, height=8)
made = textures.create(cuda, resource, wanted, view)
found = Resource(), Texture(), View()
for call, out, given in zip(
    ("cuTexObjectGetResourceDesc", "cuTexObjectGetTextureDesc", "cuTexObjectGetResourceViewDesc"),
    found, (resource, wanted, view), strict=True,
):
    cuda(call, byref(out), c_uint64(made))
    assert bytes(out) == bytes(given), call
plain = textures.create(cuda, resource, wanted)
assert cuda.result("cuTexObjectGetResourceViewDesc", byref(view), c_uint64(plain)) == 1
memory = cuda.alloc(4096)
buffer = textures.create(cuda, textures.linear(memory, 4096, U8), textures.texture())
assert textures.result(cuda, textures.linear(memory, 4097, U8), textures.texture())[0] == 1
assert textures.result(cuda, textures.in_array(memory), textures.texture())[0] == 1
status, surface = textures.surface(cuda, array)
assert status == 0
assert len({made, plain, buffer, surface}) == 4
assert cuda.result("cuTexObjectDestroy", c_uint64(surface)) == 1
assert cuda.result("cuSurfObjectDestroy", c_uint64(made)) == 1
for call, value in (
    ("cuTexObjectDestroy", made), ("cuTexObjectDestroy", plain), ("cuSurfObjectDestroy", surface)
):
    assert cuda.result(call, c_uint64(value)) == 0
    assert cuda.result(call, c_uint64(value)) == 1
words = (c_uint64 * 16)()
assert cuda.result(
    "cuTensorMapEncodeTiled", words, 7, 2, c_uint64(4096), words, words, words, words, 0, 0, 0, 0
) == 801
""",
    )


def test_the_end_of_a_context_takes_its_arrays_and_objects(server: str) -> None:
    check(
        server,
        """
before = cuda.memory()[0]
other = c_void_p()
cuda("cuCtxCreate_v2", byref(other), 0, 0)
array = boxes.create(cuda, shape(1024, 1024))
made = textures.create(cuda, textures.in_array(array), textures.texture())
cuda("cuCtxDestroy_v2", other)
cuda("cuCtxSetCurrent", context)
assert cuda.memory()[0] == before
assert cuda.result("cuArrayDestroy", c_void_p(array)) == 400
assert cuda.result("cuTexObjectDestroy", c_uint64(made)) == 1
""",
    )


def test_boxes_between_two_contexts(server: str) -> None:
    check(
        server,
        """
from helpers.boxes import PeerBox
here = boxes.create(cuda, shape(64, 4, 2))
other = c_void_p()
cuda("cuCtxCreate_v2", byref(other), 0, 0)
there = cuda.alloc(4096)
cuda.upload(there, bytes(range(256)) * 16)
box = PeerBox(width=64, height=4, depth=2, srctype=2, srcdevice=there, srcpitch=64, srcrows=8,
              srccontext=other, dsttype=3, dstarray=here)
cuda("cuMemcpy3DPeer", byref(box))
cuda("cuCtxSetCurrent", context)
cuda("cuCtxSynchronize")
back = ctypes.create_string_buffer(512)
out = Box(width=64, height=4, depth=2, srctype=3, srcarray=here, dsttype=1, dstpitch=64, dstrows=4)
out.dsthost = ctypes.addressof(back)
cuda("cuMemcpy3D_v2", byref(out))
assert back.raw == bytes(range(256)) * 2
box.srccontext = 77
assert cuda.result("cuMemcpy3DPeer", byref(box)) == 201
""",
    )


def test_kernels_read_and_write_through_objects(server: str) -> None:
    check(
        server,
        """
from helpers import texture_checks
texture_checks.read_everything(cuda)
texture_checks.read_levels(cuda)
texture_checks.read_filtered(cuda)
texture_checks.write_surfaces(cuda)
""",
    )


def test_a_destroyed_object_ends_only_its_own_program(server: str) -> None:
    check(
        server,
        """
run = textures.Kernels(cuda)
array = boxes.create(cuda, shape(8, 8))
first, second = (
    textures.create(cuda, textures.in_array(array), textures.texture()) for _ in range(2)
)
run.launch("words_2d", first, (8, 8, 1))
cuda("cuTexObjectDestroy", c_uint64(first))  # the kernel before finds it
cuda("cuCtxSynchronize")
cuda("cuTexObjectDestroy", c_uint64(second))
# An allocation that does not fit waits until everything that was destroyed is gone.
assert cuda.result("cuMemAlloc_v2", byref(c_uint64()), c_size_t(cuda.memory()[1])) == 2
run.launch("words_2d", second, (8, 8, 1))
assert cuda.result("cuCtxSynchronize") == 700
""",
    )
    check(server, "boxes.create(cuda, shape(8, 8))")
