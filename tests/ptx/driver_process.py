"""NVIDIA's driver, or another with its interface, in a process of its own: `driver.py` asks it by a
pipe. Standard library only, so that the process starts soon.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

ARENA_BYTES = 64 << 20
LOG_BYTES = 1 << 18
JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES = 5, 6
INPUT_PTX, MAX_DYNAMIC_SHARED = 1, 8


class DriverError(Exception):
    """A call failed; `result` is its CUresult, and `log` is what the driver's compiler wrote."""

    def __init__(self, call: str, result: int, log: str = "") -> None:
        super().__init__(call, result, log)
        self.call, self.result, self.log = call, result, log

    def __str__(self) -> str:
        return f"{self.call} gave CUresult {self.result}\n{self.log[:2000]}".strip()


class Driver:
    """The library, a context and one arena.  It lives in the process that `serve` runs in."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["RGPU_TEST_DRIVER"])
        context, memory = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(ARENA_BYTES))
        self.base = memory.value

    def _call(self, call: str, *arguments: object) -> None:
        if result := getattr(self.library, call)(*arguments):
            raise DriverError(call, result)

    def usable(self) -> bool:
        """False after an error that stays with the context."""
        return not self.library.cuCtxSynchronize()

    def load(self, sources: Sequence[str], name: str) -> int:
        """Compiles and links PTX texts that have this kernel; returns the module."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        module = ctypes.c_void_p()
        try:
            if len(sources) == 1:
                text = sources[0].encode() + b"\0"
                out = ctypes.byref(module)
                self._call("cuModuleLoadDataEx", out, text, 2, options, values)
            else:
                self._link(sources, module, (2, options, values))
            self._function(module, name)  # the emulated device compiles it here
        except DriverError as error:
            text = log.value.decode(errors="replace")
            raise DriverError(error.call, error.result, text) from None
        return int(module.value or 0)

    def _link(self, sources: Sequence[str], module: ctypes.c_void_p, options: Any) -> None:
        state, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        self._call("cuLinkCreate_v2", *options, ctypes.byref(state))
        try:
            for source in sources:
                text = source.encode() + b"\0"
                count = ctypes.c_size_t(len(text))
                self._call("cuLinkAddData_v2", state, INPUT_PTX, text, count, b"x", 0, None, None)
            self._call("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
            self._call("cuModuleLoadData", ctypes.byref(module), image)
        finally:
            self.library.cuLinkDestroy(state)

    def _function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def address(self, module: int, name: str) -> int:
        """The address of a global variable."""
        at, size = ctypes.c_uint64(), ctypes.c_size_t()
        out = ctypes.byref(at), ctypes.byref(size)
        self._call("cuModuleGetGlobal_v2", *out, ctypes.c_void_p(module), name.encode())
        return at.value

    def write(self, address: int, raw: bytes) -> None:
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), raw, ctypes.c_size_t(len(raw)))

    def read(self, address: int, count: int) -> bytes:
        raw = ctypes.create_string_buffer(count)
        self._call("cuMemcpyDtoH_v2", raw, ctypes.c_uint64(address), ctypes.c_size_t(count))
        return raw.raw

    def launch(
        self, module: int, name: str, shape: Sequence[int], raws: Sequence[bytes],
        dynamic: int, cooperative: bool,
    ) -> None:  # fmt: skip
        """Launches a kernel and waits for it; `shape` is the grid and the block."""
        function = self._function(ctypes.c_void_p(module), name)
        if dynamic > 48 << 10:
            self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, dynamic)
        kept = [ctypes.create_string_buffer(raw, max(len(raw), 1)) for raw in raws]
        pointers = (ctypes.c_void_p * max(len(kept), 1))(*map(ctypes.addressof, kept))
        last = () if cooperative else (None,)
        call = "cuLaunchCooperativeKernel" if cooperative else "cuLaunchKernel"
        self._call(call, function, *shape, dynamic, None, pointers, *last)
        self._call("cuCtxSynchronize")


def serve(descriptor: int) -> None:
    """Carries out what a `Device` asks for until the `Device` closes the connection."""
    connection = Connection(descriptor)
    driver: Driver | None = None
    with suppress(EOFError):
        while True:
            method, arguments = connection.recv()
            value: object = None
            error: DriverError | None = None
            try:
                driver = driver or Driver()
                value = driver.base if method == "open" else getattr(driver, method)(*arguments)
            except DriverError as caught:
                error = caught
            alive = error is None or (driver is not None and driver.usable())
            connection.send((value, error, alive))
    os._exit(0)  # the library's own end could wait for a launch that does not end
