"""`cupyx.scipy` on a remote GPU node."""

from __future__ import annotations

import importlib
from typing import Any

from rgpu_client.cupy._handle import Handle
from rgpu_client.cupyx import _modules

_NAMES = ("special", "ndimage", "signal", "linalg", "fft", "stats", "sparse", "spatial")


def get_array_module(*args: Any) -> Any:
    """Returns this package if an argument is on the node, else SciPy."""
    there = any(isinstance(one, Handle) for one in args)
    return importlib.import_module(__name__ if there else "scipy")


__getattr__, __dir__ = _modules.package(__name__, "cupyx.scipy.", globals(), _NAMES)
