"""Cooperative grids: all their blocks run at the same time, and may wait for each other."""

from __future__ import annotations

import ctypes
import struct
import threading

from emu.device import Device, expect, finish, in_thread, on_device
from emu.kernels import HEAD, U32, U64, load

ROUNDS = 6
PTX = (
    HEAD
    + f"""
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry pass_on(.param .u64 data, .param .u32 fail)
{{
  .reg .pred %p<6>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data]; ld.param.u32 %r12, [fail];
  {{ .param .b32 s; .param .b64 h; st.param.b32 [s], 1;
    call (h), cudaCGGetIntrinsicHandle, (s); ld.param.b64 %rd2, [h]; }}
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, 0; mov.u32 %r4, %tid.x;
  add.u32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, %r2; @%p1 mov.u32 %r5, 0;
  mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3;
  mul.wide.u32 %rd4, %r5, 4; add.u64 %rd4, %rd1, %rd4;
again:
  setp.eq.u32 %p2, %r1, %r12; @%p2 mov.u64 %rd4, 16;
  ld.global.u32 %r6, [%rd4];
  {{ .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %rd2; st.param.b32 [f], 0;
    call (r), cudaCGSynchronize, (h, f); }}
  add.u32 %r6, %r6, 1; setp.ne.u32 %p3, %r4, 0; @%p3 bra skip; st.global.u32 [%rd3], %r6;
skip:
  {{ .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %rd2; st.param.b32 [f], 0;
    call (r), cudaCGSynchronize, (h, f); }}
  add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, {ROUNDS}; @%p4 bra again;
  ret;
}}
.visible .entry count(.param .u64 data)
{{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [data]; atom.global.add.u32 %r1, [%rd1], 1; ret;
}}
"""
)
GROUPS = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void sums(unsigned* values, unsigned* out) {
  auto grid = cg::this_grid();
  unsigned n = grid.size(), me = grid.thread_rank();
  for (unsigned d = 1; d < n; d *= 2) {
    unsigned other = me >= d ? values[me - d] : 0;
    grid.sync();
    values[me] += other;
    grid.sync();
  }
  out[me] = values[n - 1] - values[me];
}
"""
NONE = 0xFFFFFFFF


def cooperate(
    cuda: Device, function: int, parameters: list[object], grid: int, block: int, stream: int = 0
) -> None:
    array = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(p) for p in parameters))  # type: ignore[arg-type]
    cuda("cuLaunchCooperativeKernel", function, grid, 1, 1, block, 1, 1, 0, stream, array)


def resident(cuda: Device, function: int, block: int) -> int:
    """As many blocks as occupancy promises."""
    per = cuda.out("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, block, 0, kind=ctypes.c_int)  # fmt: skip
    found: int = per * cuda.attribute(16)
    return found


def passed_on(grid: int) -> list[int]:
    values = list(range(grid))
    for _ in range(ROUNDS):
        values = [values[(n + 1) % grid] + 1 for n in range(grid)]
    return values


@on_device(RGPU_EMU_THREADS="2")
def test_more_blocks_than_threads_wait_for_each_other(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda, PTX), "pass_on")
    for block, wanted in ((32, 64), (70, 40), (1024, 0), (33, 1), (1, 2)):
        grid = wanted or resident(cuda, function, block)
        data = cuda.alloc(4 * grid)
        cuda.write(data, struct.pack(f"<{grid}I", *range(grid)))
        cooperate(cuda, function, [U64(data), U32(NONE)], grid, block)
        assert list(struct.unpack(f"<{grid}I", cuda.read(data, 4 * grid))) == passed_on(grid)


@on_device(RGPU_EMU_THREADS="3")
def test_grids_of_several_streams_and_other_kernels_at_once(cuda: Device) -> None:
    """No grid takes what another one needs for its barrier."""
    context = cuda.open()
    module = load(cuda, PTX)
    function, count = cuda.function(module, "pass_on"), cuda.function(module, "count")
    counter = cuda.alloc(4)
    cuda("cuMemsetD32_v2", counter, 0, 1)
    start = threading.Barrier(4)

    def body() -> None:
        cuda("cuCtxSetCurrent", context)
        stream, data = cuda.stream(1), cuda.alloc(4 * 24)
        start.wait()
        for _ in range(4):
            cuda.write(data, struct.pack("<24I", *range(24)))
            cooperate(cuda, function, [U64(data), U32(NONE)], 24, 64, stream)
            cuda.launch(count, [U64(counter)], grid=50, block=32, stream=stream)
            cuda("cuStreamSynchronize", stream)
            assert list(struct.unpack("<24I", cuda.read(data, 96))) == passed_on(24)

    for thread in [in_thread(body) for _ in range(4)]:
        finish(thread)
    assert struct.unpack("<I", cuda.read(counter, 4)) == (4 * 4 * 50 * 32,)


@on_device(RGPU_EMU_THREADS="2")
def test_a_grid_that_cannot_be_resident_is_refused(cuda: Device) -> None:
    cuda.open()
    function, data = cuda.function(load(cuda, PTX), "pass_on"), cuda.alloc(4 * 4096)
    most = resident(cuda, function, 32)
    assert most == 64
    cooperate(cuda, function, [U64(data), U32(NONE)], most, 32)
    cuda("cuCtxSynchronize")
    expect(720, lambda: cooperate(cuda, function, [U64(data), U32(NONE)], most + 1, 32))


@on_device(RGPU_EMU_THREADS="2")
def test_a_fault_in_one_block_ends_those_that_wait_for_it(cuda: Device) -> None:
    cuda.open()
    function, data = cuda.function(load(cuda, PTX), "pass_on"), cuda.alloc(4 * 40)
    cooperate(cuda, function, [U64(data), U32(20)], 40, 32)
    expect(700, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_a_grid_barrier_without_a_cooperative_launch_is_a_trap(cuda: Device) -> None:
    cuda.open()
    function, data = cuda.function(load(cuda, PTX), "pass_on"), cuda.alloc(4 * 4)
    cuda.launch(function, [U64(data), U32(NONE)], grid=4, block=32)
    expect(719, lambda: cuda("cuCtxSynchronize"))


@on_device(RGPU_EMU_THREADS="2")
def test_kernels_without_a_barrier_may_be_launched_cooperatively(cuda: Device) -> None:
    cuda.open()
    function, data = cuda.function(load(cuda, PTX), "count"), cuda.alloc(4)
    cuda("cuMemsetD32_v2", data, 0, 1)
    for grid in (1, 2, 30, 64):
        cooperate(cuda, function, [U64(data)], grid, 32)
    assert struct.unpack("<I", cuda.read(data, 4)) == (97 * 32,)


@on_device(RGPU_EMU_THREADS="2")
def test_cooperative_groups_of_cuda(cuda: Device) -> None:
    """`this_grid().sync()` as NVIDIA's header has it."""
    from ptx.nvrtc import compile_cuda

    cuda.open()
    module = load(cuda, compile_cuda(GROUPS, "-arch=compute_80", headers=True))
    function, count = cuda.function(module, "sums"), 20 * 48
    data, out = cuda.alloc(4 * count), cuda.alloc(4 * count)
    cuda.write(data, struct.pack(f"<{count}I", *range(count)))
    cooperate(cuda, function, [U64(data), U64(out)], 20, 48)
    total = sum(range(count))
    expected = [total - n * (n + 1) // 2 for n in range(count)]
    assert list(struct.unpack(f"<{count}I", cuda.read(out, 4 * count))) == expected


def archive(*members: tuple[bytes, bytes]) -> bytes:
    """An archive as `ar` writes it, with its table of symbols and of long names."""
    names, body = b"", b""

    def member(name: bytes, data: bytes) -> bytes:
        header = name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8)
        return header + str(len(data)).encode().ljust(10) + b"`\n" + data + b"\n" * (len(data) % 2)

    for name, data in members:
        body += member(b"/%d" % len(names) if len(name) > 15 else name + b"/", data)
        names += name + b"/\n" if len(name) > 15 else b""
    return b"!<arch>\n" + member(b"/", bytes(8)) + member(b"//", names) + body


@on_device()
def test_the_device_runtime_may_be_linked(cuda: Device) -> None:
    """numba links libcudadevrt.a with each kernel that has a grid barrier."""
    cuda.open()
    runtime = archive((b"cuda_device_runtime.o", b"\x7fELF and more"))

    def started() -> int:
        state = U64()
        cuda("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
        return state.value

    def add(state: int, kind: int, data: bytes) -> None:
        cuda("cuLinkAddData_v2", state, kind, data, len(data), b"x", 0, None, None)

    state = started()
    add(state, 1, PTX.encode())
    add(state, 4, runtime)
    image, size = ctypes.c_void_p(), ctypes.c_size_t()
    cuda("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
    module = cuda.out("cuModuleLoadData", image)
    function, data = cuda.function(module, "pass_on"), cuda.alloc(12)
    cuda.write(data, struct.pack("<3I", 0, 1, 2))
    cooperate(cuda, function, [U64(data), U32(NONE)], 3, 32)
    assert list(struct.unpack("<3I", cuda.read(data, 12))) == passed_on(3)
    cuda("cuLinkDestroy", state)

    state = started()
    expect(1, lambda: cuda("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size)))
    for bad in (
        archive((b"other.o", b"\x7fELF")),
        archive((b"cuda_device_runtime.o", b"\x7fELF"), (b"more.o", b"\x7fELF")),
        archive(),
        runtime[:-2],
        runtime[:100],
        runtime[:70],
        runtime.replace(b"`\n", b"``"),
        runtime.replace(b"/0 ", b"/9 "),
        runtime.replace(b"/0 ", b"/x "),
        b"!<arch>\n",
        b"\x7fELF",
        b"!<arch>",
    ):
        expect(209, lambda bad=bad: add(state, 4, bad))  # type: ignore[misc]
