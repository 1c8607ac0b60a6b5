"""PTX, fat binaries, linked images, machine code; logs."""

from __future__ import annotations

import ctypes
import struct

from emu.device import Device, expect, on_device
from emu.kernels import CALLEE, CALLER, HEAD, PTX, U64, VOID


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
        assert (
            cuda.result("cuModuleLoadData", ctypes.byref(VOID()), wrong) != 0
            or wrong[:-1] == image[:-1]
        )


class Logs:
    """JIT options with both logs and the time."""

    def __init__(self) -> None:
        self.info, self.error = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(4096)
        self.options = (ctypes.c_int * 5)(2, 3, 4, 5, 6)
        self.values = (VOID * 5)(
            0, ctypes.addressof(self.info), 4096, ctypes.addressof(self.error), 4096
        )


@on_device()
def test_the_linker_names_what_no_input_defines(cuda: Device) -> None:
    cuda.open()
    logs, state = Logs(), VOID()
    cuda("cuLinkCreate_v2", 5, logs.options, logs.values, ctypes.byref(state))
    for name, text in ((b"first", PTX.encode()), (b"second.ptx", CALLER.encode())):
        cuda("cuLinkAddData_v2", state, 1, text, len(text), name, 0, None, None)
    out, size = VOID(), ctypes.c_size_t()
    expect(218, lambda: cuda("cuLinkComplete", state, ctypes.byref(out), ctypes.byref(size)))
    assert logs.error.value == b"error   : Undefined reference to 'twice' in 'second.ptx'"
    cuda("cuLinkDestroy", state)


@on_device()
def test_damaged_ptx_is_refused_with_a_log(cuda: Device) -> None:
    cuda.open()
    logs = Logs()
    text = PTX.replace("mov.u32 %r2, %tid.x;", "mov.u32 %r2, %nothing;")
    out = VOID()
    result = cuda.result(
        "cuModuleLoadDataEx", ctypes.byref(out), text.encode(), 5, logs.options, logs.values
    )
    assert result == 218
    assert b"line" in logs.error.value
    assert logs.values[4] == len(logs.error.value) + 1
    state = VOID()
    cuda("cuLinkCreate_v2", 5, logs.options, logs.values, ctypes.byref(state))
    cuda("cuLinkAddData_v2", state, 1, text.encode(), len(text), b"x", 0, None, None)
    size = ctypes.c_size_t()
    assert cuda.result("cuLinkComplete", state, ctypes.byref(out), ctypes.byref(size)) == 218


@on_device()
def test_an_instruction_that_the_device_lacks_refuses_its_kernel_and_the_others_run(
    cuda: Device,
) -> None:
    cuda.open()
    logs, out = Logs(), VOID()
    text = PTX.replace("atom.add.u32 %r1, [%rd1], 1;", "mapa.u32 %r1, %r1, 0;").encode()
    cuda("cuModuleLoadDataEx", ctypes.byref(out), text, 5, logs.options, logs.values)
    line = 1 + text[: text.index(b"mapa")].count(b"\n")
    assert logs.info.value.startswith(b"warning: line %d: instruction 'mapa.u32'" % line)
    assert b"kernel 'bump' is refused" in logs.info.value
    assert logs.error.value == b""
    module = out.value or 0
    expect(801, lambda: cuda.function(module, "bump"))
    data = cuda.alloc(4)
    cuda("cuMemsetD32_v2", data, 21, 1)
    cuda.launch(cuda.function(module, "add"), [U64(data), ctypes.c_uint32(1)])
    assert cuda.read(data, 4) == struct.pack("<I", 22)
    # An enumerated kernel has a name and nothing else.
    handles = (U64 * 5)()
    assert cuda.out("cuModuleGetFunctionCount", module, kind=ctypes.c_uint) == 5
    assert cuda.result("cuModuleEnumerateFunctions", handles, 5, module) == 801
    names = {cuda.out("cuFuncGetName", handle, kind=ctypes.c_char_p): handle for handle in handles}
    expect(801, lambda: cuda("cuFuncLoad", names[b"bump"]))
    expect(801, lambda: cuda.launch(names[b"bump"], []))
    cuda.launch(names[b"add"], [U64(data), ctypes.c_uint32(1)])
    refused_in_a_library(cuda, text)


def refused_in_a_library(cuda: Device, text: bytes) -> None:
    library = cuda.out("cuLibraryLoadData", text, None, None, 0, None, None, 0)
    expect(801, lambda: cuda.out("cuLibraryGetKernel", library, b"bump"))
    kernels = (U64 * 5)()
    assert cuda.result("cuLibraryEnumerateKernels", kernels, 5, library) == 801
    results = [cuda.result("cuKernelGetFunction", ctypes.byref(VOID()), k) for k in kernels]
    assert sorted(results) == [0, 0, 0, 0, 801]


@on_device()
def test_an_instruction_that_the_device_lacks_in_every_kernel_refuses_the_module(
    cuda: Device,
) -> None:
    cuda.open()
    logs, out = Logs(), VOID()
    text = HEAD + ".visible .entry k()\n{\n  mapa.u32;\n  ret;\n}\n"
    loaded = cuda.result(
        "cuModuleLoadDataEx", ctypes.byref(out), text.encode(), 5, logs.options, logs.values
    )
    assert loaded == 801
    assert logs.error.value.startswith(b"line 6: instruction 'mapa.u32'")


@on_device()
def test_wrong_types_are_refused_with_the_line_when_the_module_is_loaded(cuda: Device) -> None:
    cuda.open()
    logs, out = Logs(), VOID()
    text = PTX.replace("add.s32 %r7, %r6, 1;", "add.s32 %rd4, %r6, 1;").encode()
    result = cuda.result(
        "cuModuleLoadDataEx", ctypes.byref(out), text, 5, logs.options, logs.values
    )
    assert result == 218
    line = 1 + text[: text.index(b"add.s32 %rd4")].count(b"\n")
    assert logs.error.value == (
        b"line %d: instruction 'add.s32': the register %%rd4 (.b64) does not fit the instruction's "
        b"type of 32 bits: use a register of that width, or convert with cvt" % line
    )
    library = cuda.result(
        "cuLibraryLoadData", ctypes.byref(out), text, None, None, 0, None, None, 0
    )
    assert library == 218


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


RESULT_TEXTS = (
    # (declaration and use, definition, the value that the use stores)
    (
        CALLER,
        CALLEE.replace("(.param .b32 r) twice", "twice").replace("st.param.b32 [r], %r2;", ""),
        0,
    ),
    (
        CALLER.replace("(.param .b32 r) twice", "twice").replace("call.uni (r), ", "call.uni "),
        CALLEE,
        0,
    ),
)


@on_device()
def test_a_function_with_a_result_on_one_side_links(cuda: Device) -> None:
    """Declared with a result and defined without one, and the reverse; also where it suspends."""
    cuda.open()
    data = cuda.alloc(4)
    for caller, callee, stored in RESULT_TEXTS:
        for suspending in ("", "bar.warp.sync 1;"):
            body = callee.replace("add.s32", f"{suspending} add.s32")
            module = cuda.out("cuModuleLoadData", link(cuda, caller.encode(), body.encode()))
            cuda("cuMemsetD32_v2", data, 21, 1)
            cuda.launch(cuda.function(module, "use"), [U64(data)])
            assert cuda.read(data, 4) == struct.pack("<I", stored)


def fatbin(*entries: tuple[int, int, int, bytes, int]) -> bytes:
    """Entries are (kind, target, flags, stored bytes, plain bytes)."""
    body = b""
    for kind, target, flags, stored, plain in entries:
        padded = stored + bytes(-len(stored) % 8)
        body += (
            struct.pack(
                "<HHIQIIIIIIQQQ",
                kind,
                0x101,
                64,
                len(padded),
                len(stored),
                0,
                0,
                target,
                64,
                0,
                flags,
                0,
                plain,
            )
            + padded
        )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4(data: bytes) -> bytes:
    """A small LZ4 encoder: every four bytes seen before become a match."""
    out, literals, at = b"", b"", 0
    seen: dict[bytes, int] = {}
    while at < len(data) - 12:
        key, before = data[at : at + 4], seen.get(data[at : at + 4])
        seen[key] = at
        if before is None or at - before > 65535:
            literals += data[at : at + 1]
            at += 1
            continue
        count = 4
        while at + count < len(data) - 5 and data[before + count] == data[at + count]:
            count += 1
        out += sequence(literals, count - 4) + struct.pack("<H", at - before) + longer(count - 4)
        literals, at = b"", at + count
    return out + sequence(literals + data[at:], 0)


def sequence(literals: bytes, match: int) -> bytes:
    """A token and its literals."""
    return bytes([min(len(literals), 15) << 4 | min(match, 15)]) + longer(len(literals)) + literals


def longer(count: int) -> bytes:
    return b"" if count < 15 else b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])


@on_device()
def test_code_for_other_architectures_is_refused_by_name(cuda: Device) -> None:
    """`a` and `f` run on one architecture or family alone, the others on later devices too."""
    cuda.open()
    for target, runs in (
        ("sm_90a", "sm_90 alone"),
        ("sm_100f", "sm_100 and its family alone"),
        ("sm_120", "sm_120 or later"),
        ("sm_86, debug", "sm_86 or later"),
        ("compute_90", "sm_90 or later"),
    ):
        logs, out = Logs(), VOID()
        text = PTX.replace("sm_70", target).encode()
        result = cuda.result(
            "cuModuleLoadDataEx", ctypes.byref(out), text, 5, logs.options, logs.values
        )
        assert result == 218, target
        sentence = f"line 2: code for .target {target.split(',')[0]} runs on {runs}, and this"
        assert sentence.encode() in logs.error.value, logs.error.value
        assert b"device is sm_80" in logs.error.value
        expect(218, lambda text=text: link(cuda, text))  # type: ignore[misc]
    for target in ("sm_80", "sm_52", "compute_75", "sm_80, debug"):
        cuda.out("cuModuleLoadData", PTX.replace("sm_70", target).encode())


@on_device()
def test_a_fat_binary_gives_the_newest_ptx_that_is_allowed(cuda: Device) -> None:
    cuda.open()
    texts = {n: PTX.replace("counter = 5", f"counter = {n}").encode() + b"\0" for n in (50, 75)}
    newer = PTX.replace("sm_70", "sm_120").encode() + b"\0"
    image = fatbin((1, 120, 0, newer, 0), (1, 75, 0, texts[75], 0), (1, 50, 0, texts[50], 0))
    module = cuda.out("cuModuleLoadData", image)
    place = cuda.out("cuModuleGetGlobal_v2", None, module, b"counter")
    assert cuda.read(place, 4) == struct.pack("<I", 75)
    logs, out = Logs(), VOID()
    late = fatbin((1, 120, 0, newer, 0), (1, 90, 0, newer, 0))
    result = cuda.result(
        "cuModuleLoadDataEx", ctypes.byref(out), late, 5, logs.options, logs.values
    )
    assert result == 209
    assert b"is for sm_90, and this device is sm_80" in logs.error.value


@on_device()
def test_fat_binaries(cuda: Device) -> None:
    cuda.open()
    text = PTX.encode() + b"\0"
    old, new = text, text.replace(b"counter = 5", b"counter = 9")
    image = fatbin(
        (2, 90, 0, b"\x7fELF" + bytes(60), 0),
        (1, 52, 0, old, 0),
        (1, 80, 0x2000, lz4(new), len(new)),
        (1, 90, 0, old, 0),
    )
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
    # The most bytes that a small image may unpack to: 16 times a page, whatever LZ4 could do.
    for size, result in ((60_000, 0), (70_000, 200)):
        padded = text[:-1] + b"\n" * (size - len(text)) + b"\0"
        packed = fatbin((1, 80, 0x2000, lz4(padded), len(padded)))
        assert len(packed) < 4096
        assert cuda.result("cuModuleLoadData", ctypes.byref(VOID()), packed) == result
    expect(200, lambda: cuda.out("cuModuleLoadData", image[:16] + b"\xff" * 64 + image[80:]))
