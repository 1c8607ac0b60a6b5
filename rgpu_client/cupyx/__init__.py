"""`cupyx` on a remote GPU node."""

from __future__ import annotations

import numpy as np

from rgpu_client.cupyx import _modules

# Page-locked memory, which this process does not have: a transfer would not be faster by it.
_PINNED = {
    "empty_pinned": np.empty,
    "empty_like_pinned": np.empty_like,
    "zeros_pinned": np.zeros,
    "zeros_like_pinned": np.zeros_like,
}

__getattr__, __dir__ = _modules.package(
    __name__,
    "cupyx.",
    globals(),
    ("scipy", "profiler"),
    {"errstate": _modules.errstate, **_PINNED},
)
