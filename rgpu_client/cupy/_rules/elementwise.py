"""Rules of ufuncs, and of functions that work on each element."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rgpu_client.cupy import _catalogue
from rgpu_client.cupy._call import NOTHING, RULES, VALUES, Unsure
from rgpu_client.cupy._meta import checked_dtype, fresh, like
from rgpu_client.cupy._rules.common import broadcast, known, operand, result_type, rule

# Ufuncs of CuPy's that are plain functions in NumPy, by the ufunc with the same dtypes.
_LIKE: Final = {"fix": np.trunc, "i0": np.sin, "sinc": np.sin, "bitwise_invert": np.invert}


def add_ufuncs() -> None:
    """Adds a rule for each ufunc of the list that NumPy has too."""
    for name, row in _catalogue.listed().items():
        if row.inputs and "." not in name:
            ufunc = _LIKE.get(name) or getattr(np, name, None)
            if isinstance(ufunc, np.ufunc) and ufunc.nin == row.inputs:
                RULES[name] = _Ufunc(ufunc, name)
                VALUES.add(name)


class _Ufunc:
    """The rule of a ufunc."""

    def __init__(self, ufunc: np.ufunc, name: str) -> None:
        self._ufunc = ufunc
        self._name = name

    def __call__(
        self, *inputs: Any, out: Any = None, where: Any = True, dtype: Any = None,
        casting: str = "same_kind",
    ) -> Any:  # fmt: skip
        nin = self._ufunc.nin
        if len(inputs) < nin or len(inputs) > nin + self._ufunc.nout:
            raise TypeError(
                f"{self._name}() takes from {nin} to {nin + self._ufunc.nout} positional "
                f"arguments but {len(inputs)} were given"
            )
        operands = [operand(one) for one in inputs[:nin]]
        # NumPy looks for a loop, and at the dtypes of outputs, before it looks at the shapes.
        dtypes = self.dtypes([kind for _, kind in operands], dtype, casting)
        outs = inputs[nin:] or (out if isinstance(out, tuple) else (out,))
        outs = () if len(outs) == 1 and outs[0] is None else outs
        for one, kind in zip(outs, dtypes, strict=bool(outs)):
            self._check_cast(one, kind, casting)
        shape = broadcast(*(shape for shape, _ in operands))
        if where is not True:
            shape = broadcast(shape, operand(where)[0])
        if outs:
            for one in outs:
                self._check_shape(one, shape)
            return NOTHING
        made = tuple(fresh(kind, shape) for kind in dtypes)
        return made if len(made) > 1 else made[0]

    def dtypes(self, kinds: list[Any], dtype: Any, casting: str) -> list[np.dtype[Any]]:
        """Returns the dtypes of the outputs for dtypes or Python's types of the inputs.

        Raises:
            TypeError: the ufunc has no loop for them; the text is NumPy's.
        """
        nin, nout = self._ufunc.nin, self._ufunc.nout
        more: dict[str, Any] = {"casting": casting}
        if dtype is not None:
            more["signature"] = (None,) * nin + (checked_dtype(dtype),) * nout
        found = self._ufunc.resolve_dtypes(tuple(kinds) + (None,) * nout, **more)
        return [checked_dtype(one) for one in found[nin:]]

    def _check_cast(self, out: Any, kind: Any, casting: str) -> None:
        if out is None:
            raise Unsure
        target = known(out)
        if not np.can_cast(kind, target.dtype, casting):  # type: ignore[arg-type]
            raise TypeError(
                f"Cannot cast ufunc '{self._name}' output from dtype('{kind}') to "
                f"dtype('{target.dtype}') with casting rule '{casting}'"
            )

    def _check_shape(self, out: Any, shape: tuple[int, ...]) -> None:
        target = known(out)
        if broadcast(shape, target.shape) != target.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {_text(target.shape)} doesn't match "
                f"the broadcast shape {_text(shape)}"
            )


def _text(shape: tuple[int, ...]) -> str:
    return str(shape).replace(" ", "")


@rule("where", values=True, dynamic=True)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return None
    if x is None or y is None:
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    shape = broadcast(operand(condition)[0], operand(x)[0], operand(y)[0])
    return fresh(result_type(x, y), shape) if len(shape) < 2 else _whole(shape, (condition, x, y))


def _whole(shape: tuple[int, ...], operands: tuple[Any, ...]) -> Any:
    """Returns the result of a function that lays its result out as its operands lie."""
    dtype = result_type(*operands[1:])
    arrays = [known(one) for one in operands if operand(one)[0]]
    if all(one.contiguous for one in arrays):
        return fresh(dtype, shape)
    return like(next(one for one in arrays if not one.contiguous), dtype, shape)


@rule("clip", values=True)
def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
    if out is not None:
        return NOTHING
    limits = [one for one in (a_min, a_max) if one is not None]
    shape = broadcast(known(a).shape, *(operand(one)[0] for one in limits))
    return like(known(a), result_type(a, *limits), shape)


@rule("isclose", values=True)
def _isclose(a: Any, b: Any, *_: Any, **__: Any) -> Any:
    shape = broadcast(operand(a)[0], operand(b)[0])
    if not all(known(one).contiguous for one in (a, b) if operand(one)[0]):
        raise Unsure
    return fresh(bool, shape)


@rule("allclose", "array_equal", "array_equiv", values=True)
def _truth(a: Any, b: Any, *_: Any, **__: Any) -> Any:
    return fresh(bool, ())


@rule("nan_to_num", values=True)
def _nan_to_num(x: Any, *_: Any, **__: Any) -> Any:
    return like(known(x), known(x).dtype, known(x).shape)


@rule("isreal", "iscomplex", "isposinf", "isneginf")
def _is(x: Any, out: Any = None) -> Any:
    return like(known(x), bool, known(x).shape)


@rule("round", "around", "round_")
def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    if known(a).dtype.kind == "b":
        raise Unsure
    return like(known(a), known(a).dtype, known(a).shape)


@rule("angle")
def _angle(z: Any, deg: bool = False) -> Any:
    found = known(z)
    if found.dtype.kind != "c":
        raise Unsure
    return like(found, "float32" if found.dtype.itemsize == 8 else "float64", found.shape)
