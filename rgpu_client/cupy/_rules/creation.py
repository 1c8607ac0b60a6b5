"""Rules of functions that make arrays of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rgpu_client.cupy._call import CONSTANTS, Unsure
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import checked_dtype, fresh, like
from rgpu_client.cupy._rules.common import known, operand, rule, shape_of, wanted_dtype
from rgpu_client.cupy._rules.shapes import strides_of


@rule("zeros", "ones", "empty")
def _zeros(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return strides_of(shape_of(shape), wanted_dtype(dtype, float), order or "C")


@rule("full")
def _full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Any:
    if dtype is None:
        kind = operand(fill_value)[1]
        dtype = np.dtype(kind)
    return strides_of(shape_of(shape), dtype, order or "C")


@rule("zeros_like", "ones_like", "empty_like")
def _zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> Any:
    source = known(a)
    kind = wanted_dtype(dtype, source.dtype)
    if shape is not None or order not in ("K", "A"):
        return strides_of(source.shape if shape is None else shape_of(shape), kind, order)
    return like(source, kind, source.shape)


@rule("full_like")
def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None,
    shape: Any = None,
) -> Any:  # fmt: skip
    return _zeros_like(a, dtype, order, subok, shape)


@rule("eye")
def _eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C") -> Any:
    return strides_of(shape_of((N, N if M is None else M)), dtype, order or "C")


@rule("identity")
def _identity(n: Any, dtype: Any = float) -> Any:
    return fresh(wanted_dtype(dtype, float), shape_of((n, n)))


@rule("tri")
def _tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    return fresh(wanted_dtype(dtype, float), shape_of((N, N if M is None else M)))


CONSTANTS.update(("arange", "linspace", "logspace"))


@rule("arange")
def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    if any(isinstance(one, Handle) for one in (start, stop, step)):
        raise TypeError("arange takes numbers; use int() or float() of the array first")
    begin, end = (0, start) if stop is None else (start, stop)
    step = 1 if step is None else step
    if step == 0:
        raise ZeroDivisionError("division by zero")
    kind = checked_dtype(dtype) if dtype is not None else np.result_type(begin, end, step)
    count = math.ceil((end - begin) / step)
    return fresh(checked_dtype(kind), (max(0, count),))


@rule("linspace")
def _linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: Any = True, retstep: Any = False,
    dtype: Any = None, axis: Any = 0,
) -> Any:  # fmt: skip
    if retstep or axis != 0 or operand(start)[0] or operand(stop)[0]:
        raise Unsure
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    kind = dtype if dtype is not None else np.result_type(_number(start), _number(stop), 1.0)
    return fresh(checked_dtype(kind), (int(num),))


def _number(value: Any) -> Any:
    return known(value).dtype if isinstance(value, Handle) else value


@rule("logspace")
def _logspace(
    start: Any, stop: Any, num: Any = 50, endpoint: Any = True, base: Any = 10.0,
    dtype: Any = None, axis: Any = 0,
) -> Any:  # fmt: skip
    if isinstance(base, Handle):
        raise Unsure
    return _linspace(start, stop, num, endpoint, False, dtype, axis)


@rule("bartlett", "blackman", "hamming", "hanning")
def _window(M: Any) -> Any:
    return fresh(float, (max(0, int(M)),))


@rule("kaiser")
def _kaiser(M: Any, beta: Any) -> Any:
    return fresh(float, (max(0, int(M)),))


@rule("indices")
def _indices(dimensions: Any, dtype: Any = int) -> Any:
    shape = shape_of(dimensions)
    return fresh(wanted_dtype(dtype, int), (len(shape), *shape))
