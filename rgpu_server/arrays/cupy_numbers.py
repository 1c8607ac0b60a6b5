"""Parameters of CuPy's functions that are Python's numbers: sizes, strides, axes, counts.

An array in such a place computes in its own dtype, whose arithmetic wraps around: what a bounds
check adds up would be another sum than the one that matters. So its elements become Python's
numbers, which have any size, before a check or a library sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays.cupy_rows import MOST_COUNT, check_value
from rgpu_server.arrays.library import NotOfferedError, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NAMES: Final = frozenset((
    "at", "axes", "axis", "axis1", "axis2", "axisa", "axisb", "axisc", "connectivity",
    "ddof", "decimals", "deg", "deriv", "destination", "dimensions", "dims", "down",
    "edge_order", "in1_len", "in2_len", "indices_or_sections", "irlen", "iterations", "k",
    "kernel_size", "kth", "length", "m", "M", "maxiter", "minlength", "mysize", "N", "n",
    "n_fft", "nbar", "nbits", "ncv", "ndim", "new_shape", "nfft", "noverlap", "nperseg",
    "num", "numtaps", "Nx", "offset", "order", "origin", "origin1", "origin2",
    "output_shape", "pad_width", "padlen", "part", "points", "polyorder", "power", "radius",
    "rank", "reps", "restart", "s", "shape", "size", "source", "strides", "type", "up",
    "window_length", "window_shape", "wlen",
))  # fmt: skip
# Where a parameter of such a name is an array: functions, or whole modules, which end with a dot.
_ARRAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "k": ("cupyx.scipy.signal.", "cupyx.scipy.special."),
    "m": ("cupyx.scipy.special.", "tril", "triu"),
    "M": ("cupyx.scipy.sparse.linalg.", "linalg.matrix_power", "linalg.matrix_rank"),
    "n": ("cupyx.scipy.special.", "random.", "sparse.power"),
    "num": ("cupyx.scipy.signal.findfreqs", "cupyx.scipy.signal.tf2ss"),
    "offset": ("cupyx.scipy.ndimage.affine_transform",),
    "s": ("cupyx.scipy.linalg.leslie",),
    "shape": ("random.",),
}
# Their positional arguments are the sizes of the result.
_SIZES: Final = ("random.rand", "random.randn")


def with_numbers(
    call: Callable[..., Any],
    public: str,
    names: Sequence[str],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Callable[..., Any]:
    """Returns a call that gets Python's numbers where a function expects some.

    Args:
        call: executes the function.
        public: its name on the list.
        names: the parameters of the positional arguments.
        arguments, keywords: the form of a template's arguments.
    """
    places = {
        at: name
        for at, (name, shown) in enumerate(zip(names, arguments, strict=True))
        if is_number(public, name) and _has_array(shown)
    }
    words = [
        name for name, shown in keywords.items() if is_number(public, name) and _has_array(shown)
    ]
    if not places and not words:
        return call

    def number(name: str, value: Any) -> Any:
        plain = _plain(public, name, value)
        check_value(public, name, plain)
        return plain

    def run(*given: Any, **named: Any) -> Any:
        positional = list(given)
        for at, name in places.items():
            positional[at] = number(name, positional[at])
        for name in words:
            named[name] = number(name, named[name])
        return call(*positional, **named)

    return run


def is_number(public: str, name: str) -> bool:
    """True if a parameter of a function is a number, or several."""
    if name not in _NAMES:
        return name == "*" and public in _SIZES
    return not any(
        public.startswith(one) if one.endswith(".") else public == one
        for one in _ARRAYS.get(name, ())
    )


def _has_array(shown: Any) -> bool:
    """True if a run gives an array, or a scalar of a dtype, to this part of a template."""
    if isinstance(shown, Slot):
        return shown.kind in (Tag.SLOT_OBJECT, Tag.SLOT_SCALAR)
    return isinstance(shown, tuple | list) and any(map(_has_array, shown))


def _plain(public: str, name: str, value: Any) -> Any:
    """Returns a value with Python's numbers in place of arrays and scalars.

    Raises:
        NotOfferedError: an array has too many elements.
    """
    if isinstance(value, tuple | list):
        return type(value)([_plain(public, name, one) for one in value])
    listed = getattr(value, "tolist", None)
    if listed is None:
        return value
    if value.size > MOST_COUNT:
        raise NotOfferedError(
            f"{public}(): {name} takes at most {MOST_COUNT} numbers, and an array of "
            f"{value.size} was given"
        )
    return _tuples(listed())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
