"""The traffic of real programs: together they send every command, and every frame fits its row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import arguments, clients
from helpers.recorder import Lane, Recorder
from helpers.server import Server
from litmus import programs

from cudaspec import rows
from cudaspec.load import load
from rgpu_common.wire.codec import decode_command, decode_reply
from rgpu_common.wire.frame import Flags, Frame, Kind

# The litmus programs that take less than two seconds.
LITMUS = (
    "blocking_free",
    "deferred_error",
    "free_across_processes",
    "graph_copies_arrays",
    "graph_of_every_kind",
    "graph_takes_host_bytes",
    "host_function_ends_a_spin",
    "local_memory_charged",
    "managed_between_kernels",
    "poll_after_bytes",
    "processes_share",
    "thread_streams",
    "wait_for_a_record",
)
# Commands that these runs do not send, with the reason.
NOT_SENT = {
    "rgpuPing": "no client of this release sends it",
    "rgpuCopyInDirect": "needs a lane in shared memory, which the recorder does not see",
    "rgpuCopyOutDirect": "needs a lane in shared memory, which the recorder does not see",
    "rgpuTensorMapTiled": "needs a device of compute capability 9.0",
    "rgpuTensorMapIm2col": "needs a device of compute capability 9.0",
    "rgpuTensorMapIm2colWide": "needs a device of compute capability 9.0",
    "rgpuTensorMapReplaceAddress": "needs a device of compute capability 9.0",
}
# What the litmus programs and the calls with bad arguments leave out: ends of objects, times of
# events, and a copy out of memory that an earlier copy still fills.
TOUR = f"""
from ctypes import byref, c_float, c_size_t, c_uint64, c_void_p
cuda.open()
image = {arguments.PTX!r}
def made(call, *rest, before=()):
    handle = c_void_p()
    cuda(call, *before, byref(handle), *rest)
    return handle
module = made("cuModuleLoadData", image)
function = made("cuModuleGetFunction", module, b"name")
cuda("cuFuncSetAttribute", function, 8, 1024)  # MAX_DYNAMIC_SHARED_SIZE_BYTES
library = made("cuLibraryLoadData", image, *[None] * 6)
link = c_void_p()
cuda("cuLinkCreate_v2", 0, None, None, byref(link))
cuda("cuLinkAddData_v2", link, 1, image, c_size_t(len(image)), None, 0, None, None)
cubin, size = c_void_p(), c_size_t()
cuda("cuLinkComplete", link, byref(cubin), byref(size))
cuda("cuLinkDestroy", link)
start, end = made("cuEventCreate", 0), made("cuEventCreate", 0)
stream, pinned = made("cuStreamCreate", 1), made("cuMemHostAlloc", c_size_t(65536), 0)
first, second = c_uint64(cuda.alloc(65536)), c_uint64(cuda.alloc(65536))
cuda.upload(first.value, bytes(4096))
cuda("cuEventRecord", start, stream)
# The copy back waits for a value, so that the copy after it finds its memory still to be filled.
flag, other = c_uint64(cuda.alloc(4096)), made("cuStreamCreate", 1)
cuda.upload(flag.value, bytes(4))
cuda("cuStreamWaitValue32_v2", stream, flag, 1, 0)
cuda("cuMemcpyDtoDAsync_v2", second, first, c_size_t(65536), stream)
cuda("cuMemcpyDtoHAsync_v2", pinned, second, c_size_t(65536), stream)
cuda("cuMemcpyHtoDAsync_v2", first, pinned, c_size_t(65536), stream)
assert cuda.result("cuStreamQuery", stream) == 600  # CUDA_ERROR_NOT_READY
cuda("cuStreamWriteValue32_v2", other, flag, 1, 0)
cuda("cuEventRecord", end, stream)
cuda("cuEventSynchronize", end)
cuda("cuEventElapsedTime_v2", byref(c_float()), start, end)
cuda("cuEventQuery", made("cuEventCreate", 0))
pool = made("cuDeviceGetDefaultMemPool", 0)
address = c_uint64()
cuda("cuMemAllocAsync", byref(address), c_size_t(4096), stream)
cuda("cuMemFreeAsync", address, stream)
cuda("cuModuleUnload", module)
cuda("cuLibraryUnload", library)
cuda("cuStreamDestroy_v2", stream)
cuda("cuEventDestroy_v2", start)
cuda.free(first.value)
cuda.synchronize()
"""
TWO_CONTEXTS_AND_MAPPED_MEMORY = """
from ctypes import byref, c_size_t, c_uint64, c_void_p
from helpers.maps import Maps
cuda.open()
maps = Maps(cuda)
size = maps.granularity()
place, memory = maps.mapped(size)
maps.unmap(place, size)
maps.release(memory)
maps.unreserve(place, size)
mine, other = c_void_p(), c_void_p()
cuda("cuCtxGetCurrent", byref(mine))
here = c_uint64(cuda.alloc(4096))
cuda("cuCtxCreate_v2", byref(other), 0, 0)
there = c_uint64(cuda.alloc(4096))
cuda("cuMemcpyPeer", there, other, here, mine, c_size_t(4096))
cuda.synchronize()
"""
ARRAYS = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
from helpers import boxes, textures
from helpers.boxes import NV12, SURFACE, U8, Box, PeerBox, shape
cuda.open()
mine = c_void_p()
cuda("cuCtxGetCurrent", byref(mine))
array = boxes.create(cuda, shape(64, 64, flags=SURFACE))
mipmapped = boxes.create_mipmapped(cuda, shape(64, 64), 3)
level = boxes.level(cuda, mipmapped, 0)
video, plane = boxes.create(cuda, shape(8, 8, format=NV12, channels=3)), c_void_p()
cuda("cuArrayGetPlane", byref(plane), c_void_p(video), 0)
texture = textures.create(cuda, textures.in_array(array), textures.texture())
_, surface = textures.surface(cuda, array)
memory, flag, streams = c_void_p(), c_uint64(cuda.alloc(4)), [c_void_p(), c_void_p()]
cuda("cuMemHostAlloc", byref(memory), c_size_t(4096), 0)
for stream in streams:
    cuda("cuStreamCreate", byref(stream), 1)
sizes = {"width": 64, "height": 64, "depth": 1}
inside = {"type": 3, "array": array}
outside = {"type": 1, "host": memory.value, "pitch": 64, "rows": 64}
def side(name, values):
    return {name + key: value for key, value in values.items()}
into = Box(**sizes, **side("dst", inside), **side("src", outside))
out = Box(**sizes, **side("src", inside), **side("dst", outside))
within = Box(**sizes, **side("src", inside), dsttype=3, dstarray=level)
cuda("cuMemcpy3D_v2", byref(into))
cuda("cuMemcpy3D_v2", byref(out))
cuda("cuMemcpy3D_v2", byref(within))
cuda("cuMemcpy3DPeer", byref(PeerBox(**sizes, **side("src", inside), dsttype=3, dstarray=level)))
cuda("cuMemsetD32_v2", flag, 0, c_size_t(1))
cuda("cuCtxSynchronize")
cuda("cuStreamWaitValue32_v2", streams[0], flag, 1, 1)
cuda("cuMemcpy3DAsync_v2", byref(into), streams[0])
cuda("cuMemcpy3DAsync_v2", byref(out), streams[0])
cuda("cuStreamWriteValue32_v2", streams[1], flag, 1, 0)
cuda("cuStreamSynchronize", streams[0])
cuda("cuTexObjectDestroy", c_uint64(texture))
cuda("cuSurfObjectDestroy", c_uint64(surface))
cuda("cuArrayDestroy", c_void_p(array))
cuda("cuMipmappedArrayDestroy", c_void_p(mipmapped))
"""
GRAPH = """
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
context, exec_ = c_void_p(), c_void_p()
cuda("cuCtxGetCurrent", byref(context))
def conditional():
    graph, node, handle = c_void_p(), c_void_p(), c_uint64()
    cuda("cuGraphCreate", byref(graph), 0)
    cuda("cuGraphConditionalHandleCreate", byref(handle), graph, context, 1, 1)
    # CUgraphNodeParams of a conditional node: IF, one body.
    words = (c_uint64 * 32)(13, 0, handle.value, 1 << 32, 0, context.value)
    cuda("cuGraphAddNode_v2", byref(node), graph, None, None, c_size_t(0), byref(words))
    return graph
cuda("cuGraphInstantiateWithFlags", byref(exec_), conditional(), c_uint64(0))
cuda("cuGraphExecUpdate_v2", exec_, conditional(), byref((c_uint64 * 3)()))
cuda("cuGraphUpload", exec_, None)
cuda("cuGraphLaunch", exec_, None)
cuda("cuGraphExecDestroy", exec_)
cuda.synchronize()
"""
SHAREABLE = """
import subprocess, sys
from helpers.maps import GRANULE, Maps
cuda.open()
child = '''
from helpers.driver import Driver
from helpers.maps import Maps
cuda = Driver()
cuda.open()
maps = Maps(cuda)
maps.release(maps.import_(%d))
cuda.synchronize()
'''
file = Maps(cuda).export(Maps(cuda).create(GRANULE, handles=1))
subprocess.run([sys.executable, "-c", child % file], check=True, pass_fds=[file])
cuda.synchronize()
"""
OWN_POOL = """
import struct
from ctypes import byref, c_void_p
cuda.open()
pool = c_void_p()
cuda("cuMemPoolCreate", byref(pool), struct.pack("iiii", 1, 0, 1, 0) + bytes(72))
cuda("cuMemPoolDestroy", pool)
cuda.synchronize()
"""


def _run(address: str, lease: str, source: str) -> None:
    code, _, errors = clients.run(address, source, RGPU_LEASE=lease)
    assert code == 0, errors


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> list[Lane]:
    """What all runs sent and received."""
    folder = tmp_path_factory.mktemp("litmus")
    programs.generate_header(folder)
    sources = tuple(programs.FOLDER / f"{name}.c" for name in LITMUS)
    binaries: Path = programs.build(folder / "bin", folder, sources)
    with Server(device="emulated:16GiB") as server, Recorder(server.unix) as recorder:
        for name in LITMUS:
            variables = clients.environment(recorder.unix, RGPU_LEASE=name, LITMUS_ROUNDS="1")
            result = programs.run(binaries / name, variables)
            assert result.ok, result.text
        _run(recorder.unix, "arguments", "from helpers import arguments\narguments.main()")
        _run(recorder.unix, "tour", TOUR)
        _run(recorder.unix, "pool", OWN_POOL)
        _run(recorder.unix, "graph", GRAPH)
        _run(recorder.unix, "mapped", TWO_CONTEXTS_AND_MAPPED_MEMORY)
        _run(recorder.unix, "arrays", ARRAYS)
        _run(recorder.unix, "shareable", SHAREABLE)
    return recorder.lanes


def _frames(lanes: list[Lane], kind: Kind) -> Iterator[Frame]:
    for lane in lanes:
        frames = lane.commands if kind is Kind.COMMAND else lane.answers
        yield from (frame for frame in frames if frame.header.kind is kind)


def test_every_command_is_sent(lanes: list[Lane]) -> None:
    sent = {decode_command(frame)[0] for frame in _frames(lanes, Kind.COMMAND)}
    assert set(load().commands) - sent == set(NOT_SENT)


def test_every_reply_fits_its_row(lanes: list[Lane]) -> None:
    """decode_reply raises WireError for a reply that has other fields than its row."""
    replied = {decode_reply(frame)[0] for frame in _frames(lanes, Kind.REPLY)}
    calls = {row.name for row in load().commands.values() if row.is_call}
    assert replied == calls - set(NOT_SENT)


def _bulk(spec: rows.Spec, kind: Kind) -> set[int]:
    """Returns the opcodes whose result travels in frames of this kind."""
    later = kind is Kind.DELIVERY
    return {
        opcode
        for opcode, row in spec.opcodes.items()
        if row.row.bulk == "reply" and row.is_call is not later
    }


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.DELIVERY])
def test_bytes_come_back_only_for_rows_that_say_so(lanes: list[Lane], kind: Kind) -> None:
    came = {frame.header.opcode for frame in _frames(lanes, kind)}
    assert came == _bulk(load(), kind)


def test_every_question_is_answered(lanes: list[Lane]) -> None:
    """Each command that wants a reply got one, except the last of a program that ended first."""
    for lane in lanes:
        asked = [f.header.seq for f in lane.commands if f.header.flags & Flags.WANTS_REPLY]
        answered = {f.header.seq for f in lane.answers if f.header.kind is Kind.REPLY}
        assert len(set(asked) - answered) <= 1
