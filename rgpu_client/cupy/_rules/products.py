"""Rules of products, and of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client.cupy._call import NOTHING, Unsure
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import fresh, meta
from rgpu_client.cupy._rules.common import (
    axes_of,
    broadcast,
    known,
    operand,
    result_type,
    rule,
)


@rule("matmul", "linalg.matmul")
def _matmul(x1: Any, x2: Any, out: Any = None, **keywords: Any) -> Any:
    if out is not None or keywords:
        raise Unsure
    shape = matmul_shape(operand(x1)[0], operand(x2)[0])
    return fresh(result_type(x1, x2), shape)


def matmul_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of `first @ second`.

    Raises:
        ValueError: there is none; the text is NumPy's.
    """
    if not first or not second:
        at = 0 if not first else 1
        raise ValueError(
            f"matmul: Input operand {at} does not have enough dimensions (has 0, gufunc core with "
            "signature (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    left = first if len(first) > 1 else (1, *first)
    right = second if len(second) > 1 else (*second, 1)
    if left[-1] != right[-2]:
        raise ValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {right[-2]} is different from {left[-1]})"
        )
    shape = broadcast(left[:-2], right[:-2])
    rows = left[-2:-1] if len(first) > 1 else ()
    columns = right[-1:] if len(second) > 1 else ()
    return (*shape, *rows, *columns)


@rule("dot")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        return NOTHING
    first, second = operand(a)[0], operand(b)[0]
    if not first or not second:
        raise Unsure
    at = -2 if len(second) > 1 else 0
    if first[-1] != second[at]:
        raise ValueError(
            f"shapes {_text(first)} and {_text(second)} not aligned: {first[-1]} "
            f"(dim {len(first) - 1}) != {second[at]} (dim {at % len(second)})"
        )
    rest = (*second[:-2], second[-1]) if len(second) > 1 else ()
    return fresh(result_type(a, b), (*first[:-1], *rest))


def _text(shape: tuple[int, ...]) -> str:
    return str(shape).replace(" ", "")


@rule("vdot")
def _vdot(a: Any, b: Any) -> Any:
    return fresh(result_type(a, b), ())


@rule("inner")
def _inner(a: Any, b: Any) -> Any:
    first, second = known(a).shape, known(b).shape
    if not first or not second:
        raise Unsure
    if first[-1] != second[-1]:
        raise ValueError(
            f"shapes {_text(first)} and {_text(second)} not aligned: {first[-1]} "
            f"(dim {len(first) - 1}) != {second[-1]} (dim {len(second) - 1})"
        )
    return fresh(result_type(a, b), (*first[:-1], *second[:-1]))


@rule("outer")
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    return fresh(result_type(a, b), (known(a).size, known(b).size))


@rule("rgpu.ufunc_outer")
def _ufunc_outer(name: str, a: Any, b: Any) -> Any:
    ufunc = getattr(np, name, None)
    if not isinstance(ufunc, np.ufunc):
        raise Unsure
    (first, kind), (second, other) = operand(a), operand(b)
    found = ufunc.resolve_dtypes((kind, other) + (None,) * ufunc.nout)
    return fresh(found[2], (*first, *second))


@rule("tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    first, second = known(a), known(b)
    if isinstance(axes, int):
        left, right = tuple(range(first.ndim - axes, first.ndim)), tuple(range(axes))
    else:
        left, right = axes_of(axes[0], first.ndim), axes_of(axes[1], second.ndim)
    if len(left) != len(right) or any(
        first.shape[i] != second.shape[j] for i, j in zip(left, right, strict=True)
    ):
        raise ValueError("shape-mismatch for sum")
    shape = [n for at, n in enumerate(first.shape) if at not in left]
    shape += [n for at, n in enumerate(second.shape) if at not in right]
    return fresh(result_type(a, b), shape)


@rule("einsum")
def _einsum(*operands: Any, **keywords: Any) -> Any:
    if not operands or not isinstance(operands[0], str) or set(keywords) - {"optimize"}:
        raise Unsure
    subscripts, *arrays = operands
    terms = subscripts.replace(" ", "")
    if "." in terms:
        raise Unsure
    inputs, arrow, output = terms.partition("->")
    sizes: dict[str, int] = {}
    names = inputs.split(",")
    if len(names) != len(arrays):
        more = "more" if len(arrays) > len(names) else "fewer"
        raise ValueError(
            f"{more} operands provided to einstein sum function than specified in the subscripts "
            "string"
        )
    for at, (term, array) in enumerate(zip(names, arrays, strict=True)):
        _einsum_sizes(at, term, known(array).shape, sizes)
    if not arrow:
        output = "".join(sorted(c for c in sizes if inputs.count(c) == 1))
    for letter in output:
        if letter not in sizes:
            raise ValueError(
                f"einstein sum subscripts string included output subscript {letter!r} which never "
                "appeared in an input"
            )
    shape = tuple(sizes[c] for c in output)
    dtype = result_type(*arrays)
    # A result may be a view, as of "ij->ji" and "ii->i".
    return fresh(dtype, shape) if len(shape) < 1 else meta(dtype, shape, None)


def _einsum_sizes(at: int, term: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    if len(term) != len(shape):
        raise ValueError(
            f"einstein sum subscripts string contains too many subscripts for operand {at}"
            if len(term) > len(shape)
            else "operand has more dimensions than subscripts given in einstein sum, but no '...' "
            "ellipsis provided to broadcast the extra dimensions."
        )
    for letter, n in zip(term, shape, strict=True):
        known_size = sizes.get(letter, 1)
        if known_size not in (1, n) and n != 1:
            raise ValueError(
                f"operand {at} has a mismatch in its core dimension for subscript {letter!r}: "
                f"{known_size} and {n}"
            )
        sizes[letter] = max(known_size, n)


@rule("kron")
def _kron(a: Any, b: Any) -> Any:
    first, second = known(a), known(b)
    ndim = max(first.ndim, second.ndim)
    left = (1,) * (ndim - first.ndim) + first.shape
    right = (1,) * (ndim - second.ndim) + second.shape
    shape = tuple(n * m for n, m in zip(left, right, strict=True))
    return meta(result_type(a, b), shape, None)


def _floating(kind: Any) -> Any:
    """Returns the dtype in which linear algebra computes."""
    if kind.kind in "biu":
        return np.dtype(float)
    if kind == np.float16:
        raise TypeError("array type float16 is unsupported in linalg")
    return kind


def _square(a: Any) -> Any:
    source = known(a)
    if source.ndim < 2:
        raise np.linalg.LinAlgError(
            f"{source.ndim}-dimensional array given. Array must be at least two-dimensional"
        )
    if source.shape[-1] != source.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return source


@rule("linalg.inv")
def _inv(a: Any) -> Any:
    source = _square(a)
    return meta(_floating(source.dtype), source.shape, None)


@rule("linalg.cholesky")
def _cholesky(a: Any) -> Any:
    return _inv(a)


@rule("linalg.det")
def _det(a: Any) -> Any:
    source = _square(a)
    return meta(_floating(source.dtype), source.shape[:-2], None)


@rule("linalg.solve")
def _solve(a: Any, b: Any) -> Any:
    source, right = _square(a), known(b)
    kind = _floating(result_type(a, b))
    if right.ndim == 1 and source.ndim == 2:
        if right.shape[0] != source.shape[-1]:
            raise Unsure
        return fresh(kind, right.shape)
    if right.ndim == 2 and source.ndim == 2 and right.shape[0] == source.shape[0]:
        return meta(kind, right.shape, None)
    raise Unsure


@rule("linalg.eigh")
def _eigh(a: Any, UPLO: str = "L") -> Any:
    source = _square(a)
    kind = _floating(source.dtype)
    return (meta(_real(kind), source.shape[:-1], None), meta(kind, source.shape, None))


@rule("linalg.eigvalsh")
def _eigvalsh(a: Any, UPLO: str = "L") -> Any:
    source = _square(a)
    return meta(_real(_floating(source.dtype)), source.shape[:-1], None)


def _real(kind: Any) -> Any:
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


@rule("linalg.svd")
def _svd(a: Any, full_matrices: Any = True, compute_uv: Any = True) -> Any:
    source = known(a)
    if source.ndim < 2:
        raise np.linalg.LinAlgError(
            f"{source.ndim}-dimensional array given. Array must be at least two-dimensional"
        )
    *batch, rows, columns = source.shape
    least, kind = min(rows, columns), _floating(source.dtype)
    values = meta(_real(kind), (*batch, least), None)
    if not compute_uv:
        return values
    left = rows if full_matrices else least
    right = columns if full_matrices else least
    return (
        meta(kind, (*batch, rows, left), None), values, meta(kind, (*batch, right, columns), None)
    )  # fmt: skip


@rule("linalg.qr")
def _qr(a: Any, mode: str = "reduced") -> Any:
    source = known(a)
    if source.ndim < 2 or mode not in ("reduced", "complete"):
        raise Unsure
    *batch, rows, columns = source.shape
    kind = _floating(source.dtype)
    inner = min(rows, columns) if mode == "reduced" else rows
    return (meta(kind, (*batch, rows, inner), None), meta(kind, (*batch, inner, columns), None))


@rule("linalg.slogdet")
def _slogdet(a: Any) -> Any:
    source = _square(a)
    kind = _floating(source.dtype)
    shape = source.shape[:-2]
    return (meta(kind, shape, None), meta(_real(kind), shape, None))


@rule("linalg.norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:  # noqa: A002
    source = known(x)
    if source.dtype.kind not in "fc" or source.dtype == np.float16:
        raise Unsure
    kind = _real(source.dtype)
    gone = axes_of(axis, source.ndim)
    if keepdims:
        shape = tuple(1 if at in gone else n for at, n in enumerate(source.shape))
    else:
        shape = tuple(n for at, n in enumerate(source.shape) if at not in gone)
    return meta(kind, shape, None)


@rule("linalg.pinv")
def _pinv(a: Any, rcond: Any = 1e-15) -> Any:
    source = known(a)
    if source.ndim < 2 or isinstance(rcond, Handle):
        raise Unsure
    *batch, rows, columns = source.shape
    return meta(_floating(source.dtype), (*batch, columns, rows), None)


@rule("cross")
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    first, second = known(a), known(b)
    if first.shape != second.shape or not first.ndim or first.shape[-1] != 3 or axis is not None:
        raise Unsure
    if {axisa, axisb, axisc} != {-1}:
        raise Unsure
    return meta(result_type(a, b), first.shape, None)
