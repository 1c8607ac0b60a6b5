"""The driver API by ctypes, for client processes of tests. It uses public calls only, and has no
more of them than the tests need.
"""

from __future__ import annotations

import ctypes
import sys


class CudaError(Exception):
    """A call failed; `result` is its CUresult."""

    def __init__(self, call: str, result: int) -> None:
        super().__init__(f"{call} gave CUresult {result}")
        self.result = result


class Driver:
    """A library with the driver's ABI: `libcuda.so.1` as the dynamic loader finds it, or another."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self.library = ctypes.CDLL(library)

    def result(self, call: str, *arguments: object) -> int:
        """Makes the call and returns its CUresult."""
        value: int = getattr(self.library, call)(*arguments)
        return value

    def __call__(self, call: str, *arguments: object) -> None:
        """Makes the call; CudaError unless it succeeds."""
        result = self.result(call, *arguments)
        if result != 0:
            raise CudaError(call, result)

    def open(self) -> None:
        """Calls cuInit and makes the primary context current."""
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def alloc(self, size: int) -> int:
        """Allocates device memory and returns its address."""
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self("cuMemFree_v2", ctypes.c_uint64(address))

    def memory(self) -> tuple[int, int]:
        """Returns (free bytes, total bytes)."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def upload(self, address: int, data: bytes) -> None:
        self("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def download(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def load(self, image: bytes) -> int:
        """Loads a module and returns its handle."""
        module = ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), image)
        return module.value or 0

    def function(self, module: int, name: str) -> int:
        function = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), name.encode())
        return function.value or 0

    def launch(self, function: int, grid: int, block: int, *addresses: int) -> None:
        """Launches a one-dimensional grid on the default stream, with 64-bit arguments."""
        values = [ctypes.c_uint64(a) for a in addresses]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        shape = (grid, 1, 1, block, 1, 1)
        self("cuLaunchKernel", ctypes.c_void_p(function), *shape, 0, None, pointers, None)

    def synchronize(self) -> None:
        self("cuCtxSynchronize")


def wait_for_line() -> None:
    """Blocks until the test writes a line to standard input or closes it."""
    sys.stdin.readline()
