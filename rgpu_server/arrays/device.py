"""The device of an array worker: the public driver API by ctypes.

The library is NVIDIA's `libcuda.so.1` or the emulated device, which has the same functions. One
context, the primary one; kernels run in the default stream, and a launch waits for its kernel.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_server.arrays.memory import DeviceFunctions

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUT_OF_MEMORY = 2
# Errors after which nothing of the context works any more.
_STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_TEXT_BYTES = 1024
# The attributes of a function that CuPy shows, with the numbers of CUfunction_attribute.
_FUNCTION_ATTRIBUTES = {
    "max_threads_per_block": 0,
    "shared_size_bytes": 1,
    "const_size_bytes": 2,
    "local_size_bytes": 3,
    "num_regs": 4,
    "ptx_version": 5,
    "binary_version": 6,
    "cache_mode_ca": 7,
    "max_dynamic_shared_size_bytes": 8,
    "preferred_shared_memory_carveout": 9,
}
_MAX_DYNAMIC_SHARED = 8
# What a launch may have without asking for more.
_PLAIN_SHARED_BYTES = 48 << 10


class DeviceError(RuntimeError):
    """A call failed. result: its CUresult. The text is CUDA's name of it with CUDA's words."""

    # The client raises CuPy's class of this name.
    __module__ = "cupy_backends.cuda.api.driver"
    __qualname__ = "CUDADriverError"

    def __init__(self, text: str, result: int) -> None:
        super().__init__(text)
        self.result = result


class Parameter(Struct, frozen=True):
    """A parameter of a kernel: where it lies among the others, and its size, in bytes."""

    offset: int
    size: int


class Device:
    """A device, and its primary context, which is current in the thread that made it.

    name: as the driver says it. capability: the compute capability, as (8, 0). failed: the error
    that ended the context; None: it works.
    """

    def __init__(self, library: str | ctypes.CDLL, ordinal: int = 0) -> None:
        """Opens the device of a library.

        Args:
            library: its path; or the library, loaded before the worker was confined.
            ordinal: which of its devices.

        Raises:
            OSError: the library cannot be loaded.
            DeviceError: it has no such device, or the device does not work.
        """
        self._library = ctypes.CDLL(library) if isinstance(library, str) else library
        self.failed: DeviceError | None = None
        self._call("cuInit", c_uint(0))
        device = c_int()
        self._call("cuDeviceGet", byref(device), c_int(ordinal))
        self._device = device
        self._context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self.make_current()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call("cuDeviceGetName", text, c_int(_TEXT_BYTES), device)
        self.name = text.value.decode(errors="replace")
        self.capability = self.attribute(_MAJOR), self.attribute(_MINOR)

    def attribute(self, number: int) -> int:
        """Returns a CUdevice_attribute."""
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), c_int(number), self._device)
        return value.value

    def memory(self) -> tuple[int, int]:
        """Returns the free and the total bytes of the device."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def functions(self) -> DeviceFunctions:
        """Returns what ArrayMemory needs."""
        names = ("cuMemAlloc_v2", "cuMemFree_v2", "cuCtxSetCurrent")
        found = (ctypes.cast(getattr(self._library, name), c_void_p).value for name in names)
        allocate, release, make_current = (int(one or 0) for one in found)
        return DeviceFunctions(allocate, release, make_current, int(self._context.value or 0))

    def load(self, image: bytes) -> int:
        """Loads PTX, which ends with a zero byte, and returns the module."""
        module = c_void_p()
        self._call("cuModuleLoadData", byref(module), c_char_p(image))
        return int(module.value or 0)

    def unload(self, module: int) -> None:
        """Unloads a module."""
        self._call("cuModuleUnload", c_void_p(module))

    def function(self, module: int, name: str) -> int:
        """Returns a kernel of a module."""
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), c_void_p(module), name.encode())
        return int(function.value or 0)

    def parameters(self, function: int) -> list[Parameter]:
        """Returns the parameters of a kernel in their order."""
        found: list[Parameter] = []
        offset, size = c_size_t(), c_size_t()
        while not self._library.cuFuncGetParamInfo(
            c_void_p(function), c_size_t(len(found)), byref(offset), byref(size)
        ):
            found.append(Parameter(offset.value, size.value))
        return found

    def attributes(self, function: int) -> dict[str, int]:
        """Returns the attributes of a kernel by CuPy's names; those that the driver has."""
        found: dict[str, int] = {}
        value = c_int()
        for name, number in _FUNCTION_ATTRIBUTES.items():
            if not self._library.cuFuncGetAttribute(byref(value), number, c_void_p(function)):
                found[name] = value.value
        return found

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        values: Sequence[Any],
    ) -> None:
        """Launches a kernel and waits until it is complete.

        Args:
            function: from `function`.
            grid: the blocks in x, y and z.
            block: the threads of a block in x, y and z.
            shared: bytes of dynamic shared memory.
            values: a ctypes object for each parameter, of the parameter's size.

        Raises:
            DeviceError: the launch is refused, or the kernel failed, which ends the context.
        """
        if shared > _PLAIN_SHARED_BYTES:
            self._call("cuFuncSetAttribute", c_void_p(function), _MAX_DYNAMIC_SHARED, c_int(shared))
        pointers = (c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
        shape = [c_uint(one) for one in (*grid, *block)]
        self._call(
            "cuLaunchKernel", c_void_p(function), *shape, c_uint(shared), None, pointers, None
        )
        self.synchronize()

    def synchronize(self) -> None:
        """Waits until the device has done everything.

        Raises:
            DeviceError: a kernel failed, which ends the context.
        """
        self._call("cuCtxSynchronize")

    def make_current(self) -> None:
        """Makes the context current in this thread."""
        self._call("cuCtxSetCurrent", self._context)

    def record(self) -> c_void_p:
        """Returns a new event behind everything that was issued to the default stream."""
        event = c_void_p()
        self._call("cuEventCreate", byref(event), c_uint(0))
        self._call("cuEventRecord", event, None)
        return event

    def between(self, begin: c_void_p, end: c_void_p) -> int:
        """Waits for the second event. Returns the time between two events in ns, and destroys
        them.
        """
        milliseconds = c_float()
        self._call("cuEventSynchronize", end)
        self._call("cuEventElapsedTime_v2", byref(milliseconds), begin, end)
        for event in (begin, end):
            self._call("cuEventDestroy_v2", event)
        return round(milliseconds.value * 1e6)

    def _call(self, name: str, *arguments: Any) -> None:
        if self.failed is not None:
            raise self.failed
        result = getattr(self._library, name)(*arguments)
        if result == 0:
            return
        if result == _OUT_OF_MEMORY:
            raise MemoryError("the device has no room for that")
        error = DeviceError(self._text(result), result)
        if result in _STICKY:
            self.failed = error
        raise error

    def _text(self, result: int) -> str:
        name, words = c_char_p(), c_char_p()
        self._library.cuGetErrorName(c_int(result), byref(name))
        self._library.cuGetErrorString(c_int(result), byref(words))
        text = f"{_decoded(name, f'CUresult {result}')}: {_decoded(words, 'an unknown error')}"
        why = self._said("rgpu_emu_fault" if result in _STICKY else "rgpu_emu_reason")
        return f"{text} ({why})" if why else text

    def _said(self, function: str) -> str:
        """Returns the emulated device's sentence about the last failure."""
        ask = getattr(self._library, function, None)
        if ask is None:
            return ""
        ask.restype = c_size_t
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        ask(text, c_size_t(_TEXT_BYTES))
        return text.value.decode(errors="replace").strip()


class EventClock:
    """Measures the device's time by events of the default stream (turns.Clock).

    The default stream waits for all streams but those that were made not to wait for it.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def mark(self) -> c_void_p:
        """Returns an event behind everything that was issued."""
        return self._device.record()

    def elapsed(self, mark: c_void_p) -> int:
        """Waits until the device has done everything. Returns the time since the mark in ns: 0 if
        the context has failed, and so nothing runs. Callable in any thread.
        """
        try:
            self._device.make_current()
            return self._device.between(mark, self._device.record())
        except DeviceError:
            return 0


def _decoded(text: c_char_p, otherwise: str) -> str:
    return text.value.decode(errors="replace") if text.value else otherwise
