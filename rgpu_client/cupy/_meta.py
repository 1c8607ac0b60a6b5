"""What the client knows of an array: dtype, shape and, where it can, strides."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_MOST_KEPT: Final = 1 << 16


class Meta:
    """A description that arrays share. Equal ones are the same object as long as it is kept, so
    that a tuple of them is a quick key; nothing is wrong if two equal ones exist.

    strides: in bytes; None: only the node knows them.
    """

    __slots__ = ("dtype", "ndim", "shape", "size", "strides")

    def __init__(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.ndim = len(shape)
        self.size = prod(shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are known to lie in C order without gaps."""
        return self.strides is not None and is_contiguous(
            self.shape, self.strides, self.dtype.itemsize
        )


_kept: dict[Any, Meta] = {}


def meta(
    dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Meta:
    """Returns a description with these strides; None: not known."""
    key = (dtype, shape, strides)
    found = _kept.get(key)
    if found is None:
        if len(_kept) > _MOST_KEPT:
            _kept.clear()
        found = _kept[key] = Meta(dtype, shape, strides)
    return found


def fresh(dtype: Any, shape: Sequence[int]) -> Meta:
    """Returns the description of a new array in C order."""
    kind = np.dtype(dtype)
    whole = tuple(shape)
    return meta(kind, whole, c_strides(whole, kind.itemsize))


def like(source: Any, dtype: Any, shape: Sequence[int]) -> Meta:
    """Returns the description of a new array whose layout follows that of `source`, whose strides
    then are known only in C order.
    """
    whole = tuple(shape)
    if len(whole) < 2 or source.contiguous:
        return fresh(dtype, whole)
    return meta(np.dtype(dtype), whole, None)


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Returns the strides of an array in C order."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return tuple(reversed(strides))


def f_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Returns the strides of an array in Fortran's order."""
    return tuple(reversed(c_strides(tuple(reversed(shape)), itemsize)))


def is_contiguous(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Returns whether elements lie in C order without gaps."""
    step = itemsize
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def checked_dtype(value: Any) -> np.dtype[Any]:
    """Returns a dtype that the node has.

    Raises:
        ValueError: CuPy has none, as for objects and text.
        TypeError: it is no dtype.
    """
    dtype: np.dtype[Any] = np.dtype(value)
    if dtype not in _NAMES:
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype that the node has. Errors as `checked_dtype`."""
    return _NAMES[checked_dtype(dtype)]
