"""Rules of indexing: the shape and strides of `a[index]`."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_client.cupy._call import ASK, DYNAMIC, NOTHING, Unsure
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import Meta, fresh, meta
from rgpu_client.cupy._rules.common import broadcast, known, operand, rule

if TYPE_CHECKING:
    from collections.abc import Sequence


class Selection:
    """What an index selects.

    shape: of the result; None: only the node knows, because of a mask. strides: of a view, if they
    are known. basic: the result is a view.
    """

    def __init__(self, source: Meta, index: Sequence[Any]) -> None:
        self.shape: tuple[int, ...] | None = ()
        self.basic = True
        self._source = source
        self._sizes: list[int] = []
        self._steps: list[int] | None = [] if source.strides is not None else None
        self._axis = 0
        self._arrays: list[tuple[int, ...]] = []
        self._first_array = -1
        self._after_array = False
        self._split = False
        self._masked = False
        self._has_arrays = any(isinstance(part, Handle | bool | np.bool_) for part in index)
        self._walk(_expanded(source, index))

    def meta(self) -> Meta | None:
        """Returns the description of the result, or ASK."""
        if self.shape is None:
            return ASK
        if not self.basic:
            dtype = self._source.dtype
            return fresh(dtype, self.shape) if len(self.shape) < 2 else meta(dtype, self.shape)
        strides = None if self._steps is None else tuple(self._steps)
        return meta(self._source.dtype, self.shape, strides)

    def _walk(self, index: Sequence[Any]) -> None:
        for part in index:
            if part is Ellipsis:
                # It separates arrays even where it stands for no axis.
                self._between()
            elif part is None:
                self._add(1, 0)
                self._between()
            elif isinstance(part, slice):
                self._slice(part)
                self._between()
            elif isinstance(part, bool | np.bool_):
                # NumPy takes it for a mask of no dimension.
                self._array((1 if part else 0,), 0)
            elif isinstance(part, Handle):
                self._handle(known(part))
            else:
                self._whole(operator.index(part))
        self._end()

    def _add(self, size: int, step: int) -> None:
        self._sizes.append(size)
        if self._steps is not None:
            self._steps.append(step)

    def _between(self) -> None:
        self._after_array = self._first_array >= 0

    def _next(self) -> tuple[int, int]:
        at = self._axis
        self._axis += 1
        strides = self._source.strides
        return self._source.shape[at], 0 if strides is None else strides[at]

    def _slice(self, part: slice) -> None:
        size, step = self._next()
        start, stop, stride = part.indices(size)
        self._add(len(range(start, stop, stride)), step * stride)

    def _whole(self, at: int) -> None:
        size = self._source.shape[self._axis]
        if not -size <= at < size:
            raise IndexError(f"Index {at} is out of bounds for axis {self._axis} with size {size}")
        if self._has_arrays:
            # Beside arrays, a number is an array of no dimension.
            self._array((), 1)
        else:
            self._next()

    def _handle(self, part: Meta) -> None:
        if part.dtype.kind == "b":
            want = self._source.shape[self._axis : self._axis + part.ndim]
            for at, (n, there) in enumerate(zip(part.shape, want, strict=True)):
                if n != there:
                    raise IndexError(
                        f"boolean index did not match indexed array along axis {self._axis + at}; "
                        f"size of axis is {there} but size of corresponding boolean axis is {n}"
                    )
            self._masked = True
            self._array((0,), part.ndim)
        elif part.dtype.kind in "iu":
            self._array(part.shape, 1)
        else:
            raise IndexError(
                "arrays used as indices must be of integer or boolean type. "
                f"(actual: {part.dtype.type})"
            )

    def _array(self, shape: tuple[int, ...], axes: int) -> None:
        for _ in range(axes):
            self._next()
        self.basic = False
        if self._first_array >= 0 and self._after_array:
            self._split = True
        if self._first_array < 0:
            self._first_array = len(self._sizes)
        self._arrays.append(shape)
        self._after_array = False

    def _end(self) -> None:
        if self._masked:
            self.shape = None
        elif self._arrays:
            shape = _array_shape(self._arrays)
            at = 0 if self._split else self._first_array
            self.shape = (*self._sizes[:at], *shape, *self._sizes[at:])
        else:
            self.shape = tuple(self._sizes)


def _array_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        told = " ".join(str(shape).replace(" ", "") for shape in shapes)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {told} "
        ) from None


def _expanded(source: Meta, index: Sequence[Any]) -> list[Any]:
    """Returns an index with a part for each axis. Numbers beside arrays stay numbers."""
    used = sum(_axes(part) for part in index)
    if used > source.ndim:
        raise IndexError(
            f"too many indices for array: array is {source.ndim}-dimensional, "
            f"but {used} were indexed"
        )
    ellipses = [at for at, part in enumerate(index) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    rest = [slice(None)] * (source.ndim - used)
    if not ellipses:
        return [*index, *rest]
    at = ellipses[0]
    return [*index[: at + 1], *rest, *index[at + 1 :]]


def _axes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool | np.bool_):
        return 0
    if isinstance(part, Handle):
        found = known(part)
        return found.ndim if found.dtype.kind == "b" else 1
    return 1


def selected(a: Any, index: Any) -> Selection:
    """Returns what `a[index]` selects.

    Raises:
        IndexError: there is no such element.
    """
    return Selection(known(a), index if isinstance(index, tuple) else (index,))


@rule("rgpu.getitem", values=True)
def _getitem(a: Any, index: Any) -> Any:
    return selected(a, index).meta()


@rule("rgpu.setitem", values=True)
def _setitem(a: Any, index: Any, value: Any) -> Any:
    shape = selected(a, index).shape
    given, _ = operand(value)
    if shape is None:
        return NOTHING
    kept = given
    while len(kept) > len(shape) and kept[0] == 1:
        kept = kept[1:]
    if len(kept) > len(shape) or broadcast_or_none(kept, shape) != shape:
        raise ValueError(
            f"could not broadcast input array from shape {_text(given)} into shape {_text(shape)}"
        )
    return NOTHING


def broadcast_or_none(first: tuple[int, ...], second: tuple[int, ...]) -> Any:
    """Returns the common shape, or None."""
    try:
        return broadcast(first, second)
    except ValueError:
        return None


def _text(shape: tuple[int, ...]) -> str:
    return str(shape).replace(" ", "")


@rule("take")
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None) -> Any:
    source = known(a)
    if not isinstance(indices, Handle | int):
        raise Unsure
    shape = () if isinstance(indices, int) else known(indices).shape
    if axis is None:
        made: tuple[int, ...] = shape
    else:
        if not -source.ndim <= axis < source.ndim:
            raise np.exceptions.AxisError(axis, source.ndim)
        at = axis % source.ndim
        made = (*source.shape[:at], *shape, *source.shape[at + 1 :])
    return fresh(source.dtype, made)


@rule("put", "place", "putmask", "put_along_axis", "copyto", "fill_diagonal", "rgpu.fill",
      "rgpu.upload", "cupyx.scatter_add", "cupyx.scatter_max", "cupyx.scatter_min",
      "rgpu.ufunc_at", "random.shuffle", "random.RandomState.shuffle", values=True)  # fmt: skip
def _changes(*_: Any, **__: Any) -> Any:
    return NOTHING


@rule("nonzero", "flatnonzero", "argwhere", dynamic=True)
def _nonzero(a: Any) -> Any:
    return ASK


# Shapes or dtypes of results depend on elements: zeros that are trimmed, places that are named
# twice, imaginary parts that are all 0.
_SIGNAL = (
    "find_peaks argrelmax argrelmin peak_prominences peak_widths unique_roots residue residuez "
    "invres invresz deconvolve normalize bilinear lfilter_zi lfiltic minimum_phase tf2zpk tf2sos "
    "tf2ss ss2tf ss2zpk sos2zpk sos2tf zpk2tf zpk2sos zpk2ss lp2lp lp2hp lp2bp lp2bs"
)
DYNAMIC.update(
    [
        "rgpu.getitem",
        "unique",
        "unique_all",
        "unique_counts",
        "unique_inverse",
        "unique_values",
        "union1d",
        "intersect1d",
        "setdiff1d",
        "setxor1d",
        "compress",
        "extract",
        "bincount",
        "trim_zeros",
        "roots",
        "poly",
        "polyadd",
        "polymul",
        "polysub",
        "histogram",
        "histogramdd",
        "histogram2d",
        "repeat",
        "linalg.lstsq",
        "linalg.eig",
        "linalg.eigvals",
        "polyfit",
        "select",
        "delete",
        "real_if_close",
        "random.choice",
        "cupyx.scipy.ndimage.label",
        "cupyx.scipy.ndimage.rotate",
        "cupyx.scipy.ndimage.zoom",
        "cupyx.scipy.sparse.find",
        "cupyx.scipy.sparse.linalg.lobpcg",
        "cupyx.scipy.linalg.bandwidth",
    ],
    (f"cupyx.scipy.signal.{name}" for name in _SIGNAL.split()),
)
