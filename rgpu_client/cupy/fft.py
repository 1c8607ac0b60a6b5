"""`cupy.fft` on the node."""

from __future__ import annotations

from rgpu_client.cupy import _functions

__getattr__, __dir__ = _functions.lazy(__name__, "fft.", globals())
