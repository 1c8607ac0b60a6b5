"""NumPy's functions on arrays of the node, and DLPack through the host."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rgpu_client.cupy import _ufuncs
from rgpu_client.cupy._catalogue import listed

# This package, by NumPy's name. The package adds itself.
NAMESPACES: Final[dict[str, Any]] = {}


# NumPy's scalars come to these as arrays without axes, as in `numpy.float32(2) < a`.
_COMPARISONS = frozenset(("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"))


def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Executes NumPy's ufunc on the node; NotImplemented if the node has none."""
    name = ufunc.__name__
    row = listed().get(name)
    if row is None:
        return NotImplemented
    out = keywords.pop("out", None)
    if out is not None:
        keywords["out"] = out[0] if len(out) == 1 else out
    if not row.inputs:
        return getattr(NAMESPACES["numpy"], name)(*inputs, **keywords)
    if name in _COMPARISONS:
        inputs = tuple(map(_scalar, inputs))
    found = _ufuncs.get(name)
    return (found if method == "__call__" else getattr(found, method))(*inputs, **keywords)


def _scalar(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and not value.ndim else value


def array_function(function: Any, arguments: Any, keywords: Any) -> Any:
    """Executes NumPy's function on the node; NotImplemented if this package has none."""
    found = None
    if function.__module__.partition(".")[0] in NAMESPACES:
        found = NAMESPACES["numpy"]
        for name in (*function.__module__.split(".")[1:], function.__name__):
            found = getattr(found, name, None)
    if found is None:
        return NotImplemented
    return found(*arguments, **keywords)


def to_dlpack(elements: Any, keywords: Any) -> Any:
    """Returns a DLPack capsule of a copy in the host's memory."""
    given = {word: value for word, value in keywords.items() if word in ("max_version", "copy")}
    return elements.__dlpack__(**given)
