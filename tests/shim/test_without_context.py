"""Calls without a current context: code that belongs to no context, facts of addresses, and
functions that need one.
"""

from __future__ import annotations

import pytest
from helpers import clients

from cudaspec.load import load
from rgpu_common.parts import compiled_part

PTX = r"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 out) {
  .reg .b64 %a;
  ld.param.u64 %a, [out];
  st.global.u32 [%a], 42;
  ret;
}
"""

HEAD = f"""
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p, cast, create_string_buffer
PTX = {PTX!r}.encode()
cuda("cuInit", 0)

def made(name, *arguments):
    handle = c_uint64()
    cuda(name, byref(handle), *arguments)
    return handle

def load():
    library = made("cuLibraryLoadData", create_string_buffer(PTX), None, None, 0, None, None, 0)
    return library, made("cuLibraryGetKernel", library, b"fill")
"""

# What a program then does with a kernel.
LAUNCH = """
address = made("cuMemAlloc_v2", c_size_t(4))
arguments = (c_void_p * 1)(cast(byref(address), c_void_p))
cuda("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
value = c_int()
cuda("cuMemcpyDtoH_v2", byref(value), address, c_size_t(4))
print(value.value)
"""

EMULATED = f"cuda = Driver({str(compiled_part('rgpu_emu', 'lib/librgpu_emu.so'))!r})\n"
NEEDS_CONTEXT = {
    call.name: len(call.prototype.parameters) for call in load().calls.values() if call.row.current
}


def _said(server: str, source: str) -> list[str]:
    code, output, errors = clients.run(server, HEAD + source)
    assert code == 0, errors
    return output.split()


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="no context at all"),
        pytest.param("context = made('cuDevicePrimaryCtxRetain', 0)", id="none is current"),
    ],
)
def test_a_library_is_loaded(server: str, before: str) -> None:
    source = f"""
{before}
library, kernel = load()
name = c_char_p()
cuda("cuKernelGetName", byref(name), kernel)
limit = c_int()
cuda("cuKernelGetAttribute", byref(limit), 0, kernel, 0)
cuda("cuKernelSetAttribute", 8, 1024, kernel, 0)
print(name.value.decode(), limit.value, cuda.result("cuKernelGetFunction", byref(c_uint64()), kernel))
cuda("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0))
{LAUNCH}
print(cuda.result("cuLibraryUnload", library))
"""
    assert _said(server, source) == ["fill", "1024", "201", "42", "0"]


def test_an_address_says_its_context(server: str) -> None:
    source = """
context = made("cuDevicePrimaryCtxRetain", 0)
cuda("cuCtxSetCurrent", context)
address = made("cuMemAlloc_v2", c_size_t(4))
cuda("cuCtxSetCurrent", None)
print(made("cuPointerGetAttribute", 1, address).value == context.value)
kind, place = c_uint(7), c_int(7)
asked = (c_uint * 2)(2, 9)
answers = (c_void_p * 2)(cast(byref(kind), c_void_p), cast(byref(place), c_void_p))
for where in (address, c_uint64(4096)):
    cuda("cuPointerGetAttributes", 2, asked, answers, where)
    print(kind.value, place.value)
"""
    assert _said(server, source) == ["True", "2", "0", "0", "-2"]


def test_no_bytes_of_a_pool_are_the_null_address(server: str) -> None:
    source = """
cuda("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0))
pool = made("cuDeviceGetDefaultMemPool", 0)
for address in (
    made("cuMemAllocAsync", c_size_t(0), None),
    made("cuMemAllocFromPoolAsync", c_size_t(0), pool, None),
):
    cuda("cuMemFreeAsync", address, None)
    print(address.value)
print(cuda.result("cuMemAllocAsync", byref(c_uint64()), c_size_t(0), c_void_p(12345)))
"""
    assert _said(server, source) == ["0", "0", "400"]


def test_nothing_has_no_name(server: str) -> None:
    source = """
for call in ("cuFuncGetName", "cuKernelGetName"):
    print(cuda.result(call, byref(c_char_p()), None))
"""
    assert _said(server, source) == ["1", "1"]


@pytest.mark.parametrize("library", ["", EMULATED], ids=["shim", "emulated device"])
def test_the_context_is_looked_for_before_the_arguments(server: str, library: str) -> None:
    """A measurement on an H100: without a current context a null pointer, too, gives 201."""
    source = f"""
    {library}
    cuda("cuInit", 0)
    calls = {NEEDS_CONTEXT}

    def gave(result):
        return [name for name, count in calls.items()
                if (cuda.result(name, *[None] * count) == 201) is result]

    print(gave(False))
    cuda.open()
    print(gave(True))
    """
    code, output, errors = clients.run(server, source)
    assert (code, output) == (0, "[]\n[]\n"), errors
    assert len(NEEDS_CONTEXT) > 90
