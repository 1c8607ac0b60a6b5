"""Checks of arguments that NumPy's and SciPy's C code trusts, where they stand in for CuPy.

A guard may put a copy in the place of an argument. It does so with indices: a result that lies in
the same memory would change them after the check.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_server.arrays.cupy_numbers import is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Given = dict[str, Any]
    Guard = Callable[[Given], None]

# Modules of which SciPy computes much in C. It multiplies the sizes that it is given by those of
# elements there, or by each other, and a product that wraps around becomes the size of a buffer.
_IN_C: Final = ("cupyx.scipy.ndimage.", "cupyx.scipy.signal.")
_MOST_SIZE: Final = 1 << 31
# Their parameters that SciPy writes results to. It reads some of those back: labels, as places.
_WRITTEN: Final = ("output", "distances", "indices")
# SciPy makes an integer of a coordinate. Beyond this, what it computes is not exact.
_MOST_COORDINATE: Final = float(1 << 40)
_REFLECTED: Final = ("reflect", "grid-mirror")
# Modes in which a filter needs nothing of the image beyond its border but one value.
_FILLED: Final = ("constant", "grid-constant", "nearest")


def guarded(public: str, names: Sequence[str], call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a call that checks its arguments first, if the library does not."""
    found = _GUARDS.get(public)
    guards = [] if found is None else [found]
    if public.startswith(_IN_C):
        guards += [_sizes(public), _own_places]
    if not guards:
        return call
    guard = _all(*guards)

    def run(*arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names, arguments, strict=True)) | keywords
        guard(given)
        return call(*[given[name] for name in names], **{name: given[name] for name in keywords})

    return run


def _sizes(public: str) -> Guard:
    """Returns the guard of a function's parameters that are numbers."""

    def guard(given: Given) -> None:
        for name, value in given.items():
            if is_number(public, name):
                good = all(abs(one) < _MOST_SIZE for one in _integers(value))
                _require(good, f"{name} must be below {_MOST_SIZE}")

    return guard


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _integers(one)


def _own_places(given: Given) -> None:
    """Each element of a result has a place of its own: what SciPy reads back is what it wrote."""
    for name in _WRITTEN:
        value: Any = given.get(name)
        if isinstance(value, np.ndarray):
            _require(_is_apart(value), f"elements of {name} lie in the same memory: give a copy")


def _is_apart(array: np.ndarray[Any, Any]) -> bool:
    """True if no two elements overlap. Steps of one dimension are not between those of another."""
    pairs = zip(array.strides, array.shape, strict=True)
    end = array.itemsize
    for step, count in sorted((abs(step), count) for step, count in pairs if count > 1):
        if step < end:
            return False
        end += step * (count - 1)
    return True


def _accumulate(given: Given) -> None:
    """NumPy writes to a result without dimensions as if it had one."""
    out: Any = given.get("out")
    a: Any = given.get("a", given.get("x"))
    if out is not None and np.ndim(out) == 0 and np.ndim(a) > 0:
        raise ValueError("provided out is the wrong size for the accumulation.")


def _morphology(given: Given) -> None:
    """SciPy reads beyond an image without dimensions, and beyond a structure that is smaller than
    the footprint: it returns what lies there.
    """
    image: Any = given.get("input")
    if np.ndim(image) == 0:
        raise ValueError("the input must have at least one dimension")
    structure: Any = given.get("structure")
    footprint: Any = given.get("footprint")
    if structure is not None and footprint is not None:
        shapes = np.shape(structure), np.shape(footprint)
        _require(
            shapes[0] == shapes[1],
            f"structure and footprint must have one shape, not {shapes[0]} and {shapes[1]}",
        )


def _ranks(given: Given) -> None:
    """SciPy's rank filter of one dimension reads beyond an image that is shorter than the filter
    reaches to one side, and takes what lies there for elements. SciPy itself avoids that only for
    filters that reach too far to the left.
    """
    image: Any = given.get("input")
    footprint: Any = given.get("footprint")
    if np.ndim(image) != 1:
        return
    count = np.size(image)
    window = _single(given.get("size")) if footprint is None else np.size(footprint)
    left = (window - 1) // 2 - _single(given.get("origin"))
    avoided = left > count != 1
    mode = given.get("mode", "reflect")
    reach = 0 if mode in _FILLED else max(left, window - 1 - left) + (mode == "mirror")
    _require(
        avoided or reach <= count,
        f"a filter of {window} elements reaches beyond the {count} of the image: pad the image",
    )


def _reflected(*windows: str) -> Guard:
    """Returns the guard of filters whose parameters `windows` give the extents of a window. Where
    it reaches twice over a reflected image, SciPy takes an element before the image.
    """

    def guard(given: Given) -> None:
        if given.get("mode", "reflect") not in _REFLECTED:
            return
        shape, axes = np.shape(given["input"]), given.get("axes")
        chosen = range(len(shape)) if axes is None else np.asarray(axes).reshape(-1)
        lengths = [shape[axis] for axis in chosen if -len(shape) <= axis < len(shape)]
        origins = _each(given.get("origin"), len(lengths))
        for extents in (_extents(name, given.get(name), len(lengths)) for name in windows):
            for length, extent, origin in zip(lengths, extents, origins, strict=False):
                near = length < 2 or extent // 2 + abs(origin) < 4 * length
                _require(near, f"a filter of {extent} is too long for an image of {length} there")

    return guard


def _extents(name: str, value: Any, count: int) -> list[int]:
    if value is None:
        return []
    return _each(value, count) if name == "size" else list(np.shape(value))


def _each(value: Any, count: int) -> list[int]:
    """Returns a number for each of `count` axes; none for what SciPy refuses itself."""
    found = np.asarray(0 if value is None else value).reshape(-1)
    several = [int(one) for one in found] if found.dtype.kind in "iu" else []
    return several * count if len(several) == 1 else several


def _all(*guards: Guard) -> Guard:
    def guard(given: Given) -> None:
        for one in guards:
            one(given)

    return guard


def _single(value: Any) -> int:
    """Returns a number, or the one of a sequence; 0 for what SciPy refuses itself."""
    found = _each(value, 1)
    return found[0] if len(found) == 1 else 0


def _pivots(given: Given) -> None:
    """LAPACK exchanges the rows that the pivots name."""
    factors, pivots = given["lu_and_piv"]
    size = np.shape(factors)[-1] if np.ndim(factors) else 0
    private = np.array(pivots)
    _require(private.dtype.kind in "iu", "the pivots of a factorization must be integers")
    _require(
        private.ndim > 0 and private.shape[-1] == size,
        f"a factorization of {size} columns needs {size} pivots: give both results of lu_factor",
    )
    inside = not private.size or (int(private.min()) >= 0 and int(private.max()) < size)
    _require(inside, f"the pivots of a factorization must be from 0 to below {size}")
    given["lu_and_piv"] = (factors, private)


def _start(given: Given) -> None:
    """ARPACK reads as many elements as the matrix has rows."""
    start, rows = given.get("v0"), np.shape(given["a"])[0]
    _require(
        start is None or np.size(start) == rows,
        f"v0 must have {rows} elements, one for each row of the matrix",
    )


def _coordinates(name: str) -> Guard:
    """Returns the guard of places in an image that a parameter gives."""

    def guard(given: Given) -> None:
        _require_near(name, _most(given[name]))

    return guard


def _affine(given: Given) -> None:
    """The matrix is multiplied by the places in the result."""
    shape, output = given.get("output_shape"), given.get("output")
    if shape is None:
        shape = np.shape(output if isinstance(output, np.ndarray) else given["input"])
    extent = float(np.sum(np.abs(np.array(shape, np.float64)))) + 1.0
    offset = given.get("offset")
    reach = _most(given["matrix"]) * extent + _most(0.0 if offset is None else offset)
    _require_near("matrix and offset", reach)


def _most(values: Any) -> float:
    """Returns the largest magnitude among numbers; NaN if one is none."""
    found = np.abs(np.asarray(values))
    return float(found.max()) if found.size else 0.0


def _require_near(name: str, reach: float) -> None:
    _require(
        reach < _MOST_COORDINATE,
        f"{name}: a place in an image must be finite and below {_MOST_COORDINATE:.0f}",
    )


def _filters(given: Given) -> None:
    """SciPy writes as many elements as the longer of filter and image has."""
    shape = np.shape(given["input"])
    _require(len(shape) == 2, "the image must have two dimensions")
    for name, size in (("hrow", shape[1]), ("hcol", shape[0])):
        _require(
            np.size(given[name]) <= size,
            f"{name} must have at most {size} elements, as the image has there: pad the image",
        )


def _windows(given: Given) -> None:
    """SciPy returns what lay in memory if a window is of a negative size."""
    sizes = list(_integers(given.get("kernel_size")))
    _require(all(one > 0 for one in sizes), "the sizes in kernel_size must be positive")
    # A single size is good for both dimensions.
    product = math.prod(sizes if len(sizes) > 1 else 2 * sizes)
    _require(
        product < _MOST_SIZE, f"the window of kernel_size must have below {_MOST_SIZE} elements"
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


_GUARDS: Final[dict[str, Guard]] = {
    "cupyx.scipy.linalg.lu_solve": _pivots,
    "cupyx.scipy.ndimage.affine_transform": _affine,
    "cupyx.scipy.ndimage.map_coordinates": _coordinates("coordinates"),
    "cupyx.scipy.ndimage.rotate": _coordinates("angle"),
    "cupyx.scipy.ndimage.shift": _coordinates("shift"),
    "cupyx.scipy.ndimage.zoom": _coordinates("zoom"),
    **{
        f"cupyx.scipy.ndimage.{name}": _all(_ranks, _reflected("footprint", "size"))
        for name in ("median_filter", "percentile_filter", "rank_filter")
    },
    **dict.fromkeys(
        ("cupyx.scipy.ndimage.convolve", "cupyx.scipy.ndimage.correlate"), _reflected("weights")
    ),
    **dict.fromkeys(
        ("cupyx.scipy.ndimage.maximum_filter", "cupyx.scipy.ndimage.minimum_filter"),
        _reflected("footprint"),
    ),
    "cupyx.scipy.signal.medfilt2d": _windows,
    "cupyx.scipy.signal.sepfir2d": _filters,
    "cupyx.scipy.sparse.linalg.eigsh": _start,
    **dict.fromkeys(
        ("cumsum", "cumprod", "cumproduct", "nancumsum", "nancumprod", "cumulative_sum",
         "cumulative_prod", "rgpu.ufunc_accumulate"), _accumulate,
    ),
    **{
        f"cupyx.scipy.ndimage.{name}": _all(_morphology, _reflected("footprint", "structure"))
        for name in (
            "grey_closing", "grey_opening", "grey_dilation", "grey_erosion", "white_tophat",
            "black_tophat", "morphological_gradient", "morphological_laplace",
        )
    },
}  # fmt: skip
