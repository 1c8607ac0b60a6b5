"""The emulated device in this process, by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

import rgpu_emu
from benchmarks.emu.cases import Array


class Device:
    """Loads the device and makes its primary context current."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(rgpu_emu.library_path()))
        self.call("cuInit", 0)
        self.call("cuCtxSetCurrent", self._made("cuDevicePrimaryCtxRetain", 0))

    def call(self, name: str, *arguments: object) -> None:
        """Calls a driver function; RuntimeError names it and its CUresult if it fails."""
        passed = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        result = getattr(self._library, name)(*passed)
        if result != 0:
            raise RuntimeError(f"{name} gave CUresult {result}")

    def _made(self, name: str, *arguments: object) -> int:
        value = ctypes.c_uint64()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def function(self, ptx: bytes, name: str) -> int:
        """Loads the module and compiles the kernel."""
        module = self._made("cuModuleLoadData", ptx + b"\0")
        function = self._made("cuModuleGetFunction", module, name.encode())
        self.call("cuFuncLoad", function)
        return function

    def upload(self, array: Array) -> int:
        """Copies the array into new device memory and returns its address."""
        address = self._made("cuMemAlloc_v2", array.nbytes)
        self.call("cuMemcpyHtoD_v2", address, array.ctypes.data_as(ctypes.c_void_p), array.nbytes)
        return address

    def download(self, address: int, array: Array) -> None:
        """Copies device memory into the array."""
        self.call("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), address, array.nbytes)


class Launch:
    """A launch that can be repeated: the kernel, its geometry and its parameters."""

    def __init__(
        self,
        device: Device,
        function: int,
        grid: tuple[int, int],
        block: tuple[int, int],
        arguments: Sequence[np.generic | int],
    ) -> None:
        self._device = device
        # An address is 64 bits; a number has the width of its type.
        self._values = [np.array([a], np.uint64 if isinstance(a, int) else None) for a in arguments]
        pointers = [value.ctypes.data for value in self._values]
        self._parameters = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        self._geometry = (*grid, 1, *block, 1)
        self._function = function

    def run(self) -> None:
        """Launches, and waits until the kernel has ended."""
        self._device.call(
            "cuLaunchKernel", self._function, *self._geometry, 0, 0, self._parameters, None
        )
        self._device.call("cuCtxSynchronize")
