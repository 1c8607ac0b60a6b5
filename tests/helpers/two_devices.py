"""Programs that use two devices: what they begin with, and how tests run them."""

from __future__ import annotations

from textwrap import dedent

from helpers import clients

HEAD = r"""
import ctypes
from ctypes import byref, c_char_p, c_int, c_float, c_size_t, c_uint, c_uint64, c_void_p, cast
from ctypes import create_string_buffer
PTX = rb'''
.version 7.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 value) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [out]; ld.param.u32 %v, [value];
  st.global.u32 [%a], %v;
  ret;
}
.visible .entry more(.param .u64 out, .param .u32 value) {
  .reg .b64 %a; .reg .b32 %v, %w;
  ld.param.u64 %a, [out]; ld.param.u32 %v, [value];
  ld.global.u32 %w, [%a];
  add.u32 %w, %w, %v;
  st.global.u32 [%a], %w;
  ret;
}
'''
cuda("cuInit", 0)

def made(name, *arguments):
    handle = c_uint64()
    cuda(name, byref(handle), *arguments)
    return handle

def number(name, *arguments):
    value = c_int()
    cuda(name, byref(value), *arguments)
    return value.value

def launch(function, address, value, stream=None):
    words = c_uint64(getattr(address, "value", address)), c_int(value)
    function = c_uint64(getattr(function, "value", function))
    arguments = (c_void_p * 2)(*(cast(byref(word), c_void_p) for word in words))
    return cuda.result("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)

def word(address):
    return int.from_bytes(cuda.download(getattr(address, "value", address), 4), "little")

def current(device):
    cuda("cuCtxSetCurrent", contexts[device])

contexts = [made("cuDevicePrimaryCtxRetain", device) for device in range(2)]
"""


def said(server: str | None, source: str, head: str = HEAD, **extra: str) -> list[str]:
    """Runs the source with a lease on devices 0 and 1, or on those of RGPU_DEVICE; returns the
    lines that it prints.
    """
    variables = {"RGPU_DEVICE": "0,1", "RGPU_LEASE": "several", "RGPU_MEMORY": "200MiB", **extra}
    code, output, errors = clients.run(server, head + dedent(source), **variables)
    assert code == 0, errors
    return output.splitlines()
