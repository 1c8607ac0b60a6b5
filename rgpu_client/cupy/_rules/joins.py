"""Rules of functions that join and repeat arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rgpu_client.cupy._call import NOTHING
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import Meta, checked_dtype, fresh, meta
from rgpu_client.cupy._rules.common import known, one_axis, result_type, rule, shape_of


def _arrays(tup: Any, doing: str = "concatenate") -> list[Meta]:
    if isinstance(tup, Handle):
        source = known(tup)
        found = [meta(source.dtype, source.shape[1:], None)] * source.shape[0]
    else:
        found = [known(one) for one in tup]
    if not found:
        raise ValueError(f"need at least one array to {doing}")
    return found


def _joined_dtype(tup: Any, dtype: Any) -> Any:
    if dtype is not None:
        return checked_dtype(dtype)
    return known(tup).dtype if isinstance(tup, Handle) else result_type(*tup)


def _concatenated(found: list[Meta], axis: Any, dtype: Any) -> Any:
    if axis is None:
        return fresh(dtype, (sum(one.size for one in found),))
    first = found[0]
    if not first.ndim:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    at = one_axis(axis, first.ndim)
    for number, one in enumerate(found[1:], 1):
        if one.ndim != first.ndim:
            raise ValueError(
                "all the input arrays must have same number of dimensions, but the array at index "
                f"0 has {first.ndim} dimension(s) and the array at index {number} has {one.ndim} "
                "dimension(s)"
            )
        for along, (mine, theirs) in enumerate(zip(first.shape, one.shape, strict=True)):
            if along != at and mine != theirs:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match "
                    f"exactly, but along dimension {along}, the array at index 0 has size {mine} "
                    f"and the array at index {number} has size {theirs}"
                )
    shape = list(first.shape)
    shape[at] = sum(one.shape[at] for one in found)
    whole = all(one.contiguous for one in found)
    return fresh(dtype, shape) if whole else meta(np.dtype(dtype), tuple(shape), None)


@rule("concatenate", "concat")
def _concatenate(
    tup: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    if out is not None:
        return NOTHING
    return _concatenated(_arrays(tup), axis, _joined_dtype(tup, dtype))


def _reshaped(found: Meta, shape: tuple[int, ...]) -> Meta:
    return fresh(found.dtype, shape) if found.contiguous else meta(found.dtype, shape, None)


@rule("stack")
def _stack(
    tup: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    found = _arrays(tup, "stack")
    if len({one.shape for one in found}) != 1:
        raise ValueError("all input arrays must have the same shape")
    at = one_axis(axis, found[0].ndim + 1)
    shape = found[0].shape
    made = [_reshaped(one, (*shape[:at], 1, *shape[at:])) for one in found]
    return _concatenated(made, at, _joined_dtype(tup, dtype))


@rule("vstack", "row_stack")
def _vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    made = [_reshaped(one, _at_least_2d(one.shape)) for one in _arrays(tup)]
    return _concatenated(made, 0, _joined_dtype(tup, dtype))


@rule("hstack")
def _hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    made = [_reshaped(one, one.shape or (1,)) for one in _arrays(tup)]
    axis = 0 if made and made[0].ndim == 1 else 1
    return _concatenated(made, axis, _joined_dtype(tup, dtype))


@rule("dstack")
def _dstack(tup: Any) -> Any:
    made = []
    for one in _arrays(tup):
        shape = _at_least_2d(one.shape)
        made.append(_reshaped(one, shape if len(shape) > 2 else (*shape, 1)))
    return _concatenated(made, 2, _joined_dtype(tup, None))


@rule("column_stack")
def _column_stack(tup: Any) -> Any:
    made = [one if one.ndim > 1 else _reshaped(one, (one.size, 1)) for one in _arrays(tup)]
    return _concatenated(made, 1, _joined_dtype(tup, None))


def _at_least_2d(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) > 1 else (1, *(shape or (1,)))


@rule("append")
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    if axis is None:
        return fresh(result_type(arr, values), (known(arr).size + known(values).size,))
    return _concatenated([known(arr), known(values)], axis, result_type(arr, values))


@rule("repeat", dynamic=True)
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    source = known(a)
    if isinstance(repeats, Handle):
        return None
    counts = repeats if isinstance(repeats, tuple | list) else [repeats]
    shape = [source.size] if axis is None else list(source.shape)
    at = 0 if axis is None else one_axis(axis, source.ndim)
    if len(counts) == 1:
        shape[at] *= operator.index(counts[0])
    elif len(counts) == shape[at]:
        shape[at] = sum(operator.index(n) for n in counts)
    else:
        raise ValueError("'repeats' and 'axis' of 'a' should be same length")
    return fresh(source.dtype, shape)


@rule("tile")
def _tile(A: Any, reps: Any) -> Any:
    source = known(A)
    times = shape_of(reps)
    ndim = max(len(times), source.ndim)
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - source.ndim) + source.shape
    made = [n * m for n, m in zip(shape, times, strict=True)]
    return fresh(source.dtype, made) if source.contiguous else meta(source.dtype, tuple(made), None)
