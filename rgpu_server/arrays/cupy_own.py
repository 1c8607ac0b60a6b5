"""Operations that are no function of CuPy's: indexing, methods, a part of a result.

They use what NumPy's and CuPy's arrays have in common, so that one function serves both.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def getitem(a: Any, index: Any) -> Any:
    """Returns `a[index]` as an array: a view where NumPy makes one."""
    index = _whole(index)
    return a[_wrapped(a, index) if isinstance(a, np.ndarray) else index]


def setitem(a: Any, index: Any, value: Any) -> None:
    """Sets elements."""
    index = _whole(index)
    a[_wrapped(a, index) if isinstance(a, np.ndarray) else index] = value


def _whole(index: Any) -> Any:
    """Returns an index with an ellipsis: NumPy then gives an array instead of a scalar."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(part is Ellipsis for part in parts):
        return parts
    return (*parts, Ellipsis)


def _wrapped(a: np.ndarray[Any, Any], index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns an index whose arrays of integers wrap around, as CuPy's do."""
    if not any(_is_integers(part) for part in index):
        return index
    taken = sum(_axes(part) for part in index)
    made, axis = [], 0
    for part in index:
        if part is Ellipsis:
            axis += a.ndim - taken
        elif _is_integers(part) and axis < a.ndim and a.shape[axis]:
            made.append(part % a.shape[axis])
            axis += 1
            continue
        else:
            axis += _axes(part)
        made.append(part)
    return tuple(made)


def _is_integers(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind in "iu"


def _axes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, np.ndarray) and part.dtype.kind == "b":
        return part.ndim
    return 0 if isinstance(part, bool | np.bool_) else 1


def part(a: Any, at: int) -> Any:
    """Returns one of several results that are kept as one."""
    if not isinstance(a, tuple | list):
        raise TypeError("this result has no parts")
    return a[at]


def copy(a: Any, order: str = "C") -> Any:
    """Returns a copy with memory of its own."""
    return a.copy(order=order)


def astype(a: Any, dtype: Any, order: str = "K") -> Any:
    """Returns a copy of another dtype."""
    return a.astype(dtype, order=order)


def view(a: Any, dtype: Any) -> Any:
    """Returns a view of the same memory with another dtype."""
    return a.view(dtype)


def reshape(a: Any, shape: Any, order: str = "C") -> Any:
    """Returns a view of another shape, or a copy."""
    return a.reshape(shape, order=order)


def ravel(a: Any, order: str = "C") -> Any:
    """Returns a view of one dimension, or a copy."""
    return a.ravel(order)


def transpose(a: Any, axes: Any = None) -> Any:
    """Returns a view with the axes in another order."""
    return a.transpose(axes) if axes is not None else a.transpose()


def squeeze(a: Any, axis: Any = None) -> Any:
    """Returns a view without axes of length 1."""
    return a.squeeze(axis)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Returns a view with two axes exchanged."""
    return a.swapaxes(axis1, axis2)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Returns the diagonal; a view that can be written, as CuPy's."""
    made = a.diagonal(offset, axis1, axis2)
    if isinstance(made, np.ndarray) and a.flags.writeable:
        made.flags.writeable = True
    return made


def real(a: Any) -> Any:
    """Returns a view of the real parts."""
    return a.real


def imag(a: Any) -> Any:
    """Returns a view of the imaginary parts; of real numbers, zeros."""
    made = a.imag
    if isinstance(made, np.ndarray) and not made.flags.writeable and made.dtype.kind != "c":
        return made.copy()
    return made


def as_strided(a: Any, shape: Any, strides: Any) -> Any:
    """Returns a view with strides of the client's, which must stay within the array's memory.

    Raises:
        ValueError: it would reach beyond.
    """
    # Whatever they are, the sum below is one of Python's numbers, which cannot wrap around.
    shape, strides = tuple(map(operator.index, shape)), tuple(map(operator.index, strides))
    if len(shape) != len(strides) or len(shape) > 32:
        raise ValueError("shape and strides must have the same length")
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    if not (a.flags.c_contiguous or a.flags.f_contiguous):
        raise ValueError("as_strided needs a contiguous array here")
    reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True) if n]
    low = sum(r for r in reach if r < 0)
    high = sum(r for r in reach if r > 0) + a.itemsize
    if 0 not in shape and (low < 0 or high > a.nbytes):
        raise ValueError("strides is incompatible with shape of requested array and size of buffer")
    if isinstance(a, np.ndarray):
        return np.lib.stride_tricks.as_strided(a, shape, strides)
    from importlib import import_module

    return import_module("cupy.lib.stride_tricks").as_strided(a, shape, strides)


def sliding_window_view(a: Any, window_shape: Any, axis: Any = None) -> Any:
    """Returns a view of all windows."""
    if isinstance(a, np.ndarray):
        return np.lib.stride_tricks.sliding_window_view(a, window_shape, axis)
    from importlib import import_module

    return import_module("cupy.lib.stride_tricks").sliding_window_view(a, window_shape, axis)


def fill(a: Any, value: Any) -> None:
    """Sets all elements."""
    a.fill(value)


def sort(a: Any, axis: int = -1) -> None:
    """Sorts in place."""
    a.sort(axis=axis)


def partition(a: Any, kth: Any, axis: int = -1) -> None:
    """Partitions in place."""
    a.partition(kth, axis=axis)


def upload(a: Any, data: Any) -> None:
    """Replaces all elements by those of an uploaded array."""
    a[...] = data


TABLE = {
    f"rgpu.{call.__name__}": call
    for call in (
        getitem, setitem, part, copy, astype, view, reshape, ravel, transpose, squeeze, swapaxes,
        diagonal, real, imag, as_strided, sliding_window_view, fill, sort, partition, upload,
    )
}  # fmt: skip
