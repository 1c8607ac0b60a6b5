"""Functions that make arrays of Python's and NumPy's objects, and those that NumPy answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client.cupy._array import ndarray
from rgpu_client.cupy._call import call
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import checked_dtype
from rgpu_client.cupy._session import session
from rgpu_client.cupy._transfer import upload


def array(
    obj: Any, dtype: Any = None, copy: Any = True, order: Any = "K", subok: Any = False,
    ndmin: int = 0, *, blocking: bool = False,
) -> Any:  # fmt: skip
    """Returns an array on the node with the elements of an object.

    Raises:
        ValueError: its dtype is none of CuPy's.
    """
    if isinstance(obj, ndarray):
        made = _again(obj, dtype, bool(copy), order)
    elif isinstance(obj, list | tuple) and _has_arrays(obj):
        made = _stacked(obj)
        made = made if dtype is None else made.astype(dtype, copy=False)
    else:
        made = _uploaded(obj, dtype)
    if order == "F" and made.ndim > 1:
        made = call("asfortranarray", (made,), {})
    elif order == "C" and not made.flags.c_contiguous:
        made = call("ascontiguousarray", (made,), {})
    if made.ndim < ndmin:
        made = made.reshape((1,) * (ndmin - made.ndim) + made.shape)
    return made


def _again(obj: Any, dtype: Any, copy: bool, order: Any) -> Any:
    wanted = obj.dtype if dtype is None else np.dtype(dtype)
    if wanted != obj.dtype:
        return obj.astype(wanted, order="C" if order == "C" else "K")
    if copy:
        return obj.copy("C" if order is None else order)
    return ascontiguousarray(obj) if order == "C" and obj.ndim else obj


def _uploaded(obj: Any, dtype: Any) -> Any:
    wanted = None if dtype is None else checked_dtype(dtype)
    if hasattr(obj, "__cuda_array_interface__") and not isinstance(obj, np.ndarray):
        raise TypeError("an array in the memory of a local GPU must be copied to the host first")
    return upload(np.asarray(obj, dtype=wanted), session())


def _has_arrays(obj: Any) -> bool:
    return any(
        isinstance(one, Handle) or (isinstance(one, list | tuple) and _has_arrays(one))
        for one in obj
    )


def _stacked(obj: Any) -> Any:
    parts = [_stacked(one) if isinstance(one, list | tuple) else array(one) for one in obj]
    return call("stack", (parts,), {})


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False
) -> Any:
    """Returns an array on the node; the same one if it is there already with this dtype."""
    return array(a, dtype, bool(copy), order)


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """Returns an array in C order; the same one if it is so already."""
    found = asarray(a, dtype)
    if found._meta.contiguous and found.ndim:
        return found
    return call("ascontiguousarray", (found,), {})


def asfortranarray(a: Any, dtype: Any = None) -> Any:
    """Returns an array in Fortran's order."""
    return call("asfortranarray", (asarray(a, dtype),), {})


def asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True
) -> Any:
    """Returns the elements as a NumPy array. Waits for them."""
    if isinstance(a, ndarray):
        return a.get(stream, order, out)
    if isinstance(a, Handle):
        # A sparse matrix becomes SciPy's.
        found: Any = a
        return found.get()
    if out is not None:
        out[...] = a
        return out
    return np.asarray(a, order=order)  # type: ignore[call-overload]


def frombuffer(*arguments: Any, **keywords: Any) -> Any:
    """Returns an array of the bytes of a buffer."""
    return array(np.frombuffer(*arguments, **keywords))


def fromiter(*arguments: Any, **keywords: Any) -> Any:
    """Returns an array of what an iterator gives."""
    return array(np.fromiter(*arguments, **keywords))


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **keywords: Any) -> Any:
    """Returns an array of what a function of indices returns for arrays of them."""
    places = call("indices", (shape, np.dtype(dtype)), {})
    return function(*places, **keywords)


def from_dlpack(array_like: Any) -> Any:
    """Returns a copy on the node of an array in the host's memory."""
    if isinstance(array_like, ndarray):
        return array_like.copy()
    return array(np.from_dlpack(array_like))


fromDlpack = from_dlpack


def load(file: Any, mmap_mode: Any = None, allow_pickle: bool = False) -> Any:
    """Reads arrays of a file of this machine, and copies them to the node."""
    loaded = np.load(file, mmap_mode=mmap_mode, allow_pickle=allow_pickle)
    if isinstance(loaded, np.ndarray):
        return array(loaded)
    return {name: array(loaded[name]) for name in loaded.files}


def save(file: Any, arr: Any, allow_pickle: bool = False) -> None:
    """Writes an array to a file of this machine."""
    np.save(file, asnumpy(arr), allow_pickle=allow_pickle)


def savez(file: Any, *arrays: Any, **named: Any) -> None:
    """Writes arrays to a file of this machine."""
    np.savez(file, *map(asnumpy, arrays), **{name: asnumpy(one) for name, one in named.items()})


def savez_compressed(file: Any, *arrays: Any, **named: Any) -> None:
    """Writes arrays to a compressed file of this machine."""
    given = {name: asnumpy(one) for name, one in named.items()}
    np.savez_compressed(file, *map(asnumpy, arrays), **given)


def savetxt(name: Any, a: Any, *arguments: Any, **keywords: Any) -> None:
    """Writes an array as text to a file of this machine."""
    np.savetxt(name, asnumpy(a), *arguments, **keywords)


def loadtxt(*arguments: Any, **keywords: Any) -> Any:
    """Reads text of a file of this machine."""
    return array(np.loadtxt(*arguments, **keywords))


def genfromtxt(*arguments: Any, **keywords: Any) -> Any:
    """Reads text of a file of this machine."""
    return array(np.genfromtxt(*arguments, **keywords))
