"""Programs that use two devices: what they begin with, and how tests run them."""

from __future__ import annotations

import contextlib
from textwrap import dedent

import pytest
from typing_extensions import Self

from helpers import clients, pki
from helpers.agent import GRPC
from helpers.server import Server

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


# The ways to two devices: two of one server, over a transport; or one of each of two servers.
MORE_WAYS = ("unix", "shm", "tls", "grpc", "tcp+unix", "grpc+shm")
WAYS = ("tcp", "shm+tls", *(pytest.param(way, marks=pytest.mark.full) for way in MORE_WAYS))


class Pair:
    """`with Pair() as pair:` runs a server with two devices, and one with one.

    timing: of the emulated devices, "normal" or "hostile:SEED".
    """

    def __init__(self, timing: str = "normal") -> None:
        self._config = f'{pki.config()}\n[emulated]\ntiming = "{timing}"\n'

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            second = ("--device", "emulated:512MiB")
            more = {"device": "emulated:1GiB", "tls": self._config}
            self.first = stack.enter_context(Server(*GRPC, *second, **more))
            self.second = stack.enter_context(Server(*GRPC, **more))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def address(self, way: str) -> str:
        """Returns the server for `said`."""
        first, _, second = way.partition("+")
        found = self.first.address(first)
        return f"{found},{self.second.address(second)}" if second else found


def devices_of(server: str) -> str:
    """Returns RGPU_DEVICE for a server of `Pair.address`."""
    return ",".join(f"0@{one}" for one in server.split(",")) if "," in server else "0,1"


def said(server: str | None, source: str, head: str = HEAD, **extra: str) -> list[str]:
    """Runs the source with leases on the devices of `Pair.address`, or on those of RGPU_DEVICE;
    returns the lines that it prints.
    """
    variables = {"RGPU_LEASE": "several", "RGPU_MEMORY": "200MiB"}
    if server is not None:
        variables["RGPU_DEVICE"] = devices_of(server)
        if "," in server:
            server = None
            variables.update(clients.trust())
    code, output, errors = clients.run(server, head + dedent(source), **{**variables, **extra})
    assert code == 0, errors
    return output.splitlines()
