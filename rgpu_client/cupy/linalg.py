"""`cupy.linalg` on the node."""

from __future__ import annotations

from numpy.linalg import LinAlgError as _LinAlgError

from rgpu_client.cupy import _functions

LinAlgError = _LinAlgError
__getattr__, __dir__ = _functions.lazy(__name__, "linalg.", globals())
