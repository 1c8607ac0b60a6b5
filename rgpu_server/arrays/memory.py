"""The memory of a session's arrays, which the ledger charges before NumPy gets it.

NumPy asks a handler for the elements of its arrays (NEP 49). This handler is C code of
librgpu_native.so: it charges the lease's page, takes memory of the device, and refuses with NULL,
of which NumPy makes a MemoryError. A view has no memory of its own, and so costs nothing.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.parts import native_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POINTER = ctypes.c_void_p


class DeviceFunctions(Struct, frozen=True):
    """Where memory comes from: the addresses of a device library's functions, and a context.

    allocate, release: cuMemAlloc_v2 and cuMemFree_v2. make_current: cuCtxSetCurrent, because arrays
    are freed in any thread. context: a CUcontext.
    """

    allocate: int
    release: int
    make_current: int
    context: int


class Figures(Struct, frozen=True):
    """used: bytes of the blocks in use. charged: that, and what is kept for later blocks. blocks:
    how many are in use.
    """

    used: int
    charged: int
    blocks: int


class ArrayMemory:
    """The pool of one session. Callable in any thread; sizes are bytes."""

    def __init__(
        self,
        address: int,
        slot: int,
        device: DeviceFunctions | None = None,
        charge: Callable[[int], bool] | None = None,
    ) -> None:
        """Makes an empty pool.

        Args:
            address: where the lease's page is mapped; it stays mapped until `close`.
            slot: the session's.
            device: None: memory of this process.
            charge: charges the slot where that may have to wait, as `Ledger.charge_before`. NumPy
                calls it in the middle of an operation. None: the pool waits itself.

        Raises:
            ValueError: there is no such slot, or no thread can be made.
        """
        self._native = native()
        words = (0, 0, 0, 0)
        if device is not None:
            words = (device.allocate, device.release, device.make_current, device.context)
        # It lives as long as the C part, which calls it.
        self._charge = _CHARGE() if charge is None else _CHARGE(functools.partial(_charged, charge))
        driver = _Driver(*words, self._charge)
        handle = self._native.rgpu_pool_open(address, slot, ctypes.byref(driver))
        if handle is None:
            raise ValueError(f"there is no memory for slot {slot} of this lease's page")
        self._handle = handle

    @staticmethod
    def charge_of(size: int) -> int:
        """Returns what a block of a size is charged: up to 64 KiB the next of the sizes that small
        blocks have, above that the next multiple of 512.
        """
        return int(native().rgpu_pool_charged(size))

    def allocate(self, size: int) -> int:
        """Returns the address of a new block.

        Raises:
            MemoryError: the lease or the device has no room for it.
        """
        block = self._native.rgpu_pool_allocate(self._handle, size)
        if block is None:
            raise MemoryError(
                f"the lease has no room for {size} bytes more; free arrays, or ask for more"
            )
        return int(block)

    def free(self, block: int) -> None:
        """Frees a block. Nothing happens if the address is none of a block."""
        self._native.rgpu_pool_free(self._handle, block)

    def trim(self) -> None:
        """Gives all memory back that no block uses."""
        self._native.rgpu_pool_trim(self._handle)

    def find(self, address: int) -> tuple[int, int] | None:
        """Returns address and size of the block in use that holds an address."""
        base, size = ctypes.c_uint64(), ctypes.c_uint64()
        found = self._native.rgpu_pool_find(
            self._handle, address, ctypes.byref(base), ctypes.byref(size)
        )
        return (base.value, size.value) if found else None

    def figures(self) -> Figures:
        """Returns how much is held now."""
        words = (ctypes.c_uint64 * 3)()
        self._native.rgpu_pool_figures(self._handle, words)
        return Figures(*words)

    def close(self) -> None:
        """Gives everything back.

        Raises:
            RuntimeError: blocks are in use.
        """
        if not self._native.rgpu_pool_close(self._handle):
            raise RuntimeError(f"{self.figures().blocks} blocks of memory are in use")

    def install(self) -> None:
        """Lets NumPy take the elements of new arrays from here, in this thread.

        NumPy keeps the handler of a thread in the thread's context. Arrays are freed where they
        came from, in any thread.
        """
        _set_handler(self._capsule())

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Installs it for a while, in this thread."""
        before = _set_handler(self._capsule())
        try:
            yield
        finally:
            _set_handler(before)

    def _capsule(self) -> Any:
        """Returns NumPy's handler. NumPy keeps it with each array, so it is never freed."""
        library = self._native
        names = ("malloc", "calloc", "realloc", "free")
        functions = (_address(getattr(library, f"rgpu_pool_numpy_{name}")) for name in names)
        handler = _Handler(b"rgpu", 1, _Allocator(self._handle, *functions))
        _KEPT.append(handler)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [_POINTER, ctypes.c_char_p, _POINTER]
        return new(ctypes.addressof(handler), _MEMORY_HANDLER, None)


_CHARGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)


def _charged(charge: Callable[[int], bool], size: int) -> int:
    try:
        return int(charge(size))
    except Exception:
        # The session has ended while the operation waited for its turn. C takes no exception; the
        # next operation raises it again.
        return 0


class _Driver(ctypes.Structure):
    _fields_ = (
        ("allocate", _POINTER),
        ("release", _POINTER),
        ("make_current", _POINTER),
        ("context", _POINTER),
        ("charge", _CHARGE),
    )


class _Allocator(ctypes.Structure):
    """NumPy's PyDataMemAllocator."""

    _fields_ = (
        ("ctx", _POINTER),
        ("malloc", _POINTER),
        ("calloc", _POINTER),
        ("realloc", _POINTER),
        ("free", _POINTER),
    )


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", _Allocator),
    )


# The name that NumPy wants of the capsule. PyCapsule_New keeps the pointer.
_MEMORY_HANDLER = ctypes.c_char_p(b"mem_handler")
_KEPT: list[_Handler] = []
# The place of PyDataMem_SetHandler in NumPy's table of C functions, which is part of its ABI.
_SET_HANDLER = 304


def _address(function: Any) -> int:
    return int(ctypes.cast(function, _POINTER).value or 0)


def _set_handler(capsule: Any) -> Any:
    """Sets NumPy's handler in this thread, and returns the one before."""
    return _numpy_function(_SET_HANDLER)(capsule)


@functools.cache
def _numpy_function(place: int) -> Any:
    # A worker of a library without NumPy does not import it.
    numpy: Any = importlib.import_module("numpy._core._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = _POINTER, [ctypes.py_object, ctypes.c_char_p]
    table = (_POINTER * (place + 1)).from_address(get(numpy._ARRAY_API, None))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[place] or 0)


@functools.cache
def native() -> Any:
    """Returns the C functions. They are loaded once, because a confined worker opens no files."""
    library: Any = ctypes.CDLL(str(native_library()))
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    words = ctypes.POINTER(u64)
    for name, result, arguments in (
        ("open", _POINTER, [_POINTER, u32, ctypes.POINTER(_Driver)]),
        ("close", ctypes.c_int, [_POINTER]),
        ("charged", u64, [u64]),
        ("allocate", _POINTER, [_POINTER, u64]),
        ("free", None, [_POINTER, _POINTER]),
        ("trim", None, [_POINTER]),
        ("find", ctypes.c_int, [_POINTER, u64, words, words]),
        ("figures", None, [_POINTER, words]),
    ):
        function = getattr(library, f"rgpu_pool_{name}")
        function.restype, function.argtypes = result, arguments
    return library
