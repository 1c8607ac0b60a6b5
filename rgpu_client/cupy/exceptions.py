"""`cupy.exceptions`."""

from __future__ import annotations

from numpy.exceptions import (
    AxisError,
    ComplexWarning,
    ModuleDeprecationWarning,
    TooHardError,
    VisibleDeprecationWarning,
)

__all__ = [
    "AxisError",
    "ComplexWarning",
    "ModuleDeprecationWarning",
    "TooHardError",
    "VisibleDeprecationWarning",
]
