"""The libraries that the array seam serves."""

from __future__ import annotations

from enum import IntEnum


class Seam(IntEnum):
    """A library at the array seam, as the wish SEAM of a HELLO names it."""

    CUPY = 1
    TORCH = 2

    @property
    def word(self) -> str:
        """The name in options, reports and pools."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The name in sentences."""
        return _TITLES[self]


_TITLES = {Seam.CUPY: "CuPy", Seam.TORCH: "PyTorch"}
