"""Functions that need no node, and those that are composed of others."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rgpu_client.cupy import cuda
from rgpu_client.cupy._array import ndarray
from rgpu_client.cupy._call import call
from rgpu_client.cupy._creation import array, asarray
from rgpu_client.cupy._handle import Handle
from rgpu_common.units import format_bytes


def get_array_module(*args: Any) -> Any:
    """Returns this package if an argument is an array on the node, else NumPy."""
    if any(isinstance(one, Handle) for one in args):
        from rgpu_client.cupy._interop import NAMESPACES

        return NAMESPACES["numpy"]
    return np


def is_available() -> bool:
    """Returns whether there is a session with a GPU node."""
    return cuda.is_available()


def show_config() -> None:
    """Prints what is where. Waits."""
    free, total = cuda.Device().mem_info
    name, major, minor, _ = cuda.device.properties()
    print(f"NumPy Version               : {np.__version__}")
    print(f"Device 0 Name (GPU node)    : {name}")
    print(f"Device 0 Compute Capability : {major}{minor}")
    print(f"Memory of the lease         : {format_bytes(total)}, free {format_bytes(free)}")


def ndim(a: Any) -> int:
    """Returns the number of axes."""
    return int(a.ndim) if isinstance(a, ndarray) else np.ndim(a)


def shape(a: Any) -> tuple[int, ...]:
    """Returns the lengths of the axes."""
    return a.shape if isinstance(a, ndarray) else np.shape(a)


def size(a: Any, axis: Any = None) -> int:
    """Returns the number of elements, in all or along an axis."""
    if not isinstance(a, ndarray):
        return np.size(a, axis)
    return a.size if axis is None else a.shape[axis]


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Returns the common dtype, as NumPy promotes."""
    return np.result_type(
        *(one.dtype if isinstance(one, ndarray) else one for one in arrays_and_dtypes)
    )


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Returns whether a cast is allowed."""
    return np.can_cast(from_.dtype if isinstance(from_, ndarray) else from_, to, casting)


def common_type(*arrays: Any) -> Any:
    """Returns the common floating-point type."""
    return np.common_type(*(np.empty(0, one.dtype) for one in arrays))


def min_scalar_type(a: Any) -> np.dtype[Any]:
    """Returns the smallest dtype that holds a value."""
    return a.dtype if isinstance(a, ndarray) else np.min_scalar_type(a)


def iscomplexobj(x: Any) -> bool:
    """Returns whether the elements are complex numbers."""
    return x.dtype.kind == "c" if isinstance(x, ndarray) else np.iscomplexobj(x)


def isrealobj(x: Any) -> bool:
    """Returns whether the elements are no complex numbers."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Returns whether an object is a scalar."""
    return np.isscalar(element)


def isfortran(a: Any) -> bool:
    """Returns whether the elements lie in Fortran's order only."""
    return bool(a.flags.fnc)


def copy(a: Any, order: str = "K") -> Any:
    """Returns a copy."""
    return array(a, copy=True, order=order)


def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    """Returns the elements with another dtype."""
    return x.astype(dtype, copy=copy)


def reshape(a: Any, newshape: Any, order: str = "C", *, copy: Any = None) -> Any:
    """Returns the elements in another shape."""
    return asarray(a).reshape(newshape, order=order)


def ravel(a: Any, order: str = "C") -> Any:
    """Returns the elements in one dimension."""
    return asarray(a).ravel(order)


def transpose(a: Any, axes: Any = None) -> Any:
    """Returns a view with the axes in another order."""
    return a.transpose() if axes is None else a.transpose(*axes)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Returns a view with two axes exchanged."""
    return a.swapaxes(axis1, axis2)


def squeeze(a: Any, axis: Any = None) -> Any:
    """Returns a view without axes of length 1."""
    return a.squeeze(axis)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Returns a view of the diagonal."""
    return a.diagonal(offset, axis1, axis2)


def real(val: Any) -> Any:
    """Returns the real parts."""
    return val.real


def imag(val: Any) -> Any:
    """Returns the imaginary parts."""
    return val.imag


def concatenate(
    tup: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Joins arrays along an axis."""
    words: dict[str, Any] = {} if dtype is None else {"dtype": np.dtype(dtype)}
    if casting != "same_kind":
        words["casting"] = casting
    if out is not None:
        words["out"] = out
    return call("concatenate", (tup if isinstance(tup, Handle) else list(tup), axis), words)


def broadcast_arrays(*args: Any) -> list[Any]:
    """Returns views of arrays with their common shape."""
    wanted = np.broadcast_shapes(*(one.shape for one in args))
    return [one if one.shape == wanted else call("broadcast_to", (one, wanted), {}) for one in args]


def atleast_1d(*arys: Any) -> Any:
    """Returns arrays with at least 1 axis."""
    made = [one if one.ndim else one.reshape(1) for one in map(asarray, arys)]
    return made[0] if len(made) == 1 else made


def atleast_2d(*arys: Any) -> Any:
    """Returns arrays with at least 2 axes."""
    made = [
        one if one.ndim > 1 else one.reshape((1, *(one.shape or (1,))))
        for one in map(asarray, arys)
    ]
    return made[0] if len(made) == 1 else made


def atleast_3d(*arys: Any) -> Any:
    """Returns arrays with at least 3 axes."""
    made = [one if one.ndim > 2 else atleast_2d(one)[..., None] for one in map(asarray, arys)]
    made = [
        old.reshape(1, old.size, 1) if old.ndim == 1 else new
        for old, new in zip(map(asarray, arys), made, strict=True)
    ]
    return made[0] if len(made) == 1 else made


def ix_(*args: Any) -> tuple[Any, ...]:
    """Returns index arrays that select the crossings of sequences."""
    made = []
    for at, one in enumerate(map(asarray, args)):
        places = one.nonzero()[0] if one.dtype.kind == "b" else one
        made.append(places.reshape((1,) * at + (places.size,) + (1,) * (len(args) - at - 1)))
    return tuple(made)


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Returns whether two arrays are views of the same one."""
    first = a if a.base is None else a.base
    return first is (b if b.base is None else b.base)


shares_memory = may_share_memory


def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Applies a function to each one-dimensional slice. Many operations: prefer one of arrays."""
    moved = call("moveaxis", (arr, axis, -1), {})
    outer = moved.shape[:-1]
    rows = [asarray(func1d(moved[at], *args, **kwargs)) for at in np.ndindex(*outer)]
    made = call("stack", (rows,), {})
    made = made.reshape(outer + made.shape[1:])
    extra = made.ndim - len(outer)
    order = list(range(len(outer)))
    order[axis % arr.ndim : axis % arr.ndim] = range(len(outer), len(outer) + extra)
    return made.transpose(*order)


def piecewise(x: Any, condlist: Any, funclist: Any) -> Any:
    """Returns values of functions, each where its condition holds."""
    made = call("zeros_like", (x,), {})
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    if len(funclist) == len(conditions) + 1:
        rest = conditions[0]
        for one in conditions[1:]:
            rest = rest | one
        conditions.append(~rest)
    for condition, one in zip(conditions, funclist, strict=True):
        value = one(x) if callable(one) else one
        made = call("where", (condition, value, made), {})
    return made


def memoize(for_each_device: bool = False) -> Any:
    """Returns a decorator that remembers results by arguments."""
    return functools.cache


def clear_memo() -> None:
    """Has nothing to forget."""


def array_repr(arr: Any, *arguments: Any, **keywords: Any) -> str:
    """Returns the text of an array, as NumPy's."""
    return np.array_repr(asarray(arr).get(), *arguments, **keywords)


def array_str(arr: Any, *arguments: Any, **keywords: Any) -> str:
    """Returns the text of the elements, as NumPy's."""
    return np.array_str(asarray(arr).get(), *arguments, **keywords)


def array2string(a: Any, *arguments: Any, **keywords: Any) -> str:
    """Returns the text of the elements, as NumPy's."""
    return np.array2string(asarray(a).get(), *arguments, **keywords)


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Returns the places of the diagonal."""
    made = call("arange", (arr.shape[0],), {})
    return tuple([made] * arr.ndim)
