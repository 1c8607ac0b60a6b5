"""Rules of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client.cupy._call import Unsure
from rgpu_client.cupy._meta import fresh, like, meta
from rgpu_client.cupy._rules.common import axes_of, known, one_axis, rule

_COMPLEX = {"float16": "complex64", "float32": "complex64", "complex64": "complex64"}


def _complex(kind: Any) -> Any:
    return np.dtype(_COMPLEX.get(str(kind), "complex128"))


def _real(kind: Any) -> Any:
    return np.dtype("float32") if _complex(kind).itemsize == 8 else np.dtype("float64")


def _length(n: Any, otherwise: int) -> int:
    length = otherwise if n is None else int(n)
    if length < 1:
        raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    return length


@rule("fft.fft", "fft.ifft")
def _fft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
    source = known(a)
    return _changed(source, axis, _length(n, source.shape[one_axis(axis, source.ndim)]), _complex)


@rule("fft.rfft", "fft.ihfft")
def _rfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
    source = known(a)
    length = _length(n, source.shape[one_axis(axis, source.ndim)])
    return _changed(source, axis, length // 2 + 1, _complex)


@rule("fft.irfft", "fft.hfft")
def _irfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
    source = known(a)
    length = _length(n, 2 * (source.shape[one_axis(axis, source.ndim)] - 1))
    return _changed(source, axis, length, _real)


def _changed(source: Any, axis: Any, length: int, kind: Any) -> Any:
    at = one_axis(axis, source.ndim)
    shape = list(source.shape)
    shape[at] = length
    dtype = kind(source.dtype)
    return fresh(dtype, shape) if len(shape) < 2 else meta(dtype, tuple(shape), None)


def _axes(source: Any, s: Any, axes: Any) -> tuple[int, ...]:
    if axes is not None:
        return axes_of(tuple(axes), source.ndim)
    count = source.ndim if s is None else len(s)
    return tuple(range(source.ndim - count, source.ndim))


@rule("fft.fftn", "fft.ifftn")
def _fftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
    source = known(a)
    shape = list(source.shape)
    over = _axes(source, s, axes)
    if s is not None and len(s) != len(over):
        raise ValueError("Shape and axes have different lengths.")
    for at, n in zip(over, s or [None] * len(over), strict=True):
        shape[at] = _length(n, shape[at])
    return meta(_complex(source.dtype), tuple(shape), None)


@rule("fft.fft2", "fft.ifft2")
def _fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Any:
    return _fftn(a, s, axes)


@rule("fft.rfftn")
def _rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
    source = known(a)
    over = _axes(source, s, axes)
    if not over:
        raise Unsure
    made = _fftn(a, s, axes)
    shape = list(made.shape)
    shape[over[-1]] = shape[over[-1]] // 2 + 1
    return meta(made.dtype, tuple(shape), None)


@rule("fft.rfft2")
def _rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Any:
    return _rfftn(a, s, axes)


@rule("fft.fftfreq")
def _fftfreq(n: int, d: Any = 1.0) -> Any:
    return fresh(float, (n,))


@rule("fft.rfftfreq")
def _rfftfreq(n: int, d: Any = 1.0) -> Any:
    return fresh(float, (n // 2 + 1,))


@rule("fft.fftshift", "fft.ifftshift")
def _fftshift(x: Any, axes: Any = None) -> Any:
    source = known(x)
    axes_of(axes, source.ndim)
    return like(source, source.dtype, source.shape)
