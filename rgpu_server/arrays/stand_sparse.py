"""Operations on sparse matrices, of SciPy or of CuPy: both have the same methods."""

from __future__ import annotations

import operator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_server.arrays.held_sparse import FORMATS, check
from rgpu_server.arrays.library import NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.arrays.cupy_rows import Row

    Call = Callable[..., Any]

_PARTS: Final = ("data", "indices", "indptr", "row", "col", "offsets")


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse matrix of SciPy or CuPy."""
    module = type(value).__module__
    return module.startswith(("scipy.sparse.", "cupyx.scipy.sparse.")) and hasattr(value, "tocsr")


def find(row: Row, sparse: Any = None) -> Call:
    """Returns what executes a row whose name begins with `sparse.`.

    Raises:
        NotOfferedError: nothing does.
    """
    sparse = sparse or import_module("scipy.sparse")
    name = row.public.split(".")[1]
    makers: dict[str, Call] = {
        "compressed": _compressed, "coordinates": _coordinates, "dense": _dense, "empty": _empty,
    }  # fmt: skip
    if name in makers:
        return lambda form, *rest, **given: makers[name](
            getattr(sparse, f"{_format(form)}_matrix"), *rest, **given
        )
    found = _OPERATIONS.get(name)
    if found is None:
        raise NotOfferedError(f"this node executes no {row.public}")
    return found


def _format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"unknown sparse format {name!r}")
    return name


def _compressed(
    cls: Any, data: Any, indices: Any, indptr: Any, shape: Any = None, dtype: Any = None
) -> Any:
    made = cls((data, indices, indptr), shape=shape, dtype=dtype)
    if isinstance(data, np.ndarray):
        check(made)
    return made


def _coordinates(
    cls: Any, data: Any, row: Any, col: Any, shape: Any = None, dtype: Any = None
) -> Any:
    return cls((data, (row, col)), shape=shape, dtype=dtype)


def _dense(cls: Any, a: Any, dtype: Any = None) -> Any:
    return cls(a, dtype=dtype)


def _empty(cls: Any, shape: Any, dtype: Any = None) -> Any:
    return cls(shape, dtype=dtype)


def _attribute(a: Any, part: int) -> Any:
    """Returns a copy of an array of a matrix by its place among `_PARTS`."""
    return getattr(a, _PARTS[part]).copy()


def _dense_result(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.matrix) else value


def _method(name: str) -> Call:
    def call(a: Any, *arguments: Any, **keywords: Any) -> Any:
        if not is_sparse(a):
            raise TypeError("a sparse matrix is expected")
        made = getattr(a, name)(*arguments, **keywords)
        if name in ("max", "min") and is_sparse(made):
            made = made.toarray()
        return _dense_result(made)

    return call


def _changing(name: str) -> Call:
    call = _method(name)

    def changing(a: Any, *arguments: Any, **keywords: Any) -> None:
        call(a, *arguments, **keywords)

    return changing


def _binary(function: Call) -> Call:
    def call(a: Any, b: Any) -> Any:
        if not (is_sparse(a) or is_sparse(b)):
            raise TypeError("a sparse matrix is expected")
        return _dense_result(function(a, b))

    return call


def _convert(a: Any, format: str) -> Any:  # noqa: A002
    return a.asformat(_format(format))


def _getitem(a: Any, index: Any) -> Any:
    return a[index]


_OPERATIONS: Final[dict[str, Call]] = {
    "add": _binary(operator.add),
    "subtract": _binary(operator.sub),
    "matmul": _binary(operator.matmul),
    "divide": _binary(operator.truediv),
    "equal": _binary(operator.eq),
    "multiply": _method("multiply"),
    "maximum": _method("maximum"),
    "minimum": _method("minimum"),
    "negative": operator.neg,
    "absolute": abs,
    "power": _method("power"),
    "sum": _method("sum"),
    "mean": _method("mean"),
    "max": _method("max"),
    "min": _method("min"),
    "diagonal": _method("diagonal"),
    "toarray": _method("toarray"),
    "convert": _convert,
    "transpose": _method("transpose"),
    "astype": _method("astype"),
    "copy": _method("copy"),
    "conj": _method("conj"),
    "getitem": _getitem,
    "attribute": _attribute,
    "setdiag": _changing("setdiag"),
    "reshape": _method("reshape"),
    "count_nonzero": _method("count_nonzero"),
    "nnz": lambda a: int(a.nnz),
    "sum_duplicates": _changing("sum_duplicates"),
    "eliminate_zeros": _changing("eliminate_zeros"),
    "sort_indices": _changing("sort_indices"),
}
