"""Code that client and server share: the control-plane API, the wire in Python, configuration,
errors, units, clock.
"""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def release() -> str:
    """Returns the version of the installed distribution, or "unknown" in a bare source tree."""
    try:
        return version("rgpu-cuda")
    except PackageNotFoundError:
        return "unknown"
