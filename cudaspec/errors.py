"""CUresult for Python: value -> name and string.

cudaspec.errors.name(700)   # "CUDA_ERROR_ILLEGAL_ADDRESS"
cudaspec.errors.NAMES[2]    # "CUDA_ERROR_OUT_OF_MEMORY"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.types.errors import ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Mapping[int, str] = {e.value: e.name for e in ERRORS}
STRINGS: Mapping[int, str] = {e.value: e.text for e in ERRORS}
VALUES: Mapping[str, int] = {e.name: e.value for e in ERRORS}


def name(value: int) -> str:
    """Returns the name of a CUresult, or `CUresult N` for an unknown value."""
    return NAMES.get(value, f"CUresult {value}")
