"""What the rules have in common."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_client.cupy._call import CONSTANTS, DYNAMIC, LISTS, RULES, VALUES, Unsure
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import Meta, checked_dtype

if TYPE_CHECKING:
    from collections.abc import Callable


def rule(
    *names: str, values: bool = False, constants: bool = False, dynamic: bool = False,
    lists: bool = False,
) -> Callable[[Any], Any]:  # fmt: skip
    """Adds a rule for functions.

    values: their whole numbers are values. constants: a shape may depend on their floating-point
    numbers. dynamic: an answer of the node is good for one call. lists: results come as a list.
    """

    def add(function: Any) -> Any:
        for name in names:
            RULES[name] = function
            for wanted, kept in (
                (values, VALUES), (constants, CONSTANTS), (dynamic, DYNAMIC), (lists, LISTS),
            ):  # fmt: skip
                if wanted:
                    kept.add(name)
        return function

    return add


def known(value: Any) -> Meta:
    """Returns what is known of an array. Raises Unsure if it is none."""
    if isinstance(value, Handle) and type(value._meta) is Meta:
        return value._meta
    raise Unsure


def operand(value: Any) -> tuple[tuple[int, ...], Any]:
    """Returns shape, and the dtype or Python's type, of an operand of a ufunc."""
    if isinstance(value, Handle):
        found = known(value)
        return found.shape, found.dtype
    if isinstance(value, np.generic):
        return (), value.dtype
    if type(value) is bool:
        return (), np.dtype(bool)
    if type(value) in (int, float, complex):
        return (), type(value)
    raise TypeError(f"Unsupported type {type(value)}")


def result_type(*values: Any) -> np.dtype[Any]:
    """Returns the common dtype of operands, as NumPy promotes them."""
    kinds = [operand(value)[1] for value in values]
    ones = {int: 1, float: 1.0, complex: 1j}
    return np.result_type(
        *(ones.get(kind, kind) if isinstance(kind, type) else kind for kind in kinds)
    )


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the common shape.

    Raises:
        ValueError: there is none; the text is NumPy's.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        told = " ".join(_told(shape) for shape in shapes)
        raise ValueError(f"operands could not be broadcast together with shapes {told} ") from None


def _told(shape: tuple[int, ...]) -> str:
    return "(" + ",".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Returns the axes that an `axis` argument names; None: all.

    Raises:
        numpy.exceptions.AxisError: there is no such axis.
        ValueError: one is named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple | list):
        found = tuple(one_axis(one, ndim) for one in axis)
        if len(set(found)) != len(found):
            raise ValueError("duplicate value in 'axis'")
        return found
    return (one_axis(axis, ndim),)


def one_axis(axis: Any, ndim: int) -> int:
    """Returns an axis as a number from 0. Raises AxisError."""
    at = operator.index(axis)
    if not -ndim <= at < ndim:
        raise np.exceptions.AxisError(at, ndim)
    return at % ndim


def wanted_dtype(dtype: Any, otherwise: Any) -> np.dtype[Any]:
    """Returns the dtype that is asked for, or `otherwise`."""
    return checked_dtype(otherwise if dtype is None else dtype)


def shape_of(shape: Any) -> tuple[int, ...]:
    """Returns a shape argument as a tuple.

    Raises:
        ValueError: a length is negative.
        TypeError: a length is no whole number.
    """
    if isinstance(shape, Handle):
        raise TypeError("an array cannot be interpreted as a shape; use int() or tolist() first")
    parts: Any = shape if isinstance(shape, tuple | list | np.ndarray) else (shape,)
    made = tuple(operator.index(n) for n in parts)
    if any(n < 0 for n in made):
        raise ValueError("negative dimensions are not allowed")
    return made
