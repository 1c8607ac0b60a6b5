"""Modules, libraries, the linker, functions, launches."""

from __future__ import annotations

import ctypes
import struct

from emu.device import CudaError, Device, expect, on_device
from emu.test_streams import NON_BLOCKING, hold, let_go

HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
PTX = (
    HEAD
    + """
.visible .global .align 4 .u32 counter = 5;
.visible .const .align 4 .f32 scale[2] = {0f3F800000, 0f40000000};
.global .align 8 .u64 pointer = counter;
.visible .entry add(.param .u64 p, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4];
  add.s32 %r7, %r6, 1;
  st.global.u32 [%rd4], %r7;
done:
  ret;
}
.visible .entry bump()
{
  .reg .b32 %r<3>; .reg .b64 %rd<3>;
  ld.global.u64 %rd1, [pointer];
  atom.add.u32 %r1, [%rd1], 1;
  ret;
}
.visible .entry wild(.param .u64 p)
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry small() .maxntid 64, 1, 1
{
  .shared .align 4 .b8 area[1024];
  .reg .b32 %r<2>;
  mov.u32 %r1, 1;
  st.shared.u32 [area], %r1;
  ret;
}
.visible .entry trap_() { trap; }
"""
)
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
VOID = ctypes.c_void_p


def load(cuda: Device, text: str = PTX) -> int:
    module: int = cuda.out("cuModuleLoadData", text.encode())
    return module


def attribute(cuda: Device, function: int, number: int) -> int:
    value: int = cuda.out("cuFuncGetAttribute", number, function, kind=ctypes.c_int)
    return value


@on_device()
def test_a_kernel_runs(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    data = cuda.alloc(4000)
    cuda("cuMemsetD32_v2", data, 41, 1000)
    for _ in range(10):
        cuda.launch(function, [U64(data), U32(999)], grid=8, block=128)
    assert struct.unpack("<1000I", cuda.read(data, 4000)) == (51,) * 999 + (41,)


@on_device()
def test_parameters_as_one_buffer(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "add")
    data = cuda.alloc(16)

    def launch(packed: bytes, size: int, key: int = 1) -> None:
        buffer, count = ctypes.create_string_buffer(packed, len(packed)), ctypes.c_size_t(size)
        extra = (VOID * 5)(key, ctypes.addressof(buffer), 2, ctypes.addressof(count), 0)
        cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, 0, None, extra)

    launch(struct.pack("<QI", data, 4), 12)
    assert cuda.read(data, 16) == struct.pack("<4I", 1, 1, 1, 1)
    expect(1, lambda: launch(struct.pack("<QI", data, 4), 11))
    expect(1, lambda: launch(struct.pack("<QI", data, 4), 12, key=7))
    expect(1, lambda: cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, 0, None, None))


@on_device()
def test_globals_have_their_size_and_their_initial_values(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    address, size = U64(), ctypes.c_size_t()
    cuda("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"scale")
    assert size.value == 8
    assert struct.unpack("<2f", cuda.read(address.value, 8)) == (1.0, 2.0)
    cuda("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"counter")
    assert size.value == 4
    cuda.launch(cuda.function(module, "bump"), [], grid=10, block=32)
    assert cuda.read(address.value, 4) == struct.pack("<I", 325)
    cuda.write(address.value, struct.pack("<I", 1))
    assert cuda.out("cuPointerGetAttribute", 2, address.value, kind=ctypes.c_uint) == 2
    expect(1, lambda: cuda.free(address.value))
    expect(500, lambda: cuda("cuModuleGetGlobal_v2", None, None, module, b"nothing"))
    cuda("cuModuleUnload", module)
    expect(1, lambda: cuda.read(address.value, 4))


@on_device()
def test_each_module_has_its_own_globals(cuda: Device) -> None:
    cuda.open()
    one, two = load(cuda), load(cuda)
    places = [cuda.out("cuModuleGetGlobal_v2", None, m, b"counter") for m in (one, two)]
    assert places[0] != places[1]
    cuda.launch(cuda.function(one, "bump"), [], grid=1, block=1)
    assert [cuda.read(p, 4)[0] for p in places] == [6, 5]


@on_device()
def test_modules_list_their_functions(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    count = cuda.out("cuModuleGetFunctionCount", module, kind=ctypes.c_uint)
    assert count == 5
    handles = (U64 * count)()
    cuda("cuModuleEnumerateFunctions", handles, count, module)
    names = set()
    for handle in handles:
        text = ctypes.c_char_p()
        cuda("cuFuncGetName", ctypes.byref(text), handle)
        names.add(text.value)
    assert names == {b"add", b"bump", b"wild", b"small", b"trap_"}
    function = cuda.function(module, "add")
    assert function in list(handles)
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuFuncGetParamInfo", function, 1, ctypes.byref(offset), ctypes.byref(size))
    assert (offset.value, size.value) == (8, 4)
    expect(1, lambda: cuda("cuFuncGetParamInfo", function, 2, ctypes.byref(offset), ctypes.byref(size)))
    assert cuda.out("cuFuncGetModule", function) == module
    expect(500, lambda: cuda.function(module, "nothing"))
    expect(400, lambda: cuda.function(12345, "add"))
    cuda("cuModuleUnload", module)
    expect(400, lambda: cuda.out("cuFuncGetModule", function))


@on_device()
def test_attributes_of_functions(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    add, small = cuda.function(module, "add"), cuda.function(module, "small")
    assert [attribute(cuda, add, n) for n in (0, 1, 5, 6, 8)] == [1024, 0, 70, 80, 49152]
    assert [attribute(cuda, small, n) for n in (0, 1, 8)] == [64, 1024, 49152 - 1024]
    expect(701, lambda: cuda.launch(small, [], block=65))
    expect(1, lambda: cuda.launch(small, [], block=32, shared=48129))
    cuda("cuFuncSetAttribute", small, 8, 100_000)
    cuda.launch(small, [], block=32, shared=100_000)
    cuda("cuCtxSynchronize")
    expect(1, lambda: cuda("cuFuncSetAttribute", small, 8, 163 * 1024))
    expect(1, lambda: cuda("cuFuncSetAttribute", small, 0, 5))
    expect(1, lambda: attribute(cuda, small, 99))


@on_device()
def test_bad_launches_are_refused_at_the_call(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    function = cuda.function(module, "bump")
    for grid, block in ((0, 1), (1, 0), (1, 1025)):
        expect(1, lambda grid=grid, block=block: cuda.launch(function, [], grid, block))  # type: ignore[misc]
    expect(1, lambda: cuda("cuLaunchKernel", function, 1, 65536, 1, 1, 1, 1, 0, 0, None, None))
    expect(1, lambda: cuda("cuLaunchKernel", function, 1, 1, 1, 1, 1, 65, 0, 0, None, None))
    expect(400, lambda: cuda.launch(0, []))
    expect(400, lambda: cuda.launch(function + 16, []))
    expect(400, lambda: cuda.launch(function, [], stream=77))
    expect(720, lambda: cuda("cuLaunchCooperativeKernel", function, 100_000, 1, 1, 32, 1, 1, 0, 0, None))
    cuda.launch(function, [])
    cuda("cuCtxSynchronize")
    cuda.out("cuCtxCreate_v2", 0, 0)
    expect(400, lambda: cuda.launch(function, []))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", U64), ("attributes", VOID), ("count", ctypes.c_uint),
    )  # fmt: skip


@on_device()
def test_launch_attributes(cuda: Device) -> None:
    cuda.open()
    function, stream = cuda.function(load(cuda), "bump"), cuda.stream()

    def launch(identifier: int, *value: int) -> None:
        raw = struct.pack("<ii", identifier, 0) + struct.pack(f"<{len(value)}i", *value)
        attributes = ctypes.create_string_buffer(raw, 72)
        config = LaunchConfig((1, 1, 1), (32, 1, 1), 0, stream, ctypes.addressof(attributes), 1)
        cuda("cuLaunchKernelEx", ctypes.byref(config), function, None, None)

    for accepted in (0, 8, 10):
        launch(accepted, 0)
    launch(2, 1)
    launch(4, 1, 1, 1)
    expect(912, lambda: launch(4, 2, 1, 1))
    expect(801, lambda: launch(13, 1))
    expect(801, lambda: launch(99, 1))
    cuda("cuStreamSynchronize", stream)


@on_device()
def test_libraries(cuda: Device) -> None:
    context = cuda.open()
    library = cuda.out("cuLibraryLoadData", PTX.encode(), None, None, 0, None, None, 0)
    assert cuda.out("cuLibraryGetKernelCount", library, kind=ctypes.c_uint) == 5
    kernel = cuda.out("cuLibraryGetKernel", library, b"add")
    assert cuda.out("cuLibraryGetKernel", library, b"add") == kernel
    assert cuda.out("cuKernelGetLibrary", kernel) == library
    assert cuda.out("cuKernelGetAttribute", 0, kernel, 0, kind=ctypes.c_int) == 1024
    data = cuda.alloc(4)
    cuda.launch(kernel, [U64(data), U32(1)])  # a kernel is good as a function
    function = cuda.out("cuKernelGetFunction", kernel)
    cuda.launch(function, [U64(data), U32(1)])
    assert cuda.read(data, 4) == struct.pack("<I", 2)
    cuda("cuKernelSetAttribute", 8, 60_000, kernel, 0)
    assert attribute(cuda, function, 8) == 60_000
    module = cuda.out("cuLibraryGetModule", library)
    assert cuda.out("cuLibraryGetGlobal", None, library, b"counter") == cuda.out(
        "cuModuleGetGlobal_v2", None, module, b"counter"
    )
    expect(800, lambda: cuda("cuModuleUnload", module))
    other = cuda.out("cuCtxCreate_v2", 0, 0)
    assert cuda.out("cuLibraryGetModule", library) != module
    cuda("cuCtxDestroy_v2", other)
    cuda("cuCtxSetCurrent", context)
    cuda("cuLibraryUnload", library)
    expect(400, lambda: cuda.out("cuKernelGetFunction", kernel))
    expect(400, lambda: cuda.launch(function, [U64(data), U32(1)]))


@on_device()
def test_unloading_waits_for_launches_under_way(cuda: Device) -> None:
    cuda.open()
    module, stream = load(cuda), cuda.stream(NON_BLOCKING)
    function, pinned = cuda.function(module, "add"), cuda.pinned(16)
    cuda("cuFuncLoad", function)
    flag = hold(cuda, stream)
    cuda.launch(function, [U64(pinned), U32(4)], block=4, stream=stream)
    let_go(cuda, flag)
    cuda("cuModuleUnload", module)
    cuda("cuStreamSynchronize", stream)
    assert bytes((ctypes.c_ubyte * 16).from_address(pinned)) == struct.pack("<4I", 1, 1, 1, 1)


@on_device()
def test_loading_is_lazy(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda), "bump")
    assert cuda.out("cuFuncIsLoaded", function, kind=ctypes.c_int) == 0
    cuda("cuFuncLoad", function)
    assert cuda.out("cuFuncIsLoaded", function, kind=ctypes.c_int) == 1


def link(cuda: Device, *texts: bytes, kind: int = 1) -> bytes:
    state, out, size = VOID(), VOID(), ctypes.c_size_t()
    cuda("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
    for text in texts:
        cuda("cuLinkAddData_v2", state, kind, text, len(text), b"part", 0, None, None)
    cuda("cuLinkComplete", state, ctypes.byref(out), ctypes.byref(size))
    image = ctypes.string_at(out.value or 0, size.value)
    cuda("cuLinkDestroy", state)
    expect(400, lambda: cuda("cuLinkDestroy", state))
    return image


CALLER = (
    HEAD
    + """
.extern .func (.param .b32 r) twice(.param .b32 a);
.visible .entry use(.param .u64 p)
{
  .reg .b32 %r<3>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  { .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r1;
    call.uni (r), twice, (a);
    ld.param.b32 %r2, [r]; }
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
)
CALLEE = (
    HEAD
    + """
.visible .func (.param .b32 r) twice(.param .b32 a)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [a];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [r], %r2;
  ret;
}
"""
)


@on_device()
def test_the_linker_resolves_between_texts(cuda: Device) -> None:
    cuda.open()
    image = link(cuda, CALLER.encode(), CALLEE.encode() + b"\0")
    assert image[:8] == b"RGPUIMG1"
    assert struct.unpack_from("<Q", image, 8)[0] == len(image)
    module = cuda.out("cuModuleLoadData", image)
    data = cuda.alloc(4)
    cuda("cuMemsetD32_v2", data, 21, 1)
    cuda.launch(cuda.function(module, "use"), [U64(data)])
    assert cuda.read(data, 4) == struct.pack("<I", 42)
    for wrong in (image[:-1] + b"!", image[:8] + b"\xff" * 8 + image[16:]):
        assert cuda.result("cuModuleLoadData", ctypes.byref(VOID()), wrong) != 0 or wrong[:-1] == image[:-1]


class Logs:
    """JIT options with both logs and the time."""

    def __init__(self) -> None:
        self.info, self.error = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(4096)
        self.options = (ctypes.c_int * 5)(2, 3, 4, 5, 6)
        self.values = (VOID * 5)(0, ctypes.addressof(self.info), 4096, ctypes.addressof(self.error), 4096)


@on_device()
def test_damaged_ptx_is_refused_with_a_log(cuda: Device) -> None:
    cuda.open()
    logs = Logs()
    text = PTX.replace("mov.u32 %r2, %tid.x;", "mov.u32 %r2, %nothing;")
    out = VOID()
    result = cuda.result("cuModuleLoadDataEx", ctypes.byref(out), text.encode(), 5, logs.options, logs.values)
    assert result == 218
    assert b"line" in logs.error.value
    assert logs.values[4] == len(logs.error.value) + 1
    state = VOID()
    cuda("cuLinkCreate_v2", 5, logs.options, logs.values, ctypes.byref(state))
    cuda("cuLinkAddData_v2", state, 1, text.encode(), len(text), b"x", 0, None, None)
    size = ctypes.c_size_t()
    assert cuda.result("cuLinkComplete", state, ctypes.byref(out), ctypes.byref(size)) == 218


@on_device()
def test_an_unknown_instruction_is_refused_by_name_at_load(cuda: Device) -> None:
    cuda.open()
    logs = Logs()
    text = PTX.replace("atom.add.u32 %r1, [%rd1], 1;", "frobnicate.sync.b32 %r1, %r1;")
    out = VOID()
    result = cuda.result("cuModuleLoadDataEx", ctypes.byref(out), text.encode(), 5, logs.options, logs.values)
    assert result in (218, 801)
    assert b"frobnicate.sync.b32" in logs.error.value


@on_device()
def test_machine_code_is_refused_with_what_to_set(cuda: Device) -> None:
    cuda.open()
    logs, out = Logs(), VOID()
    elf = b"\x7fELF" + bytes(100)
    result = cuda.result("cuModuleLoadDataEx", ctypes.byref(out), elf, 5, logs.options, logs.values)
    assert result == 209
    assert b"CUPY_COMPILE_WITH_PTX=1" in logs.error.value
    assert b"nvidia-nvjitlink" in logs.error.value
    expect(209, lambda: link(cuda, elf, kind=0))
    expect(200, lambda: cuda.out("cuModuleLoadData", b"hello"))
    expect(200, lambda: cuda.out("cuModuleLoadData", b""))
    expect(1, lambda: cuda("cuModuleLoadData", ctypes.byref(out), None))
    expect(301, lambda: cuda.out("cuModuleLoad", b"/nothing/here.ptx"))


def fatbin(*entries: tuple[int, int, int, bytes, int]) -> bytes:
    """Entries are (kind, target, flags, stored bytes, plain bytes)."""
    body = b""
    for kind, target, flags, stored, plain in entries:
        padded = stored + bytes(-len(stored) % 8)
        body += struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, len(padded), len(stored), 0, 0, target, 64, 0,
                            flags, 0, plain) + padded  # fmt: skip
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4(data: bytes) -> bytes:
    """Valid LZ4: literals only, but for runs of one byte."""
    out = b""
    rest = data[:-16]
    while rest:
        piece, rest = rest[:14], rest[14:]
        out += bytes([len(piece) << 4]) + piece + struct.pack("<H", 1) + b""
        # the match copies four bytes of the last one: undone by starting behind them
        if rest[:4] != piece[-1:] * 4:
            return bytes([0xF0]) + length(len(data) - 15) + data
        rest = rest[4:]
    return out


def length(count: int) -> bytes:
    return b"\xff" * (count // 255) + bytes([count % 255])


@on_device()
def test_fat_binaries(cuda: Device) -> None:
    cuda.open()
    text = PTX.encode() + b"\0"
    old, new = text, text.replace(b"counter = 5", b"counter = 9")
    image = fatbin((2, 90, 0, b"\x7fELF" + bytes(60), 0), (1, 52, 0, old, 0), (1, 80, 0x2000, lz4(new), len(new)),
                   (1, 90, 0, old, 0))  # fmt: skip
    buffer = ctypes.create_string_buffer(image, len(image))
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(buffer), 0)
    for given in (image, wrapper):
        module = cuda.out("cuModuleLoadData", given)
        place = cuda.out("cuModuleGetGlobal_v2", None, module, b"counter")
        assert cuda.read(place, 4) == struct.pack("<I", 9)
    expect(209, lambda: cuda.out("cuModuleLoadData", fatbin((2, 80, 0, bytes(64), 0))))
    expect(209, lambda: cuda.out("cuModuleLoadData", fatbin((1, 80, 0x8000, bytes(64), 100))))
    damaged = fatbin((1, 80, 0x2000, lz4(new), len(new) + 1))
    expect(200, lambda: cuda.out("cuModuleLoadData", damaged))
    expect(200, lambda: cuda.out("cuModuleLoadData", image[:16] + b"\xff" * 64 + image[80:]))


@on_device()
def test_occupancy(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    function, small = cuda.function(module, "bump"), cuda.function(module, "small")

    def blocks(handle: int, block: int, shared: int = 0) -> int:
        number: int = cuda.out(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", handle, block, shared, kind=ctypes.c_int
        )
        return number

    assert blocks(function, 1024) == 2
    assert blocks(function, 32) == 32
    assert blocks(function, 128) == 16
    assert blocks(function, 128, 80 * 1024) == 2
    assert blocks(function, 128, 164 * 1024) == 0
    assert blocks(small, 65) == 0
    grid, size = ctypes.c_int(), ctypes.c_int()
    cuda("cuOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(size), function, None, 0, 0)
    assert size.value == 1024
    assert grid.value == 2 * cuda.attribute(16)
    cuda("cuOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(size), small, None, 0, 0)
    assert size.value == 64
    assert cuda.out("cuOccupancyAvailableDynamicSMemPerBlock", function, 2, 128) == 81 * 1024


@on_device()
def test_a_wild_access_is_sticky(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    guarded = cuda.alloc(1000)
    cuda.launch(cuda.function(module, "wild"), [U64(guarded + 1024)])
    expect(700, lambda: cuda("cuCtxSynchronize"))
    for call in (lambda: cuda.alloc(4), lambda: cuda.read(guarded, 4), lambda: cuda("cuStreamSynchronize", 0)):
        expect(700, call)
    expect(700, lambda: cuda.out("cuCtxCreate_v2", 0, 0))
    assert cuda.attribute(10) == 32  # what is no matter of the context still answers


@on_device()
def test_a_null_access_and_a_host_address_are_illegal(cuda: Device) -> None:
    cuda.open()
    buffer = ctypes.create_string_buffer(64)
    cuda.launch(cuda.function(load(cuda), "wild"), [U64(ctypes.addressof(buffer))])
    expect(700, lambda: cuda("cuCtxSynchronize"))
    assert buffer.raw == bytes(64)


@on_device()
def test_a_trap_is_a_launch_failure(cuda: Device) -> None:
    cuda.open()
    cuda.launch(cuda.function(load(cuda), "trap_"), [])
    try:
        cuda("cuCtxSynchronize")
    except CudaError as error:
        assert error.result in (715, 719)  # noqa: PT017
    else:
        raise AssertionError("a trap went unnoticed")


@on_device()
def test_the_oldest_launch_calls(cuda: Device) -> None:
    cuda.open()
    function, data = cuda.function(load(cuda), "add"), cuda.alloc(256)
    pointer = U64(data)
    cuda("cuFuncSetBlockShape", function, 16, 1, 1)
    cuda("cuParamSetv", function, 0, ctypes.byref(pointer), 8)
    cuda("cuParamSeti", function, 8, 40)
    cuda("cuParamSetSize", function, 12)
    cuda("cuLaunchGrid", function, 3, 1)
    assert struct.unpack("<64I", cuda.read(data, 256)) == (1,) * 40 + (0,) * 24


@on_device(RGPU_EMU_MEMORY=str(32 << 20))
def test_local_memory_is_charged(cuda: Device) -> None:
    cuda.open()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    expect(2, lambda: cuda("cuCtxSetLimit", 0, 500_000))
    cuda("cuCtxSetLimit", 0, 2048)
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == total.value - 2048 * 2048 * cuda.attribute(16)
    cuda("cuCtxSetLimit", 0, 1024)
    cuda.free(cuda.alloc(32 << 20))
