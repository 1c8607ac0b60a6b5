"""Finds what executes a function of CuPy's: CuPy where there is a GPU, else what stands in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_server.arrays import cupy_own, stand_ins, stand_random, stand_sparse
from rgpu_server.arrays.library import NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.arrays.cupy_rows import Row

    Call = Callable[..., Any]


class Calls:
    """Finds functions for one session.

    cupy: the imported CuPy; None where NumPy stands in.
    """

    def __init__(self, cupy: Any = None) -> None:
        self._cupy = cupy
        self._state = np.random.RandomState()

    def find(self, row: Row, names: Sequence[str], keywords: Sequence[str]) -> Call:
        """Returns what executes a row with these positional parameters and keywords.

        Raises:
            NotOfferedError: there is nothing.
        """
        if row.public.startswith("rgpu.ufunc_"):
            return getattr(self, f"_{row.public[5:]}")  # type: ignore[no-any-return]
        own = cupy_own.TABLE.get(row.public)
        if own is not None:
            return own
        if self._cupy is not None:
            real = self._real(row)
            return self._with_where(real) if row.ufunc and "where" in keywords else real
        if row.public.startswith("random."):
            return self._random(row)
        if row.public.startswith("sparse."):
            return stand_sparse.find(row)
        if row.module == "rgpu":
            raise NotOfferedError(f"this node executes no {row.public}")
        return stand_ins.bound(stand_ins.find(row), row, names, keywords)

    def _random(self, row: Row) -> Call:
        parts = row.public.split(".")
        if len(parts) == 3:
            return stand_random.method(parts[2], parts[1] == "Generator")
        if parts[1] in ("default_rng", "RandomState"):
            return (
                stand_random.default_rng if parts[1] == "default_rng" else stand_random.random_state
            )
        return stand_random.of_state(self._state, parts[1])

    def _real(self, row: Row) -> Call:
        """Returns CuPy's function. Names come from the list, never from the client."""
        parts = row.public.split(".")
        if row.public.startswith("sparse."):
            return stand_sparse.find(row, import_module("cupyx.scipy.sparse"))
        module = self._cupy.random if parts[0] == "random" and row.module == "rgpu" else None
        if module is not None and len(parts) == 3:
            return getattr(getattr(module, parts[1]), parts[2])  # type: ignore[no-any-return]
        if module is not None:
            return getattr(module, parts[1])  # type: ignore[no-any-return]
        if row.module == "rgpu":
            raise NotOfferedError(f"this node executes no {row.public}")
        return getattr(import_module(row.module), row.name)  # type: ignore[no-any-return]

    def _with_where(self, ufunc: Call) -> Call:
        """CuPy's ufuncs have no public `where`. Where it does not hold, elements keep what `out`
        has; without `out` they may be anything.
        """

        def call(*arguments: Any, where: Any = True, out: Any = None, **keywords: Any) -> Any:
            made = ufunc(*arguments, **keywords)
            if out is None:
                return made
            results = made if isinstance(made, tuple) else (made,)
            targets = out if isinstance(out, tuple) else (out,)
            for one, target in zip(results, targets, strict=True):
                self._cupy.copyto(target, one, where=where, casting="same_kind")
            return out

        return call

    # Methods of ufuncs. The ufunc's name has been looked up in the list.

    def _ufunc(self, name: str) -> Any:
        found = getattr(self._cupy or np, name, None)
        if not hasattr(found, "reduce"):
            raise NotOfferedError(f"{name} has no such method on this node")
        return found

    def _ufunc_reduce(
        self, name: str, a: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
        out: Any = None,
    ) -> Any:  # fmt: skip
        return self._ufunc(name).reduce(a, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def _ufunc_accumulate(
        self, name: str, a: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        return self._ufunc(name).accumulate(a, axis=axis, dtype=dtype, out=out)

    def _ufunc_outer(self, name: str, a: Any, b: Any) -> Any:
        return self._ufunc(name).outer(a, b)

    def _ufunc_at(self, name: str, a: Any, index: Any, b: Any = None) -> None:
        self._ufunc(name).at(a, index, *([] if b is None else [b]))
