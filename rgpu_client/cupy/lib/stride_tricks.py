"""`cupy.lib.stride_tricks`: views with strides of the program's choice."""

from __future__ import annotations

from typing import Any

from rgpu_client.cupy._call import call


def as_strided(x: Any, shape: Any = None, strides: Any = None) -> Any:
    """Returns a view with other strides. The node refuses one that leaves the array's memory.

    Raises:
        ValueError: when the view is read, because it would leave the memory.
    """
    wanted = x.shape if shape is None else tuple(shape)
    steps = x.strides if strides is None else tuple(strides)
    return call("rgpu.as_strided", (x, wanted, steps), {})


def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """Returns a view of all windows."""
    return call("rgpu.sliding_window_view", (x, window_shape, axis), {})
