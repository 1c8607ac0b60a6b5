"""Rules of reductions, of functions along an axis, and of sorting."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from rgpu_client.cupy._call import NOTHING, Unsure
from rgpu_client.cupy._meta import checked_dtype, fresh, like
from rgpu_client.cupy._rules.common import axes_of, broadcast, known, one_axis, operand, rule

_NO_IDENTITY: Final = frozenset({"min", "max", "amin", "amax", "argmin", "argmax"})
_OPERATION: Final = {"min": "minimum", "amin": "minimum", "max": "maximum", "amax": "maximum"}


@functools.cache
def _dtype(name: str, dtype: Any, wanted: Any) -> Any:
    """Returns the dtype of a reduction, which NumPy says for an array of one element."""
    function = getattr(np, name)
    with np.errstate(all="ignore"):
        made = function(np.ones(1, dtype), **({} if wanted is None else {"dtype": wanted}))
    return checked_dtype(np.asarray(made).dtype)


def _reduced(name: str, a: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    source = known(a)
    gone = axes_of(axis, source.ndim)
    if name in _NO_IDENTITY and any(source.shape[at] == 0 for at in gone):
        _refuse_empty(name)
    wanted = None if dtype is None else checked_dtype(dtype)
    kind = _dtype(name, source.dtype, wanted)
    if keepdims:
        shape = tuple(1 if at in gone else n for at, n in enumerate(source.shape))
    else:
        shape = tuple(n for at, n in enumerate(source.shape) if at not in gone)
    return like(source, kind, shape)


def _refuse_empty(name: str) -> None:
    if name.startswith("arg"):
        raise ValueError(f"attempt to get {name} of an empty sequence")
    raise ValueError(
        f"zero-size array to reduction operation {_OPERATION[name]} which has no identity"
    )


def _add(names: str, numpy: str = "") -> None:
    for name in names.split():

        def found(
            a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
            *, numpy: str = numpy or name,
        ) -> Any:  # fmt: skip
            return _reduced(numpy, a, axis, dtype, bool(keepdims))

        rule(name)(found)


_add("sum prod mean nansum nanprod nanmean")
_add("product", "prod")


@rule("std", "var", "nanstd", "nanvar", values=True)
def _spread(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = False,
) -> Any:  # fmt: skip
    # The whole numbers among the arguments are not values, and ddof changes no shape.
    return _reduced("var", a, axis, dtype, bool(keepdims))


def _add_plain(names: str, numpy: str = "") -> None:
    for name in names.split():

        def found(
            a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
            *, numpy: str = numpy or name,
        ) -> Any:  # fmt: skip
            return _reduced(numpy, a, axis, None, bool(keepdims))

        rule(name)(found)


_add_plain("min max amin amax all any ptp nanmin nanmax")
_add_plain("alltrue", "all")
_add_plain("sometrue", "any")


@rule("argmax", "argmin", "nanargmax", "nanargmin")
def _argmax(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False
) -> Any:
    source = known(a)
    gone = (one_axis(axis, source.ndim),) if axis is not None else None
    if 0 in ([source.size] if gone is None else [source.shape[gone[0]]]):
        _refuse_empty("argmax")
    made = _reduced("argmax", a, gone, None, bool(keepdims))
    return like(source, dtype, made.shape) if dtype is not None else made


@rule("count_nonzero")
def _count_nonzero(a: Any, axis: Any = None) -> Any:
    return _reduced("count_nonzero", a, axis, None, False)


@rule("median", "nanmedian")
def _median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = False
) -> Any:
    made = _reduced("median", a, axis, None, bool(keepdims))
    if made.ndim > 1:
        raise Unsure
    return made


@rule("cumsum", "cumprod", "nancumsum", "nancumprod", "cumproduct")
def _cumulative(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    source = known(a)
    kind = _dtype("cumsum", source.dtype, None if dtype is None else checked_dtype(dtype))
    if axis is None:
        return fresh(kind, (source.size,))
    one_axis(axis, source.ndim)
    return like(source, kind, source.shape)


@rule("sort")
def _sort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    source = known(a)
    if axis is None:
        return fresh(source.dtype, (source.size,))
    one_axis(axis, source.ndim)
    return like(source, source.dtype, source.shape)


@rule("argsort")
def _argsort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    source = known(a)
    if axis is None:
        return fresh("int64", (source.size,))
    one_axis(axis, source.ndim)
    return like(source, "int64", source.shape)


@rule("partition")
def _partition(a: Any, kth: Any, axis: Any = -1) -> Any:
    return _sort(a, axis)


@rule("argpartition")
def _argpartition(a: Any, kth: Any, axis: Any = -1) -> Any:
    return _argsort(a, axis)


@rule("rgpu.sort", "rgpu.partition")
def _in_place(a: Any, *arguments: Any) -> Any:
    if arguments:
        one_axis(arguments[-1], known(a).ndim)
    return NOTHING


@rule("lexsort")
def _lexsort(keys: Any) -> Any:
    return fresh("int64", known(keys).shape[1:])


@rule("searchsorted")
def _searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    shape, _ = operand(v)
    return fresh("int64", shape) if len(shape) < 2 else like(known(v), "int64", shape)


@rule("digitize")
def _digitize(x: Any, bins: Any, right: Any = False) -> Any:
    return like(known(x), "int64", known(x).shape)


@rule("in1d")
def _in1d(ar1: Any, ar2: Any, assume_unique: Any = False, invert: Any = False) -> Any:
    return fresh(bool, (known(ar1).size,))


@rule("isin")
def _isin(element: Any, test: Any, assume_unique: Any = False, invert: Any = False) -> Any:
    return like(known(element), bool, known(element).shape)


@rule("trace")
def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    source = known(a)
    gone = axes_of((axis1, axis2), source.ndim)
    kind = _dtype("sum", source.dtype, None if dtype is None else checked_dtype(dtype))
    shape = tuple(n for at, n in enumerate(source.shape) if at not in gone)
    return like(source, kind, shape)


@rule("diff")
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    source = known(a)
    if prepend is not None or append is not None or n < 1:
        raise Unsure
    at = one_axis(axis, source.ndim)
    shape = list(source.shape)
    shape[at] = max(0, shape[at] - n)
    return like(source, source.dtype, shape)


@rule("average")
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    if returned or weights is not None:
        raise Unsure
    return _reduced("mean", a, axis, None, bool(keepdims))


@rule("take_along_axis")
def _take_along_axis(a: Any, indices: Any, axis: Any) -> Any:
    source, at = known(a), known(indices)
    if axis is None:
        return fresh(source.dtype, at.shape)
    if source.ndim != at.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    where = one_axis(axis, source.ndim)
    rest = [n for n in range(source.ndim) if n != where]
    shape = list(broadcast(*(_but(where, one.shape) for one in (source, at))))
    made = [0] * source.ndim
    for place, n in zip(rest, shape, strict=True):
        made[place] = n
    made[where] = at.shape[where]
    return like(source, source.dtype, made)


def _but(axis: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
