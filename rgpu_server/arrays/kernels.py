"""Kernels of a session: CUDA C++ that the client sends, launched on arrays of the session.

Where a source is compiled: by NVRTC in a process that can open no file and no socket, with bounded
memory and time (nvrtc_server.py), because NVRTC reads whatever file an `#include` names and quotes
it in its log. Its PTX goes to the device: on the emulated one to the PTX compiler of the tenant,
which is another such process. So nothing in the worker reads what a tenant wrote.

A kernel may write anywhere in the memory of its own session. A launch is checked for what the
driver does not check: that the number and sizes of the values are those of the kernel's parameters,
and that each array lies in the session's memory.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_server.arrays.kernel_sources import KernelOperations
from rgpu_server.arrays.modules import Modules
from rgpu_server.arrays.nvrtc import PTX

if TYPE_CHECKING:
    from rgpu_server.arrays.device import Device, Parameter
    from rgpu_server.arrays.engine import Gate
    from rgpu_server.arrays.kernel_sources import Source
    from rgpu_server.arrays.ledger import Ledger
    from rgpu_server.arrays.memory import ArrayMemory
    from rgpu_server.arrays.source_compiler import SourceCompiler

_MOST_VALUES: Final = 512
_UNSIGNED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_SCALARS: Final = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}


class Module:
    """Loaded code, which is unloaded with its last kernel."""

    def __init__(self, device: Device, ledger: Ledger, ptx: bytes) -> None:
        """Loads PTX and charges what it takes of the device.

        Raises:
            MemoryError: the lease has no room for it.
            DeviceError: the device refuses it.
        """
        before, _ = device.memory()
        self.handle = device.load(ptx)
        after, _ = device.memory()
        size = max(before - after, 0)
        if not ledger.charge(size):
            device.unload(self.handle)
            raise MemoryError(f"the lease has no room for the {size} bytes of this code")
        # The end of the process frees everything anyway.
        weakref.finalize(self, _unload, device, ledger, self.handle, size).atexit = False


def _unload(device: Device, ledger: Ledger, module: int, size: int) -> None:
    if device.failed is None:
        device.unload(module)
    ledger.release(size)


class Kernel:
    """A kernel that can be launched.

    name: as the client named it. attributes: by CuPy's names.
    """

    def __init__(self, device: Device, module: Module, name: str, symbol: str) -> None:
        self.name = name
        self._module = module
        self.function = device.function(module.handle, symbol)
        self.parameters = device.parameters(self.function)
        self.attributes = device.attributes(self.function)


class Kernels(KernelOperations):
    """The operations on kernels of one session.

    memory, ledger: the session's.
    """

    def __init__(
        self,
        device: Device,
        memory: ArrayMemory,
        ledger: Ledger,
        compiler: SourceCompiler,
        gate: Gate | None = None,
    ) -> None:
        """Makes them.

        Args:
            device: where kernels run.
            memory: where the session's arrays lie; NumPy has it as its handler.
            ledger: what the code of kernels is charged to.
            compiler: compiles the sources.
            gate: given back while a source is compiled, because that is no work of the device.
        """
        self._device, self.memory, self.ledger = device, memory, ledger
        major, minor = device.capability
        self._modules = Modules(compiler, f"{PTX}{major}{minor}", self._loaded, gate)

    def compiled(self, wanted: Source) -> Kernel:
        """Returns a kernel of a source.

        Raises:
            CompileException: the source has an error.
            DeviceError: there is no kernel of this name, or the device refuses the code.
            MemoryError: the lease has no room for the code.
        """
        module, names = self._modules.find(wanted)
        return Kernel(self._device, module, wanted.name, names.get(wanted.name, wanted.name))

    def launch(self, kernel: Any, grid: Any, block: Any, args: Any = (), shared: Any = 0) -> None:
        """Launches a kernel and waits until it is complete.

        Args:
            kernel: from `compile`.
            grid: blocks in up to three dimensions.
            block: threads of a block in up to three dimensions.
            args: arrays of the session, NumPy's scalars, and Python's numbers. An int is good for a
                parameter of any integer type that has room for it; the others become float64,
                complex128 and bool.
            shared: bytes of dynamic shared memory.

        Raises:
            TypeError: a value has another size than its parameter, or there are more or fewer.
            ValueError: an array lies outside the session's memory.
            DeviceError: the launch is refused, or the kernel failed, which ends the session.
        """
        if not isinstance(kernel, Kernel):
            raise TypeError("only what kernel.compile returns can be launched")
        if not isinstance(args, tuple | list) or len(args) > _MOST_VALUES:
            raise TypeError(f"the arguments of a kernel are a list of at most {_MOST_VALUES}")
        if type(shared) is not int or not 0 <= shared < 1 << 31:
            raise ValueError("shared_mem is a number of bytes below 2**31")
        if len(args) != len(kernel.parameters):
            raise TypeError(
                f"kernel {kernel.name} has {len(kernel.parameters)} parameters, and {len(args)} "
                "arguments were given"
            )
        values = [
            self._value(kernel, at, *pair)
            for at, pair in enumerate(zip(args, kernel.parameters, strict=True))
        ]
        self._device.launch(kernel.function, _shape(grid), _shape(block), shared, values)

    def _loaded(self, ptx: bytes) -> Module:
        return Module(self._device, self.ledger, ptx)

    def _value(self, kernel: Kernel, at: int, given: Any, parameter: Parameter) -> Any:
        if isinstance(given, np.ndarray):
            data = self._address(given).to_bytes(8, "little")
        else:
            scalar = _SCALARS.get(type(given))
            if type(given) is int:
                # As CuPy: an int of Python is good for a parameter of any integer type.
                scalar = _sized_int(given, parameter.size)
            value = given if scalar is None else scalar(given)
            if not isinstance(value, np.generic) or value.dtype.hasobject:
                raise TypeError(f"Unsupported type {type(given)}")
            data = value.tobytes()
        if len(data) != parameter.size:
            kind = "an array" if isinstance(given, np.ndarray) else type(given).__name__
            raise TypeError(
                f"argument {at + 1} of kernel {kernel.name} is {kind} of {len(data)} bytes, and "
                f"the kernel expects {parameter.size}: pass a scalar of the parameter's own type"
            )
        return (ctypes.c_char * len(data)).from_buffer_copy(data)

    def _address(self, array: np.ndarray[Any, Any]) -> int:
        """Returns where the elements of an array begin; all of them lie in one block."""
        if array.dtype.hasobject:
            raise TypeError(f"Unsupported dtype {array.dtype}")
        low, high = np.lib.array_utils.byte_bounds(array)
        block = self.memory.find(low)
        if block is None or high > block[0] + block[1]:
            raise ValueError("an argument lies outside the device's memory; copy the array first")
        return int(array.ctypes.data)


def _sized_int(given: int, size: int) -> Any:
    """Returns NumPy's type for an int in so many bytes; one of 8 bytes for other sizes."""
    kinds = _UNSIGNED if given >= 0 else _SIGNED
    return kinds.get(size, np.int64)


def _shape(given: Any) -> tuple[int, int, int]:
    """Returns the three dimensions of a grid or block."""
    sizes = given if isinstance(given, tuple | list) else (given,)
    good = all(type(one) is int and 0 < one < 1 << 31 for one in sizes)
    if not good or not 1 <= len(sizes) <= 3:
        raise ValueError("grid and block are one to three positive numbers")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
