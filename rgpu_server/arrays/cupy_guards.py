"""How many bytes a call makes at least, where the client chooses the number of elements.

The allocator of a session charges what is really allocated. These guards refuse a request that
could never fit before anything is allocated, so that no time is spent on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Guard = Callable[[Mapping[str, Any]], float]

# Functions that make numbers of 8 bytes unless they are told another dtype.
_DOUBLES: Final = (
    "zeros", "ones", "empty", "eye", "identity", "tri", "arange", "linspace", "logspace", "indices",
    "random.",
)  # fmt: skip
# Parameters that are a shape, or one length of it, whatever the function.
_SHAPES: Final = ("shape", "size", "new_shape", "newshape", "dimensions", "output_shape")


def least_bytes(public: str, given: Mapping[str, Any]) -> float:
    """Returns how many bytes the result of a call has at least; 0 if the client does not choose
    it. `given` are the arguments by the names of their parameters.
    """
    dtype = given.get("dtype")
    if isinstance(dtype, np.dtype):
        size = dtype.itemsize
    else:
        doubles = public.startswith(_DOUBLES) and not public.endswith("_like")
        size = 8 if dtype is None and doubles else 1
    return _elements(public, given) * size


def _elements(public: str, given: Mapping[str, Any]) -> float:
    """Returns about how many elements the result of a call has at least; 0 if the client does not
    choose it. `given` are the arguments by the names of their parameters.
    """
    guard = _GUARDS.get(public)
    try:
        if guard is not None:
            return guard(given)
        if public.startswith(_SIZED):
            return max((_product(given.get(name)) for name in _SHAPES), default=0.0)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        # The function itself says what is wrong with its arguments.
        return 0.0
    return 0.0


def has_guard(public: str) -> bool:
    """Returns whether `least_bytes` knows anything of a function."""
    return public in _GUARDS or public.startswith(_SIZED)


def _product(shape: Any) -> float:
    if isinstance(shape, bool) or shape is None:
        return 0.0
    if isinstance(shape, int | float):
        return float(max(0, shape))
    if isinstance(shape, tuple | list):
        return math.prod(float(max(0, n)) for n in shape) if shape else 0.0
    return 0.0


def _number(given: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    value = given.get(name)
    return default if value is None else float(value)


def _square(rows: str, columns: str) -> Guard:
    def guard(given: Mapping[str, Any]) -> float:
        height = _number(given, rows)
        return height * _number(given, columns, height)

    return guard


def _arange(given: Mapping[str, Any]) -> float:
    start, stop = _number(given, "start"), given.get("stop")
    begin, end = (0.0, start) if stop is None else (start, float(stop))
    return max(0.0, (end - begin) / (_number(given, "step", 1.0) or 1.0))


def _repeat(given: Mapping[str, Any]) -> float:
    """NumPy adds the counts up without looking whether the sum still fits."""
    counts, axis, a = np.asarray(given["repeats"]), given.get("axis"), given["a"]
    length = a.size if axis is None else a.shape[axis]
    most = float(np.sum(counts, dtype=np.float64)) * (length if counts.size == 1 else 1)
    return most * (a.size / length if length else 0.0)


def _tile(given: Mapping[str, Any]) -> float:
    """NumPy repeats one axis after the other, so a 0 behind a large number does not help."""
    reps = given["reps"]
    counts = reps if isinstance(reps, tuple | list) else (reps,)
    return float(given["A"].size) * math.prod(float(max(1, n)) for n in counts)


def _diagonal(given: Mapping[str, Any]) -> float:
    value = given["v"]
    if value.ndim != 1:
        return 0.0
    return float((value.size + abs(_number(given, "k"))) ** 2)


def _transform(given: Mapping[str, Any]) -> float:
    value, length = given.get("a", given.get("x")), _number(given, "n")
    if value is None or not value.ndim:
        return 0.0
    return float(length * value.size / max(1, value.shape[-1]))


def _transforms(given: Mapping[str, Any]) -> float:
    return _product(given.get("s"))


def _pad(given: Mapping[str, Any]) -> float:
    width, shape = given["pad_width"], given["array"].shape
    most = max(_flat(width), default=0.0)
    return float(math.prod(n + most for n in shape))


def _flat(value: Any) -> list[float]:
    if isinstance(value, int | float):
        return [float(value)]
    return [number for one in value for number in _flat(one)]


def _product_of_sizes(first: str, second: str) -> Guard:
    return lambda given: float(given[first].size) * float(given[second].size)


def _meshgrid(given: Mapping[str, Any]) -> float:
    arrays = given.get("*", ())
    return 0.0 if given.get("sparse") else len(arrays) * math.prod(float(a.size) for a in arrays)


def _rand(given: Mapping[str, Any]) -> float:
    return _product(tuple(given.get("*", ())))


_GUARDS: Final[dict[str, Guard]] = {
    "arange": _arange,
    **dict.fromkeys(("linspace", "logspace"), lambda given: _number(given, "num", 50.0)),
    "eye": _square("N", "M"),
    "identity": _square("n", "n"),
    "tri": _square("N", "M"),
    **dict.fromkeys(("tril_indices", "triu_indices"), _square("n", "m")),
    "repeat": _repeat,
    "tile": _tile,
    **dict.fromkeys(("diag", "diagflat"), _diagonal),
    "pad": _pad,
    "indices": lambda given: len(given["dimensions"]) * _product(given["dimensions"]),
    "diag_indices": lambda given: _number(given, "n") * _number(given, "ndim", 2.0),
    "vander": lambda given: float(given["x"].size) * _number(given, "N"),
    "bincount": lambda given: _number(given, "minlength"),
    **dict.fromkeys(("bartlett", "blackman", "hamming", "hanning", "kaiser"),
                    lambda given: _number(given, "M")),
    "outer": _product_of_sizes("a", "b"),
    "kron": _product_of_sizes("a", "b"),
    "rgpu.ufunc_outer": _product_of_sizes("a", "b"),
    "meshgrid": _meshgrid,
    "random.rand": _rand,
    "random.randn": _rand,
    **{f"fft.{name}": _transform for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{name}": _transforms
       for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")},
    **{f"fft.{name}": lambda given: _number(given, "n") for name in ("fftfreq", "rfftfreq")},
    **{f"cupyx.scipy.linalg.{name}": _square("n", "n") for name in ("dft", "hadamard", "hilbert")},
    "cupyx.scipy.linalg.helmert": _square("n", "n"),
    "cupyx.scipy.signal.resample": lambda given: _number(given, "num"),
}  # fmt: skip
_SIZED: Final = (
    "zeros", "ones", "empty", "full", "resize", "broadcast_to", "random.", "rgpu.reshape",
    "rgpu.as_strided", "cupyx.scipy.signal.unit_impulse", "cupyx.scipy.ndimage.affine_transform",
)  # fmt: skip
