"""Rules of functions that change shapes."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from rgpu_client.cupy._call import LISTS, Unsure
from rgpu_client.cupy._meta import Meta, c_strides, checked_dtype, f_strides, fresh, like, meta
from rgpu_client.cupy._rules.common import (
    axes_of,
    broadcast,
    known,
    one_axis,
    rule,
    shape_of,
)


def _moved(source: Meta, order: Any) -> Meta:
    """Returns the description of a view whose axes are in another order."""
    shape = tuple(source.shape[at] for at in order)
    strides = None if source.strides is None else tuple(source.strides[at] for at in order)
    return meta(source.dtype, shape, strides)


@rule("rgpu.transpose", "permute_dims")
def _transpose(a: Any, axes: Any = None) -> Any:
    source = known(a)
    if axes is None:
        return _moved(source, range(source.ndim)[::-1])
    if len(axes) != source.ndim:
        raise ValueError("axes don't match array")
    order = axes_of(tuple(axes), source.ndim)
    return _moved(source, order)


@rule("matrix_transpose", "linalg.matrix_transpose")
def _matrix_transpose(a: Any) -> Any:
    source = known(a)
    if source.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {source.ndim}")
    return _moved(source, (*range(source.ndim - 2), source.ndim - 1, source.ndim - 2))


@rule("rgpu.swapaxes")
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    source = known(a)
    order = list(range(source.ndim))
    first, second = one_axis(axis1, source.ndim), one_axis(axis2, source.ndim)
    order[first], order[second] = second, first
    return _moved(source, order)


@rule("moveaxis")
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    found = known(a)
    begin, end = axes_of(source, found.ndim), axes_of(destination, found.ndim)
    if len(begin) != len(end):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    order = [at for at in range(found.ndim) if at not in begin]
    for to, at in sorted(zip(end, begin, strict=True)):
        order.insert(to, at)
    return _moved(found, order)


@rule("rollaxis")
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    found = known(a)
    at = one_axis(axis, found.ndim)
    to = start + found.ndim if start < 0 else start
    if not 0 <= to <= found.ndim:
        raise Unsure
    order = [n for n in range(found.ndim) if n != at]
    order.insert(to - 1 if at < to else to, at)
    return _moved(found, order)


@rule("rgpu.reshape")
def _reshape(a: Any, shape: Any, order: str = "C") -> Any:
    source = known(a)
    wanted = _wanted(source, shape)
    if source.contiguous and order == "C":
        return fresh(source.dtype, wanted)
    return meta(source.dtype, wanted, None)


def _wanted(source: Meta, shape: Any) -> tuple[int, ...]:
    """Returns a new shape, in which one length may be -1."""
    parts = [operator.index(n) for n in (shape if isinstance(shape, tuple | list) else (shape,))]
    open_ones = [at for at, n in enumerate(parts) if n == -1]
    rest = prod(n for n in parts if n != -1)
    wrong = len(open_ones) > 1 or any(n < -1 for n in parts)
    if len(open_ones) > 1:
        raise ValueError("can only specify one unknown dimension")
    if open_ones and not wrong and rest:
        parts[open_ones[0]] = source.size // rest
    if wrong or prod(parts) != source.size or (open_ones and not rest):
        raise ValueError(
            f"cannot reshape array of size {source.size} into shape "
            f"{str(tuple(shape) if isinstance(shape, list | tuple) else (shape,)).replace(' ', '')}"
        )
    return tuple(parts)


@rule("rgpu.ravel")
def _ravel(a: Any, order: str = "C") -> Any:
    source = known(a)
    if source.strides is not None and source.ndim == 1:
        return meta(source.dtype, source.shape, source.strides if source.size else None)
    if source.contiguous and order in "CA":
        return fresh(source.dtype, (source.size,))
    return meta(source.dtype, (source.size,), None)


@rule("rgpu.squeeze")
def _squeeze(a: Any, axis: Any = None) -> Any:
    source = known(a)
    if axis is None:
        gone = {at for at, n in enumerate(source.shape) if n == 1}
    else:
        gone = set(axes_of(axis, source.ndim))
        if any(source.shape[at] != 1 for at in gone):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return _moved(source, [at for at in range(source.ndim) if at not in gone])


@rule("expand_dims")
def _expand_dims(a: Any, axis: Any) -> Any:
    source = known(a)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = source.ndim + len(axes)
    new = axes_of(tuple(axes), ndim)
    shapes, strides = iter(source.shape), iter(source.strides or ())
    shape = tuple(1 if at in new else next(shapes) for at in range(ndim))
    if source.strides is None:
        return meta(source.dtype, shape, None)
    return meta(source.dtype, shape, tuple(0 if at in new else next(strides) for at in range(ndim)))


@rule("broadcast_to")
def _broadcast_to(array: Any, shape: Any) -> Any:
    source, wanted = known(array), shape_of(shape)
    if len(wanted) < source.ndim or broadcast(source.shape, wanted) != wanted:
        raise ValueError(
            "operands could not be broadcast together with remapped shapes "
            f"[original->remapped]: {source.shape} and requested shape {wanted}"
        )
    if source.strides is None:
        return meta(source.dtype, wanted, None)
    added = len(wanted) - source.ndim
    strides = [0] * added + [
        0 if n == 1 else step for n, step in zip(source.shape, source.strides, strict=True)
    ]
    return meta(source.dtype, wanted, tuple(strides))


@rule("rgpu.diagonal")
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    source = known(a)
    if source.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first, second = axes_of((axis1, axis2), source.ndim)
    rows, columns = source.shape[first], source.shape[second]
    size = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    rest = [at for at in range(source.ndim) if at not in (first, second)]
    shape = (*(source.shape[at] for at in rest), size)
    if source.strides is None:
        return meta(source.dtype, shape, None)
    steps = source.strides
    return meta(source.dtype, shape, (*(steps[at] for at in rest), steps[first] + steps[second]))


@rule("diag")
def _diag(v: Any, k: int = 0) -> Any:
    source = known(v)
    if source.ndim == 1:
        n = source.size + abs(k)
        return fresh(source.dtype, (n, n))
    if source.ndim == 2:
        return _diagonal(v, k)
    raise ValueError("Input must be 1- or 2-d.")


@rule("rgpu.real", "rgpu.imag")
def _part(a: Any) -> Any:
    source = known(a)
    if source.dtype.kind != "c":
        return meta(source.dtype, source.shape, None)
    return meta(np.dtype(f"f{source.dtype.itemsize // 2}"), source.shape, source.strides)


@rule("rgpu.copy")
def _copy(a: Any, order: str = "C") -> Any:
    return _laid(known(a), known(a).dtype, order)


@rule("rgpu.astype")
def _astype(a: Any, dtype: Any, order: str = "K") -> Any:
    return _laid(known(a), checked_dtype(dtype), order)


def _laid(source: Meta, dtype: Any, order: str) -> Meta:
    if order == "C":
        return fresh(dtype, source.shape)
    if order == "F":
        return meta(dtype, source.shape, f_strides(source.shape, dtype.itemsize))
    return like(source, dtype, source.shape)


@rule("rgpu.view")
def _view(a: Any, dtype: Any) -> Any:
    source, kind = known(a), checked_dtype(dtype)
    if kind.itemsize == source.dtype.itemsize:
        return meta(kind, source.shape, source.strides)
    if source.ndim == 0:
        raise ValueError(
            "Changing the dtype of a 0d array is only supported if the itemsize is unchanged"
        )
    if not source.contiguous:
        raise Unsure
    size = source.shape[-1] * source.dtype.itemsize
    if size % kind.itemsize:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in "
            "bytes of the last axis of the array."
        )
    return fresh(kind, (*source.shape[:-1], size // kind.itemsize))


@rule("ascontiguousarray")
def _ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    source = known(a)
    kind = source.dtype if dtype is None else checked_dtype(dtype)
    return fresh(kind, source.shape or (1,))


@rule("asfortranarray")
def _asfortranarray(a: Any, dtype: Any = None) -> Any:
    source = known(a)
    kind = source.dtype if dtype is None else checked_dtype(dtype)
    return meta(kind, source.shape or (1,), f_strides(source.shape or (1,), kind.itemsize))


@rule("flip", "fliplr", "flipud")
def _flip(m: Any, axis: Any = None) -> Any:
    source = known(m)
    axes_of(axis, source.ndim)
    return meta(source.dtype, source.shape, None)


@rule("roll")
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    source = known(a)
    axes_of(axis, source.ndim)
    return like(source, source.dtype, source.shape)


@rule("tril", "triu")
def _triangle(m: Any, k: int = 0) -> Any:
    source = known(m)
    if source.ndim < 2:
        raise Unsure
    return like(source, source.dtype, source.shape)


def strides_of(shape: tuple[int, ...], dtype: Any, order: str) -> Meta:
    """Returns the description of a new array in this order."""
    kind = checked_dtype(dtype)
    lay = f_strides if order == "F" else c_strides
    return meta(kind, shape, lay(shape, kind.itemsize))


LISTS.update(["split", "array_split", "hsplit", "vsplit", "dsplit", "meshgrid", "gradient"])
