"""Random programs of array operations, executed by NumPy and by CuPy's client at once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import strategies as st

DTYPES = (
    "bool",
    "int8",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
UNARY = (
    "negative", "absolute", "exp", "sqrt", "sin", "floor", "square", "sign", "logical_not", "isfinite",
    "invert", "conj", "log1p", "reciprocal", "tanh", "rint", "signbit", "positive", "cbrt", "isnan",
)  # fmt: skip
BINARY = (
    "add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "maximum", "minimum",
    "less", "greater_equal", "equal", "not_equal", "logical_and", "bitwise_or", "bitwise_xor", "hypot",
    "arctan2", "fmax", "copysign", "left_shift", "logaddexp", "heaviside",
)  # fmt: skip
REDUCTIONS = (
    "sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "ptp", "cumsum",
    "cumprod", "count_nonzero", "median", "nansum",
)  # fmt: skip
SCALARS = st.one_of(
    st.integers(-3, 100), st.floats(-4, 4, width=16), st.booleans(), st.sampled_from([1j, 2.5 - 1j]),
    st.sampled_from([np.float32(1.5), np.int8(3), np.uint8(200), np.float64(-2), np.bool_(True), np.complex64(1j)]),
)  # fmt: skip


class Pair:
    """An array of NumPy and the array on the node that must equal it."""

    def __init__(self, here: Any, there: Any) -> None:
        self.here, self.there = np.asarray(here), there

    def check(self, cp: Any) -> None:
        """Compares dtype and shape, which the client says without reading, and then the elements."""
        assert isinstance(self.there, cp.ndarray)
        assert self.there.dtype == self.here.dtype
        assert self.there.shape == self.here.shape
        check_strides(self.there)
        self.compare()

    def compare(self) -> None:
        """Reads the elements and compares them."""
        got = self.there.get()
        loose = {4: 1e-4, 8: 1e-4 if got.dtype.kind == "c" else 1e-9, 2: 1e-2}.get(
            got.dtype.itemsize, 1e-9
        )
        np.testing.assert_allclose(got, self.here, rtol=loose, atol=loose)


def check_strides(array: Any) -> None:
    """Strides that the client believes to know are those on the node. Kernels rely on it."""
    known = array._meta
    if known.strides is None or not known.size:
        return
    described = array._session.issuer.describe([array._id])[0]
    steps = zip(known.shape, known.strides, described[3], strict=True)
    assert all(n == 1 or mine == nodes for n, mine, nodes in steps), (known.strides, described)


def arrays(data: Any, shape: Any = None) -> Any:
    """Draws a NumPy array of up to three dimensions."""
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    drawn = data.draw(st.lists(st.integers(0, 4), max_size=3)) if shape is None else shape
    size = int(np.prod(drawn))
    seed = data.draw(st.integers(0, 1 << 16))
    values = np.random.default_rng(seed).integers(0 if dtype.kind in ("b", "u") else -4, 5, size)
    return values.reshape(drawn).astype(dtype)


def indices(data: Any, shape: tuple[int, ...], masks: bool = True) -> Any:
    """Draws an index of any kind, for NumPy; arrays in it are NumPy's."""
    parts: list[Any] = []
    axis = 0
    while axis < len(shape) and data.draw(st.booleans()):
        n = shape[axis]
        kinds = ["slice", "none"] + (["int", "ints"] if n else []) + (["mask"] if masks else [])
        kind = data.draw(st.sampled_from(kinds))
        if kind == "none":
            parts.append(None)
            continue
        if kind == "int":
            parts.append(data.draw(st.integers(-n, n - 1)))
        elif kind == "ints":
            at = data.draw(st.lists(st.integers(-n, n - 1), min_size=2, max_size=2))
            parts.append(np.array(at))
        elif kind == "mask":
            masks = False
            parts.append(np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool))
        else:
            bounds = st.one_of(st.none(), st.integers(-5, 5))
            parts.append(
                slice(
                    data.draw(bounds),
                    data.draw(bounds),
                    data.draw(st.sampled_from([None, 1, 2, -1, -2])),
                )
            )
        axis += 1
    if data.draw(st.booleans()):
        parts.insert(data.draw(st.integers(0, len(parts))), Ellipsis)
        # An ellipsis may be followed by parts for the last axes, of another length.
        parts = _fitting(parts, shape)
    return tuple(parts)


def _fitting(parts: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Leaves out numbers and arrays behind an ellipsis, where they select other axes."""
    at = next(n for n, part in enumerate(parts) if part is Ellipsis)
    return [
        *parts[: at + 1],
        *(part for part in parts[at + 1 :] if part is None or isinstance(part, slice)),
    ]


def outcome(call: Any) -> Any:
    """Returns what a call returns, or the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            try:
                return call()
            except (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError) as error:
                return error


def both(here: Any, there: Any) -> Pair | None:
    """Runs a call with NumPy and one with the client; returns what came out, None for an error.

    Both must fail, or none: the client's error may come when its result is read.
    """
    expected = outcome(here)
    if isinstance(expected, Exception):

        def read() -> Any:
            made = there()
            return made.get() if hasattr(made, "get") else made

        got = outcome(read)
        assert isinstance(got, Exception), f"NumPy raises {expected!r}, the client returns {got!r}"
        same = (
            (type(expected), IndexError) if isinstance(expected, ValueError) else (type(expected),)
        )
        assert isinstance(got, same) or isinstance(expected, type(got)), (
            f"{got!r} instead of {expected!r}"
        )
        return None
    return Pair(expected, there())
