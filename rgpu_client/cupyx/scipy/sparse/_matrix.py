"""Sparse matrices on the node. Format, dtype and shape are known here; the elements are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client import cupy
from rgpu_client.cupy._call import MAKERS, NOTHING, RULES, call
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import DTYPES

_PARTS = ("data", "indices", "indptr", "row", "col", "offsets")


class spmatrix(Handle):
    """A sparse matrix. `_meta` is ("s", format, dtype, shape)."""

    __slots__ = ()
    __array_priority__ = 101
    __hash__ = None  # type: ignore[assignment]
    _format = ""

    def __init__(self, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False) -> None:
        made = _built(self._format, arg1, shape, dtype)
        super().__init__(made._session, made._id, made._meta)
        # This object frees it.
        del made._id

    # What is known here

    @property
    def format(self) -> str:
        """As `csr`."""
        return str(self._meta[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return DTYPES[self._meta[2]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return tuple(self._meta[3])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._meta[3])

    @property
    def nnz(self) -> int:
        """The number of stored elements. Waits for it."""
        return int(call("sparse.nnz", (self,), {}))

    @property
    def size(self) -> int:
        """The number of stored elements. Waits for it."""
        return self.nnz

    def __getattr__(self, name: str) -> Any:
        if name in _PARTS:
            return call("sparse.attribute", (self, _PARTS.index(name)), {})
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def T(self) -> Any:
        """The matrix with its axes exchanged."""
        return self.transpose()

    # Conversions

    def toarray(self, order: Any = None, out: Any = None) -> Any:
        """Returns a dense array on the node."""
        return call("sparse.toarray", (self,), {})

    todense = toarray

    def get(self, stream: Any = None) -> Any:
        """Returns SciPy's matrix with the same elements. Waits for them; needs SciPy here."""
        import importlib

        sparse: Any = importlib.import_module("scipy.sparse")
        whole = self.tocoo()
        parts = [getattr(whole, name).get() for name in ("data", "row", "col")]
        made = sparse.coo_matrix((parts[0], (parts[1], parts[2])), shape=self.shape)
        return made.asformat(self.format)

    def asformat(self, format: str) -> Any:  # noqa: A002
        """Returns the matrix in a format."""
        return self if format in (None, self.format) else call("sparse.convert", (self, format), {})

    def tocsr(self, copy: bool = False) -> Any:
        """Returns the matrix with compressed rows."""
        return self.asformat("csr")

    def tocsc(self, copy: bool = False) -> Any:
        """Returns the matrix with compressed columns."""
        return self.asformat("csc")

    def tocoo(self, copy: bool = False) -> Any:
        """Returns the matrix as coordinates."""
        return self.asformat("coo")

    def astype(self, t: Any) -> Any:
        """Returns the matrix with another dtype."""
        return call("sparse.astype", (self, np.dtype(t)), {})

    def copy(self) -> Any:
        """Returns a copy."""
        return call("sparse.copy", (self,), {})

    def conj(self, copy: bool = True) -> Any:
        """Returns the complex conjugates."""
        return call("sparse.conj", (self,), {})

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """Returns the matrix with its axes exchanged."""
        return call("sparse.transpose", (self,), {})

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Returns the elements in another shape."""
        wanted = shape[0] if len(shape) == 1 else shape
        return call("sparse.reshape", (self, tuple(wanted)), {})

    # Reductions

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Returns the sums as a dense array."""
        return call("sparse.sum", (self, axis), {})

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Returns the means as a dense array."""
        return call("sparse.mean", (self, axis), {})

    def max(self, axis: Any = None, out: Any = None) -> Any:
        """Returns the largest elements as a dense array."""
        return call("sparse.max", (self, axis), {})

    def min(self, axis: Any = None, out: Any = None) -> Any:
        """Returns the smallest elements as a dense array."""
        return call("sparse.min", (self, axis), {})

    def diagonal(self, k: int = 0) -> Any:
        """Returns the diagonal as a dense array."""
        return call("sparse.diagonal", (self, k), {})

    def count_nonzero(self, axis: Any = None) -> Any:
        """Returns the number of elements that are not 0."""
        return call("sparse.count_nonzero", (self, axis), {})

    # Changes in place

    def setdiag(self, values: Any, k: int = 0) -> None:
        """Sets the diagonal."""
        call("sparse.setdiag", (self, values, k), {})

    def sum_duplicates(self) -> None:
        """Adds elements of the same place."""
        call("sparse.sum_duplicates", (self,), {})

    def eliminate_zeros(self) -> None:
        """Forgets stored zeros."""
        call("sparse.eliminate_zeros", (self,), {})

    def sort_indices(self) -> None:
        """Sorts the indices of each row or column."""
        call("sparse.sort_indices", (self,), {})

    # Operators

    def dot(self, other: Any) -> Any:
        """Returns the product with an array, a matrix or a number."""
        if isinstance(other, int | float | complex | np.generic):
            return self * other
        return call("sparse.matmul", (self, other), {})

    def multiply(self, other: Any) -> Any:
        """Returns the products of elements."""
        return call("sparse.multiply", (self, other), {})

    def maximum(self, other: Any) -> Any:
        """Returns the larger of elements."""
        return call("sparse.maximum", (self, other), {})

    def minimum(self, other: Any) -> Any:
        """Returns the smaller of elements."""
        return call("sparse.minimum", (self, other), {})

    def power(self, n: Any, dtype: Any = None) -> Any:
        """Returns the powers of elements."""
        return call("sparse.power", (self, n), {})

    def __matmul__(self, other: Any) -> Any:
        return call("sparse.matmul", (self, other), {})

    def __rmatmul__(self, other: Any) -> Any:
        return call("sparse.matmul", (other, self), {})

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int | float | complex | np.generic):
            return call("sparse.multiply", (self, other), {})
        return self.dot(other)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return call("sparse.add", (self, other), {})

    def __radd__(self, other: Any) -> Any:
        return call("sparse.add", (other, self), {})

    def __sub__(self, other: Any) -> Any:
        return call("sparse.subtract", (self, other), {})

    def __rsub__(self, other: Any) -> Any:
        return call("sparse.subtract", (other, self), {})

    def __truediv__(self, other: Any) -> Any:
        return call("sparse.divide", (self, other), {})

    def __neg__(self) -> Any:
        return call("sparse.negative", (self,), {})

    def __abs__(self) -> Any:
        return call("sparse.absolute", (self,), {})

    def __getitem__(self, index: Any) -> Any:
        return call("sparse.getitem", (self, index), {})

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<{rows}x{columns} sparse matrix of type '{self.dtype}' in {self.format} format>"


class csr_matrix(spmatrix):
    """Compressed rows."""

    __slots__ = ()
    _format = "csr"


class csc_matrix(spmatrix):
    """Compressed columns."""

    __slots__ = ()
    _format = "csc"


class coo_matrix(spmatrix):
    """Coordinates of elements."""

    __slots__ = ()
    _format = "coo"


class dia_matrix(spmatrix):
    """Diagonals."""

    __slots__ = ()
    _format = "dia"


_CLASSES = {one._format: one for one in (csr_matrix, csc_matrix, coo_matrix, dia_matrix)}


def _make(session: Any, made: int, described: Any) -> Any:
    kind = _CLASSES.get(described[1], spmatrix)
    new = object.__new__(kind)
    Handle.__init__(new, session, made, described)
    return new


def _built(form: str, arg: Any, shape: Any, dtype: Any) -> Any:
    """Returns a matrix of what CuPy's classes take."""
    kind = None if dtype is None else np.dtype(dtype)
    if isinstance(arg, spmatrix):
        made = arg.asformat(form) if arg.format != form else arg.copy()
        return made if kind is None or made.dtype == kind else made.astype(kind)
    if isinstance(arg, cupy.ndarray | np.ndarray | list):
        return call("sparse.dense", (form, cupy.asarray(arg), kind), {})
    if hasattr(arg, "tocoo"):
        return _built(form, _of_scipy(arg.tocoo()), arg.shape, dtype or arg.dtype)
    if isinstance(arg, tuple) and len(arg) == 2 and all(isinstance(n, int) for n in arg):
        return call("sparse.empty", (form, arg, kind or np.dtype("float64")), {})
    wanted = None if shape is None else tuple(map(int, shape))
    if isinstance(arg, tuple) and len(arg) == 3:
        data, indices, indptr = map(cupy.asarray, arg)
        return call("sparse.compressed", (form, data, indices, indptr, wanted, kind), {})
    if isinstance(arg, tuple) and len(arg) == 2:
        data, (row, column) = arg
        parts = [cupy.asarray(one) for one in (data, row, column)]
        return call("sparse.coordinates", (form, *parts, wanted, kind), {})
    raise TypeError(f"invalid input format: {type(arg)}")


def _of_scipy(whole: Any) -> Any:
    return whole.data, (whole.row, whole.col)


def issparse(x: Any) -> bool:
    """Returns whether an object is a sparse matrix on the node."""
    return isinstance(x, spmatrix)


isspmatrix = issparse


def isspmatrix_csr(x: Any) -> bool:
    """Returns whether it has compressed rows."""
    return isinstance(x, csr_matrix)


def isspmatrix_csc(x: Any) -> bool:
    """Returns whether it has compressed columns."""
    return isinstance(x, csc_matrix)


def isspmatrix_coo(x: Any) -> bool:
    """Returns whether it is made of coordinates."""
    return isinstance(x, coo_matrix)


def _changes(*_: Any) -> Any:
    return NOTHING


MAKERS["s"] = _make
for _name in ("setdiag", "sum_duplicates", "eliminate_zeros", "sort_indices"):
    RULES[f"sparse.{_name}"] = _changes
