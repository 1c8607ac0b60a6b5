"""The library of a session that uses CuPy: CuPy, or NumPy and SciPy where there is no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_server.arrays import cupy_guards, cupy_rows, stand_guards
from rgpu_server.arrays.cupy_calls import Calls
from rgpu_server.arrays.cupy_numbers import with_numbers
from rgpu_server.arrays.held_sparse import Held, opened
from rgpu_server.arrays.library import STAND_IN_DEVICE, NotOfferedError, Operation, plain_words
from rgpu_server.arrays.stand_sparse import is_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rgpu_server.arrays.cupy_rows import Row

DTYPES: Final = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
_MOST_PARTS: Final = 65536
# How the names of operations on sparse matrices begin.
_ON_SPARSE: Final = ("sparse.", "cupyx.scipy.sparse.")


class CupyLibrary:
    """CuPy's functions, for one session.

    most_bytes: no single array may be larger. cupy: the imported CuPy; None where NumPy stands in.
    more: operations that another part executes, as those on kernels; they check their arguments
    themselves. kernels: the types of the kernels that they make.
    """

    name = "cupy"

    def __init__(
        self,
        most_bytes: int = 1 << 46,
        cupy: Any = None,
        more: Mapping[str, Operation] | None = None,
        kernels: tuple[type[Any], ...] = (),
    ) -> None:
        self._more = more or {}
        self._kernels = kernels
        self._kept = (np.random.Generator, np.random.RandomState, Held, *kernels)
        self._cupy = cupy
        self._most_bytes = most_bytes
        self._calls = Calls(cupy)
        self._quiet = False
        self._dtypes = {name: np.dtype(name) for name in DTYPES}
        self._known = frozenset(self._dtypes.values())
        self.version = cupy.__version__ if cupy else f"numpy {np.__version__}"

    # What the engine asks (rgpu_server.arrays.library.Library)

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        """Finds a function of the list, and checks the form of its arguments."""
        if not self._quiet:
            # NumPy keeps this for each thread. CuPy warns of no overflow and no division by 0.
            np.seterr(all="ignore")
            self._quiet = True
        row = cupy_rows.find(operation)
        names = cupy_rows.check(row, arguments, keywords)
        if operation in self._more:
            return self._more[operation]
        call = self._calls.find(row, names, tuple(keywords))
        if self._cupy is None:
            call = stand_guards.guarded(operation, names, call)
            if operation.startswith(_ON_SPARSE):
                call = opened(call)
        if "out" in row.changes and ("out" in keywords or "out" in names):
            call = _silent(call)
        if any(map(cupy_rows.takes_values, (*arguments, *keywords.values()))):
            call = _checked(call, row, names)
        if cupy_guards.has_guard(operation):
            call = self._guarded(call, row, names)
        call = with_numbers(call, operation, names, arguments, keywords)
        changes: list[int | str] = [at for at, name in enumerate(names) if name in row.changes]
        changes += [name for name in keywords if name in row.changes]
        return Operation(call, tuple(changes), draws=row.draws)

    def dtype(self, name: str) -> Any:
        """Returns a dtype of numbers."""
        try:
            return self._dtypes[name]
        except KeyError:
            raise NotOfferedError(f"Unsupported dtype {name[:50]}") from None

    def scalar(self, dtype: str, value: Any) -> Any:
        """Returns NumPy's scalar, which both libraries take."""
        if isinstance(value, str) or value is None:
            raise TypeError("a scalar must be a number")
        return self.dtype(dtype).type(value)

    def constant(self, kind: str, text: str) -> Any:
        """There are none."""
        raise NotOfferedError(f"there are no constants of the kind {kind[:50]}")

    def keep(self, value: Any) -> Any:
        """Keeps arrays, sparse matrices and states of random numbers."""
        if type(value) is np.ndarray and self._cupy is None and value.dtype in self._known:
            # Almost every result.
            return value
        if is_sparse(value):
            self._check_dtype(value)
            return Held(value) if self._cupy is None else value
        if self._is_array(value) or isinstance(value, self._kept):
            self._check_dtype(value)
            return value
        if isinstance(value, np.generic | bool | int | float | complex):
            made = np.asarray(value)
            self._check_dtype(made)
            return self._cupy.asarray(made) if self._cupy else made
        if isinstance(value, tuple | list) and len(value) <= _MOST_PARTS:
            return tuple(self.keep(one) for one in value)
        if self._cupy is not None and type(value).__module__.startswith("cupy.random"):
            return value
        raise NotOfferedError(f"a result of type {type(value).__name__} stays on no node")

    def gone(self, value: Any) -> None:
        """The allocators of both libraries see it themselves."""

    def make(self, dtype: str, shape: Sequence[int]) -> tuple[Any, memoryview]:
        """Makes the host's side of an upload."""
        wanted = self.dtype(dtype)
        size = wanted.itemsize
        for n in shape:
            size *= n
        if size > self._most_bytes:
            raise MemoryError(_too_large(size, self._most_bytes))
        made = np.empty(tuple(shape), wanted)
        return made, _bytes(made)

    def made(self, value: Any) -> Any:
        """Copies an upload to the device."""
        return self._cupy.asarray(value) if self._cupy else value

    def elements(self, value: Any) -> tuple[str, Sequence[int], memoryview]:
        """Copies an array from the device."""
        if not self._is_array(value):
            raise NotOfferedError(f"a {type(value).__name__} cannot be read as an array")
        if value.size * value.itemsize > self._most_bytes:
            raise MemoryError(_too_large(value.size * value.itemsize, self._most_bytes))
        host = value.get() if self._cupy else value
        return str(value.dtype), value.shape, _bytes(np.ascontiguousarray(host))

    def describe(self, value: Any) -> Any:
        """Says what a result is: ["a", dtype, shape, strides], ["s", format, dtype, shape],
        ["t", descriptions], ["k", name, attributes] of a kernel, or ["o"].
        """
        if self._is_array(value):
            return ["a", str(value.dtype), list(value.shape), list(value.strides)]
        if isinstance(value, Held):
            value = value.matrix
        if is_sparse(value):
            return ["s", value.format, str(value.dtype), list(value.shape)]
        if isinstance(value, tuple):
            return ["t", [self.describe(one) for one in value]]
        if isinstance(value, self._kernels):
            return ["k", str(value.name), dict(value.attributes)]
        return ["o"]

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        """Answers `version`, `memory` and `device` (its name, compute capability in two numbers,
        and number of multiprocessors).
        """
        if question == "version":
            return [self.name, self.version]
        if question == "memory":
            return self._memory()
        if question == "device":
            return self._device()
        raise NotOfferedError(f"there is no answer to {question[:50]!r}")

    def room(self, size: int, beside: int) -> int:
        """See `Library.room`."""
        if size + beside > self._most_bytes:
            raise MemoryError(_too_large(size, self._most_bytes))
        return self._most_bytes

    def words(self, error: Exception) -> str:
        """Returns the text that the client's exception has."""
        return plain_words(error)

    def sync(self) -> None:
        """Waits for the device."""
        if self._cupy is not None:
            self._cupy.cuda.Device().synchronize()

    # Helpers

    def _is_array(self, value: Any) -> bool:
        if self._cupy is not None:
            return isinstance(value, self._cupy.ndarray)
        return isinstance(value, np.ndarray)

    def _check_dtype(self, value: Any) -> None:
        dtype = getattr(value, "dtype", None)
        if isinstance(dtype, np.dtype) and str(dtype) not in self._dtypes:
            raise NotOfferedError(f"Unsupported dtype {dtype}")

    def _device(self) -> list[Any]:
        if self._cupy is None:
            return STAND_IN_DEVICE
        cuda = self._cupy.cuda
        told = cuda.runtime.getDeviceProperties(cuda.Device().id)
        name = told["name"].decode(errors="replace")
        return [name, *[int(told[one]) for one in ("major", "minor", "multiProcessorCount")]]

    def _memory(self) -> list[int]:
        """Returns used and reserved bytes of the pool, and the most bytes of an array."""
        if self._cupy is None:
            return [0, 0, self._most_bytes]
        pool = self._cupy.get_default_memory_pool()
        return [pool.used_bytes(), pool.total_bytes(), self._most_bytes]

    def _guarded(self, call: Callable[..., Any], row: Row, names: Sequence[str]) -> Any:
        """Returns a call that is refused if what the client asks for could never fit."""

        def guarded(*arguments: Any, **keywords: Any) -> Any:
            given = dict(zip(names, arguments, strict=True)) | keywords
            if row.rest:
                given["*"] = arguments
            size = cupy_guards.least_bytes(row.public, given)
            if size > self._most_bytes:
                raise MemoryError(_too_large(int(size), self._most_bytes))
            return call(*arguments, **keywords)

        return guarded


def _silent(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a call without a result, because the result is the client's `out`."""

    def silent(*arguments: Any, **keywords: Any) -> None:
        call(*arguments, **keywords)

    return silent


def _checked(call: Callable[..., Any], row: Row, names: Sequence[str]) -> Callable[..., Any]:
    """Returns a call that checks the values of a run, which `define` has not seen."""

    def checked(*arguments: Any, **keywords: Any) -> Any:
        for name, value in zip(names, arguments, strict=True):
            cupy_rows.check_value(row.public, name, value)
        for name, value in keywords.items():
            cupy_rows.check_value(row.public, name, value)
        return call(*arguments, **keywords)

    return checked


def _bytes(whole: Any) -> memoryview:
    return memoryview(whole.reshape(-1).view(np.uint8))


def _too_large(size: int, most: int) -> str:
    return f"Out of memory allocating {size:,} bytes (limit set to: {most:,} bytes)."
