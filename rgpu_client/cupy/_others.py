"""Objects of `cupy` that are indexed: grids, and joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client.cupy._call import call
from rgpu_client.cupy._creation import array
from rgpu_client.cupy._handle import Handle


class _Grid:
    """`mgrid` and `ogrid`: NumPy makes the grid here, and it is copied to the node."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        made = self._grid[key]
        return [array(one) for one in made] if isinstance(made, tuple | list) else array(made)


class _Join:
    """`r_` and `c_`."""

    def __init__(self, join: Any, function: str) -> None:
        self._join = join
        self._function = function

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if not any(isinstance(part, Handle) for part in parts):
            return array(self._join[key])
        made = [_part(part) for part in parts]
        return call(self._function, (made,), {})


def _part(part: Any) -> Any:
    if isinstance(part, Handle):
        return part
    return array(np.r_[part] if isinstance(part, slice) else np.atleast_1d(part))


mgrid, ogrid = _Grid(np.mgrid), _Grid(np.ogrid)
r_, c_ = _Join(np.r_, "concatenate"), _Join(np.c_, "column_stack")
