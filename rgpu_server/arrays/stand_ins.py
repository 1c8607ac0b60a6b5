"""NumPy and SciPy in CuPy's place: the functions that they lack or spell differently.

`find` returns what executes a function of CuPy's on a node without a GPU.
"""

from __future__ import annotations

import functools
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_server.arrays.library import NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rgpu_server.arrays.cupy_rows import Row

    Call = Callable[..., Any]

# CuPy's parameters that its own defaults make harmless to drop.
_DROPPED: Final = frozenset({"overwrite_a", "overwrite_b", "overwrite_x", "check_finite"})


def find(row: Row) -> Call:
    """Returns NumPy's or SciPy's function for a row.

    Raises:
        NotOfferedError: they have none.
    """
    own = TABLE.get(row.public)
    if own is not None:
        return own
    module = row.module.replace("cupyx.scipy", "scipy").replace("cupy", "numpy", 1)
    try:
        found = getattr(import_module(module), row.name)
    except (ImportError, AttributeError):
        raise NotOfferedError(
            f"this node has no GPU, and NumPy and SciPy, which stand in, have no {row.public}"
        ) from None
    return _ordered(found) if isinstance(found, np.ufunc) and not found.signature else found


def _ordered(ufunc: np.ufunc) -> Call:
    """Returns a ufunc whose results lie in memory as CuPy's do."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        return ufunc(*arguments, order="C", **keywords)

    return call


def bound(call: Call, row: Row, names: Sequence[str], keywords: Sequence[str]) -> Call:
    """Returns `call` for arguments that are given by CuPy's parameters: NumPy may have other names
    or another order.

    Raises:
        NotOfferedError: NumPy's function has no such parameter.
    """
    theirs = _parameters(call)
    if theirs is None or row.ufunc or row.rest:
        return call
    renamed: dict[str, str] = {}
    for at, name in enumerate(row.parameters):
        if name in theirs:
            renamed[name] = name
        elif at < len(theirs) and theirs[at] not in row.parameters:
            renamed[name] = theirs[at]
    renamed.update({name: name for name in row.keywords if name in theirs})
    wanted = [*names, *keywords]
    missing = [name for name in wanted if name not in renamed and name not in _DROPPED]
    if missing == ["dtype"]:
        return _cast(bound(call, row, [n for n in names if n != "dtype"], ()), names, keywords)
    if missing:
        raise NotOfferedError(
            f"this node has no GPU, and NumPy's {row.public}, which stands in, has no {missing[0]}"
        )
    in_place = all(
        at < len(theirs) and theirs[at] == renamed.get(name) for at, name in enumerate(names)
    )
    if in_place and all(renamed.get(name) == name for name in keywords):
        return call
    return _renaming(call, renamed, tuple(names))


def _renaming(call: Call, renamed: Mapping[str, str], names: tuple[str, ...]) -> Call:
    def renaming(*arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names, arguments, strict=True)) | keywords
        return call(**{renamed[name]: value for name, value in given.items() if name in renamed})

    # A parameter without a keyword is given by its position.
    parameters = inspect.signature(call).parameters
    places = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY]
    if not places:
        return renaming

    def placed(*arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names, arguments, strict=True)) | keywords
        theirs = {renamed[name]: value for name, value in given.items() if name in renamed}
        return call(*[theirs.pop(place) for place in places if place in theirs], **theirs)

    return placed


def _cast(call: Call, names: Sequence[str], keywords: Sequence[str]) -> Call:
    """Returns a call whose `dtype` is that of the result, where NumPy has no such parameter."""

    def casting(*arguments: Any, **given: Any) -> Any:
        taken = dict(zip(names, arguments, strict=True)) | given
        dtype = taken.pop("dtype")
        made = call(*[taken.pop(name) for name in names if name in taken], **taken)
        return made if dtype is None else np.asarray(made).astype(dtype)

    return casting


@functools.cache
def _parameters(call: Call) -> tuple[str, ...] | None:
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return None
    return tuple(p.name for p in parameters)


def _scatter(ufunc: np.ufunc) -> Call:
    def scatter(a: Any, slices: Any, value: Any) -> None:
        ufunc.at(a, slices, value)

    return scatter


def _unary(formula: Callable[[Any], Any]) -> Call:
    """Returns what NumPy computes with a function, with the parameters of a ufunc."""

    def call(x1: Any, *, out: Any = None, where: Any = True, dtype: Any = None, **_: Any) -> Any:
        made = formula(x1 if dtype is None else np.asarray(x1).astype(dtype))
        if out is None:
            return made
        np.copyto(out, made, where=where, casting="same_kind")
        return out

    return call


def _put(a: Any, ind: Any, v: Any, mode: str = "wrap") -> None:
    put: Any = np.put
    put(a, _wrapped(ind, np.size(a)) if mode == "wrap" else ind, v, mode=mode)


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None) -> Any:
    length = np.size(a) if axis is None else np.shape(a)[axis]
    return np.take(a, _wrapped(indices, length), axis, out, mode="wrap")


def _wrapped(indices: Any, length: int) -> Any:
    """Returns indices that NumPy need not wrap: it takes a step for each length on the way."""
    whole = np.asarray(indices)
    return whole % length if length and whole.dtype.kind in "iu" else indices


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return np.ptp(a, axis, out, keepdims)


def _arg(name: str) -> Call:
    numpy = getattr(np, name)

    def call(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        made = numpy(a, axis, out, keepdims=keepdims)
        return made if dtype is None else np.asarray(made).astype(dtype)

    return call


def _concatenate(
    tup: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    return np.concatenate(tup, axis=axis, out=out, dtype=dtype, casting=casting)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
    return np.clip(a, a_min, a_max, out=out)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return np.nonzero(condition)
    return np.where(condition, x, y)


def _qmf(hk: Any) -> Any:
    signs = np.where(np.arange(len(hk)) % 2, -1, 1)
    return hk[::-1] * signs


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return np.isin(np.ravel(ar1), ar2, assume_unique, invert)


def _msort(a: Any) -> Any:
    return np.sort(a, axis=0)


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return np.round(a, decimals, out)


def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    return np.trapezoid(y, x, dx, axis)


def _random_state_of(module: str, name: str) -> Call:
    return functools.partial(getattr(import_module(module), name))


def _reduction(name: str) -> Call:
    return getattr(np, name)  # type: ignore[no-any-return]


TABLE: Final[dict[str, Call]] = {
    "alltrue": _reduction("all"),
    "sometrue": _reduction("any"),
    "product": _reduction("prod"),
    "cumproduct": _reduction("cumprod"),
    "nanargmax": _arg("nanargmax"),
    "nanargmin": _arg("nanargmin"),
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "row_stack": _reduction("vstack"),
    "concatenate": _concatenate,
    "concat": _concatenate,
    "round": _round,
    "round_": _round,
    "around": _round,
    "in1d": _in1d,
    "msort": _msort,
    "trapz": _trapezoid,
    "ptp": _ptp,
    "put": _put,
    "take": _take,
    "clip": _clip,
    "where": _where,
    "fix": _unary(np.trunc),
    "i0": _unary(np.i0),
    "sinc": _unary(np.sinc),
    "bitwise_invert": _ordered(np.invert),
    "cupyx.rsqrt": _unary(lambda x: 1 / np.sqrt(x)),
    "cupyx.scatter_add": _scatter(np.add),
    "cupyx.scatter_max": _scatter(np.maximum),
    "cupyx.scatter_min": _scatter(np.minimum),
    "cupyx.scipy.linalg.kron": np.kron,
    "cupyx.scipy.signal.qmf": _qmf,
}
