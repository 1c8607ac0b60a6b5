"""Modules, libraries, functions, occupancy."""

from __future__ import annotations

import ctypes
import struct

from emu.device import Device, expect, on_device
from emu.graphs import KernelNode
from emu.holding import NON_BLOCKING, hold, let_go
from emu.kernels import HEAD, PTX, U32, U64, VOID, attribute, load


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
    expect(
        1, lambda: cuda("cuFuncGetParamInfo", function, 2, ctypes.byref(offset), ctypes.byref(size))
    )
    assert cuda.out("cuFuncGetModule", function) == module
    expect(500, lambda: cuda.function(module, "nothing"))
    expect(400, lambda: cuda.function(12345, "add"))
    expect(1, lambda: cuda.out("cuFuncGetName", 0))
    expect(1, lambda: cuda.out("cuKernelGetName", 0))
    cuda("cuModuleUnload", module)
    expect(400, lambda: cuda.out("cuFuncGetModule", function))


@on_device()
def test_attributes_of_functions(cuda: Device) -> None:
    cuda.open()
    module = load(cuda)
    add, small = cuda.function(module, "add"), cuda.function(module, "small")
    assert [attribute(cuda, add, n) for n in (0, 1, 5, 6, 8)] == [1024, 0, 70, 80, 49152]
    assert [attribute(cuda, small, n) for n in (0, 1, 8)] == [64, 1024, 49152 - 1024]
    # The kernel's own bound: an invalid value, as NVIDIA's driver says.
    expect(1, lambda: cuda.launch(small, [], block=65))
    expect(1, lambda: cuda.launch(small, [], block=32, shared=48129))
    cuda("cuFuncSetAttribute", small, 8, 100_000)
    cuda.launch(small, [], block=32, shared=100_000)
    cuda("cuCtxSynchronize")
    expect(1, lambda: cuda("cuFuncSetAttribute", small, 8, 163 * 1024))
    expect(1, lambda: cuda("cuFuncSetAttribute", small, 0, 5))
    expect(1, lambda: attribute(cuda, small, 99))


def busy(directives: str = "") -> bytes:
    """A kernel with 40 sums that are all live in its loop."""
    lines = [f"mov.u32 %r{n}, {n};" for n in range(40)]
    lines += ["again:", *(f"mad.lo.u32 %r{n}, %r{n}, 3, %r{(n + 7) % 40};" for n in range(40))]
    lines += ["setp.ne.u32 %p1, %r0, 0; @%p1 bra again;"]
    lines += [f"xor.b32 %r0, %r0, %r{n};" for n in range(1, 40)]
    body = "\n".join(lines)
    return (
        f"{HEAD}.visible .entry busy(.param .u64 p) {directives}\n{{ .reg .pred %p<2>;"
        f" .reg .b32 %r<40>; .reg .b64 %rd<2>;\n{body}\n"
        "ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], %r0; ret; }\n"
    ).encode()


def registers(cuda: Device, image: bytes, bound: int = 0) -> int:
    """CU_FUNC_ATTRIBUTE_NUM_REGS of the kernel, loaded with CU_JIT_MAX_REGISTERS."""
    options, values = (ctypes.c_int * 1)(0), (VOID * 1)(bound)
    module = cuda.out("cuModuleLoadDataEx", image, int(bound > 0), options, values)
    return attribute(cuda, cuda.function(module, "busy"), 4)


@on_device()
def test_a_bound_on_registers_is_reported_back(cuda: Device) -> None:
    cuda.open()
    free = registers(cuda, busy())
    assert 40 < free <= 64  # 64 are there for each thread of the largest block
    for bound, directives in ((0, ".maxnreg 24"), (24, ""), (24, ".maxnreg 32")):
        assert registers(cuda, busy(directives), bound) == 24, directives
    assert registers(cuda, busy(), 128) == free
    assert registers(cuda, busy(".maxntid 1024 .minnctapersm 2")) == 32
    state, out, size = VOID(), VOID(), ctypes.c_size_t()
    options, values = (ctypes.c_int * 1)(0), (VOID * 1)(24)
    cuda("cuLinkCreate_v2", 1, options, values, ctypes.byref(state))
    text = busy()
    cuda("cuLinkAddData_v2", state, 1, text, len(text), b"x", 0, None, None)
    cuda("cuLinkComplete", state, ctypes.byref(out), ctypes.byref(size))
    assert registers(cuda, ctypes.string_at(out.value or 0, size.value)) == 24
    cuda("cuLinkDestroy", state)


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
    cuda(
        "cuOccupancyMaxPotentialBlockSize",
        ctypes.byref(grid),
        ctypes.byref(size),
        function,
        None,
        0,
        0,
    )
    assert size.value == 1024
    assert grid.value == 2 * cuda.attribute(16)
    cuda(
        "cuOccupancyMaxPotentialBlockSize",
        ctypes.byref(grid),
        ctypes.byref(size),
        small,
        None,
        0,
        0,
    )
    assert size.value == 64
    # What a launch may ask for: 48 KiB, unless the function opts in to more.
    assert cuda.out("cuOccupancyAvailableDynamicSMemPerBlock", function, 2, 128) == 48 * 1024
    assert cuda.out("cuOccupancyAvailableDynamicSMemPerBlock", function, 8, 128) == 19.5 * 1024
    cuda("cuFuncSetAttribute", function, 8, 100 * 1024)
    assert cuda.out("cuOccupancyAvailableDynamicSMemPerBlock", function, 2, 128) == 81 * 1024


PRIVATE = (
    HEAD
    + """
.const .align 4 .u32 table[2] = {3, 4};
.global .align 4 .u32 count = VALUE;
.visible .entry tick()
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  .global .align 4 .u32 own = 9;
  mov.u64 %rd1, count;
  atom.global.add.u32 %r1, [%rd1], 1;
  ret;
}
"""
)


@on_device()
def test_variables_without_visible_are_found_in_their_own_module(cuda: Device) -> None:
    cuda.open()
    modules = [load(cuda, PRIVATE.replace("VALUE", n)) for n in ("10", "20")]
    places = [cuda.out("cuModuleGetGlobal_v2", None, m, b"count") for m in modules]
    cuda.launch(cuda.function(modules[1], "tick"), [])
    assert [cuda.read(p, 4)[0] for p in places] == [10, 21]
    tables = [cuda.out("cuModuleGetGlobal_v2", None, m, b"table") for m in modules]
    assert [cuda.read(p, 8) for p in tables] == [struct.pack("<II", 3, 4)] * 2
    assert len({*places, *tables}) == 4
    # A variable of a function is nobody else's.
    expect(500, lambda: cuda("cuModuleGetGlobal_v2", None, None, modules[0], b"own"))


@on_device()
def test_of_linked_inputs_the_visible_variable_is_found(cuda: Device) -> None:
    cuda.open()
    own = f"{HEAD}.global .u32 value = 1;\n.visible .entry a() {{ ret; }}\n"
    shared = f"{HEAD}.visible .global .u32 value = 2;\n.visible .entry b() {{ ret; }}\n"
    state, out, size = VOID(), VOID(), ctypes.c_size_t()
    cuda("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
    for text in (own, shared):
        data = text.encode() + b"\0"
        cuda("cuLinkAddData_v2", state, 1, data, len(data), None, 0, None, None)
    cuda("cuLinkComplete", state, ctypes.byref(out), ctypes.byref(size))
    module = cuda.out("cuModuleLoadData", out)
    place = cuda.out("cuModuleGetGlobal_v2", None, module, b"value")
    assert cuda.read(place, 4)[0] == 2
    cuda("cuLinkDestroy", state)


REQUIRED = f"{HEAD}.visible .entry fixed() .reqntid 8, 4\n{{ ret; }}\n"


@on_device()
def test_a_block_that_reqntid_does_not_name_is_refused_in_every_path(cuda: Device) -> None:
    cuda.open()
    fixed = cuda.function(load(cuda, REQUIRED), "fixed")
    assert attribute(cuda, fixed, 0) == 32

    def launch(*block: int) -> int:
        return cuda.result("cuLaunchKernel", fixed, 1, 1, 1, *block, 0, 0, None, None)

    def cooperative(*block: int) -> int:
        return cuda.result("cuLaunchCooperativeKernel", fixed, 1, 1, 1, *block, 0, 0, None)

    def node(*block: int) -> int:
        params = KernelNode(func=fixed, grid=(1, 1, 1), block=block)
        graph, made = cuda.out("cuGraphCreate", 0), U64()
        return cuda.result(
            "cuGraphAddKernelNode_v2", ctypes.byref(made), graph, None, 0, ctypes.byref(params)
        )

    for path in (launch, cooperative, node):
        assert path(8, 4, 1) == 0
        for block in ((32, 1, 1), (4, 8, 1), (8, 2, 1), (8, 4, 2), (1, 1, 1)):
            assert path(*block) == 1, (path, block)
    cuda("cuCtxSynchronize")
