"""`cupyx.scipy.linalg` on a remote GPU node."""

from __future__ import annotations

from rgpu_client.cupyx import _modules

__getattr__, __dir__ = _modules.package(__name__, "cupyx.scipy.linalg.", globals())
