"""Sparse matrices that SciPy can be trusted with.

SciPy's C code trusts the indices of a matrix. They lie in the session's memory, where later
operations and kernels can write anything. So no operation but those on sparse matrices gets one,
and these look at the indices each time before SciPy does. SciPy also changes matrices in place, so
the indices must not share memory with anything that the same operation could change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Call = Callable[..., Any]

FORMATS: Final = ("csr", "csc", "coo", "dia")
# The arrays of a matrix.
_ARRAYS: Final = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
# What a compressed matrix remembers of its indices as they were.
_REMEMBERED: Final = ("_has_sorted_indices", "_has_canonical_format")


class Held:
    """A sparse matrix of SciPy's, as it is kept under an id."""

    __slots__ = ("matrix",)

    def __init__(self, matrix: Any) -> None:
        """Holds a matrix; one of another format than `FORMATS` becomes csr."""
        self.matrix = matrix if matrix.format in FORMATS else matrix.tocsr()

    def sound(self) -> Any:
        """Returns the matrix.

        Raises:
            ValueError: its indices lie outside of it.
        """
        check(self.matrix)
        return self.matrix


def opened(call: Call) -> Call:
    """Returns a call that takes matrices as they are held."""

    def opening(*arguments: Any, **keywords: Any) -> Any:
        _separate(_held((arguments, list(keywords.values()))))
        given = {name: _opened(one) for name, one in keywords.items()}
        return call(*map(_opened, arguments), **given)

    return opening


def _held(value: Any) -> Iterator[Any]:
    """Yields the matrices among arguments."""
    if isinstance(value, Held):
        yield value.matrix
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _held(one)


def _separate(matrices: Iterable[Any]) -> None:
    """Gives an array of a matrix memory of its own if it lies where another one does."""
    owners = {id(one): one for one in matrices}.values()
    places = [
        (*np.lib.array_utils.byte_bounds(getattr(matrix, name)), at, name)
        for at, matrix in enumerate(owners)
        for name in _ARRAYS[matrix.format]
    ]
    end, several = 0, list(owners)
    for low, high, at, name in sorted(places):
        if low < min(end, high):
            setattr(several[at], name, getattr(several[at], name).copy())
        end = max(end, high)


def _opened(value: Any) -> Any:
    if isinstance(value, Held):
        return value.sound()
    if isinstance(value, tuple | list):
        return type(value)(map(_opened, value))
    return value


def check(matrix: Any) -> None:
    """Checks the indices of a matrix. Raises ValueError."""
    if matrix.format == "coo":
        for indices, size in zip(matrix.coords, matrix.shape, strict=True):
            _check_inside(indices, size)
        matrix.has_canonical_format = False
    elif matrix.format == "dia":
        offsets = matrix.offsets
        _check_inside(np.abs(offsets), max(matrix.shape) + 1)
        _require(len(np.unique(offsets)) == len(offsets), "offsets of a sparse matrix come twice")
    else:
        _check_compressed(matrix)
        for name in _REMEMBERED:
            vars(matrix).pop(name, None)


def _check_compressed(matrix: Any) -> None:
    shape = matrix.shape if len(matrix.shape) == 2 else (1, *matrix.shape)
    rows, columns = shape if matrix.format == "csr" else shape[::-1]
    starts = matrix.indptr
    good = len(starts) == rows + 1 and starts[0] == 0 and bool((starts[1:] >= starts[:-1]).all())
    _require(good, "the index pointer of a sparse matrix is no rising sequence from 0")
    count = int(starts[-1])
    _require(
        count <= min(len(matrix.indices), len(matrix.data)),
        "the index pointer of a sparse matrix ends behind its elements",
    )
    _check_inside(matrix.indices[:count], columns)


def _check_inside(indices: Any, size: int) -> None:
    inside = not len(indices) or (indices.min() >= 0 and indices.max() < size)
    _require(bool(inside), f"an index of a sparse matrix is not below {size}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
