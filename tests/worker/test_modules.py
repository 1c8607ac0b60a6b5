"""Images, modules, libraries, the linker, launches."""

import struct
import sys

import pytest

from rgpu_common.wire.messages import Notice
from worker.client import LEGACY, session
from worker.images import LIMIT, PTX, launch, load, put_image

INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_PTX = 1, 2, 200, 218
INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS = 400, 500, 700


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGPU_EMU_COMPILER", f"{sys.executable} -m rgpu_emu.compiler")


def test_a_module_is_loaded_asked_and_run() -> None:
    with session("--memory", str(LIMIT)) as client:
        load(client)
        facts = client.call("rgpuModuleGetFunction", module=40, name=b"add", function=41)
        assert facts["params"] == struct.pack("<4I", 0, 8, 8, 4)
        assert len(bytes(facts["attributes"])) == 19 * 4
        names = client.call("rgpuFunctionNames", module=40, library=0)["names"]
        assert sorted(bytes(names).split(b"\0")[:-1]) == [b"add", b"deep"]
        out = client.alloc(128)
        launch(client, struct.pack("<QI", out, 100))
        assert struct.unpack("<32I", client.download(out, 128)) == tuple(
            100 + 5 * i for i in range(32)
        )
        step = client.call("rgpuModuleGetGlobal", module=40, name=b"step")
        assert step["size"] == 4
        client.upload(int(step["dptr"]), struct.pack("<I", 7))
        launch(client, struct.pack("<QI", out, 1))
        assert struct.unpack("<32I", client.download(out, 128)) == tuple(
            1 + 7 * i for i in range(32)
        )
        assert (
            client.result("rgpuModuleGetFunction", module=40, name=b"none", function=42).status
            == NOT_FOUND
        )
        assert (
            client.result("rgpuModuleGetFunction", module=40, name=b"add\0x", function=42).status
            == INVALID_VALUE
        )


def test_a_library_and_its_kernels() -> None:
    with session() as client:
        put_image(client, 39, PTX)
        client.call(
            "rgpuLibraryLoad",
            library=50,
            image=39,
            options=b"",
            info_log_bytes=0,
            error_log_bytes=0,
        )
        client.call("rgpuLibraryGetKernel", library=50, name=b"add", kernel=51)
        client.call("rgpuKernelGetFunction", kernel=51, function=52)
        client.call("rgpuLibraryGetModule", library=50, module=53)
        out = client.alloc(128)
        for function, kernel in ((0, 51), (52, 0)):
            launch(client, struct.pack("<QI", out, function), function=function, kernel=kernel)
            assert struct.unpack_from("<2I", client.download(out, 128)) == (function, function + 5)
        client.post("rgpuModuleUnload", module=53)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 800, "it is the library's"
        client.post("rgpuLibraryUnload", library=50)
        launch(client, struct.pack("<QI", out, 0), function=52)
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_HANDLE


def test_unloading_gives_back_what_loading_took() -> None:
    with session("--memory", str(LIMIT)) as client:
        free = client.call("rgpuMemGetInfo")["free"]
        big = PTX.replace(
            b".visible .global .align 4 .u32 step = 5;",
            b".visible .global .align 4 .u32 step = 5;\n"
            b".visible .global .align 16 .b8 table[67108864];",
        )
        load(client, data=big)
        assert int(client.call("rgpuMemGetInfo")["free"]) <= int(free) - (64 << 20), (
            "globals are charged"
        )
        client.post("rgpuModuleUnload", module=40)
        assert client.call("rgpuMemGetInfo")["free"] == free
        client.alloc(LIMIT - (32 << 20))
        put_image(client, 39, big)
        loading = {
            "module": 43,
            "image": 39,
            "options": b"",
            "info_log_bytes": 0,
            "error_log_bytes": 0,
        }
        assert client.result("rgpuModuleLoad", **loading).status == OUT_OF_MEMORY
        assert (
            client.result("rgpuModuleGetFunction", module=43, name=b"add", function=44).status
            == INVALID_HANDLE
        )


def test_the_stack_of_a_launch_is_charged_or_refused() -> None:

    with session("--memory", str(LIMIT)) as client:
        load(client)
        client.call("rgpuModuleGetFunction", module=40, name=b"deep", function=41)
        out = client.alloc(512)
        free = int(client.call("rgpuMemGetInfo")["free"])
        launch(client, struct.pack("<Q", out))
        status = client.result("rgpuContextSynchronize", ctx=10).status
        taken = free - int(client.call("rgpuMemGetInfo")["free"])
        assert status == OUT_OF_MEMORY if taken == 0 else taken >= 16384 * 32


def test_errors_of_an_image_come_with_their_log() -> None:
    with session() as client:
        put_image(client, 39, PTX.replace(b"mad.lo.u32", b"mad.lo.u32 %nothing,"))
        loading = {"module": 40, "options": b"", "info_log_bytes": 1000, "error_log_bytes": 1000}
        answer = client.result("rgpuModuleLoad", image=39, **loading)
        assert answer.status != 0
        assert b"nothing" in bytes(answer.values["error_log"])
        assert client.result("rgpuModuleLoad", image=39, **loading).status == INVALID_HANDLE, (
            "consumed"
        )


def test_images_that_lie_about_their_length() -> None:
    with session() as client:
        loading = {"module": 40, "options": b"", "info_log_bytes": 0, "error_log_bytes": 0}
        fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40) + b"x" * 100
        elf = (b"\x7fELF" + b"\2" * 36 + struct.pack("<Q", 1 << 50)).ljust(64, b"\1")
        # The address of the program's own memory, or of anything, in place of an image.
        wrapper = struct.pack("<IIQQ", 0x466243B1, 1, 8, 0)
        linked = b"RGPUIMG1" + struct.pack("<QI", 1 << 31, 1000)
        short = b"RGPUIMG1" + struct.pack("<QI", 20, 1)
        for lie in (
            fatbin, elf, fatbin[:8], wrapper, wrapper[:4], linked, linked[:4], linked[:10], short,
            short + b"x",
        ):  # fmt: skip
            put_image(client, 39, lie)
            assert client.result("rgpuModuleLoad", image=39, **loading).status == INVALID_IMAGE
        client.post("rgpuImagePut", image=60, offset=0, total=100, bulk=b"half")
        assert client.result("rgpuModuleLoad", image=60, **loading).status == INVALID_IMAGE
        client.post("rgpuImagePut", image=61, offset=0, total=10, bulk=b"more than ten bytes")
        client.post("rgpuImagePut", image=62, offset=5, total=10, bulk=b"no beginning")
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_VALUE


def test_images_are_bounded() -> None:
    with session() as client:
        client.post("rgpuImagePut", image=60, offset=0, total=(256 << 20) + 1, bulk=b"x")
        client.post("rgpuImagePut", image=60, offset=1, total=(256 << 20) + 1, bulk=b"x")
        assert client.result("rgpuContextSynchronize", ctx=10).status == OUT_OF_MEMORY
        for image in range(100, 164):
            client.post("rgpuImagePut", image=image, offset=0, total=100, bulk=b"x")
        client.post("rgpuImagePut", image=200, offset=0, total=100, bulk=b"x")
        assert client.result("rgpuContextSynchronize", ctx=10).status == OUT_OF_MEMORY


def test_options_with_addresses_are_refused() -> None:
    with session() as client:
        put_image(client, 39, PTX)
        options = struct.pack("<iQ", 3, 0x1000)  # a log buffer: the worker has its own
        loading = {"module": 40, "image": 39, "info_log_bytes": 0, "error_log_bytes": 0}
        assert client.result("rgpuModuleLoad", options=options, **loading).status == 801
        put_image(client, 38, PTX)
        loading["image"] = 38
        assert client.result("rgpuModuleLoad", options=b"short", **loading).status == INVALID_VALUE


def test_the_linker() -> None:
    with session() as client:
        client.call("rgpuLinkCreate", link=70, options=b"", info_log_bytes=500, error_log_bytes=500)
        put_image(client, 39, PTX)
        client.call("rgpuLinkAddData", link=70, type=1, image=39, name=b"a.ptx", options=b"")
        answer = client.result("rgpuLinkComplete", link=70, limit=1 << 20)
        assert answer.status == 0
        assert len(answer.data) == answer.values["size"]
        client.post("rgpuLinkDestroy", link=70)
        load(client, data=answer.data)
        client.call("rgpuModuleGetFunction", module=40, name=b"add", function=41)


def test_occupancy() -> None:
    with session() as client:
        load(client)
        client.call("rgpuModuleGetFunction", module=40, name=b"add", function=41)
        common = {"function": 41, "kernel": 0, "dynamic": 0, "flags": 0}
        assert (
            int(client.call("rgpuOccupancy", what=0, block_size=128, blocks=0, **common)["value"])
            > 0
        )
        best = client.call("rgpuOccupancyBlockSize", limit=0, table=b"", **common)
        assert int(best["block_size"]) > 0
        assert int(best["min_grid"]) > 0


def test_a_wild_access_ends_this_session_only_with_its_error() -> None:
    with session() as client, session() as other:
        load(client)
        client.call("rgpuModuleGetFunction", module=40, name=b"add", function=41)
        launch(client, struct.pack("<QI", 0xDEAD0000, 1))
        assert client.result("rgpuContextSynchronize", ctx=10).status == ILLEGAL_ADDRESS
        assert "ILLEGAL_ADDRESS" in client.sticky()
        assert client.result("rgpuMemAlloc", bytes=512).status == ILLEGAL_ADDRESS
        assert client.result("rgpuPing", echo=1, thread=9).status == ILLEGAL_ADDRESS
        assert other.alloc(4096)


def test_launches_that_cannot_be() -> None:
    with session() as client:
        load(client)
        client.call("rgpuModuleGetFunction", module=40, name=b"add", function=41)
        shape = {
            "grid_y": 1,
            "grid_z": 1,
            "block_x": 1,
            "block_y": 1,
            "block_z": 1,
            "shared_bytes": 0,
            "stream": LEGACY,
        }
        common = {"kernel": 0, "flags": 0, "params": struct.pack("<QI", 0, 0), **shape}
        client.post("rgpuLaunch", function=99, grid_x=1, **common)
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_HANDLE
        client.post("rgpuLaunch", function=41, grid_x=0, **common)
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_VALUE


PRINTS = b"""
.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[10] = {104, 101, 108, 108, 111, 32, 37, 100, 10, 0};
.visible .entry say(.param .u32 number)
{
    .local .align 8 .b8 buffer[8];
    .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u32 %r0, [number];
    mov.u64 %d0, buffer;
    st.local.u32 [%d0], %r0;
    cvta.local.u64 %d1, %d0;
    mov.u64 %d2, text;
    cvta.global.u64 %d2, %d2;
    {
        .param .b64 a; st.param.b64 [a], %d2;
        .param .b64 b; st.param.b64 [b], %d1;
        .param .b32 c;
        call.uni (c), vprintf, (a, b);
        ld.param.b32 %r1, [c];
    }
    ret;
}
"""


def test_what_a_kernel_prints_comes_before_the_wait_that_is_behind_it() -> None:
    with session() as client:
        load(client, data=PRINTS)
        client.call("rgpuModuleGetFunction", module=40, name=b"say", function=41)
        launch(client, struct.pack("<I", 42))
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        printed = [
            str(fields["text"]) for notice, fields, _ in client.notices if notice is Notice.LOG
        ]
        assert "".join(printed).count("hello 42") == 32
