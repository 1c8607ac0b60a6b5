"""What clients may send that nobody has read yet, of all calls together."""

from __future__ import annotations

from typing import Final

# Beyond what every stream has.
ALL_WINDOWS_BYTES: Final = 512 << 20
# A call gets at most this part of what is left, so that something is left for who comes later.
_PART = 64


class Windows:
    """Hands out memory that calls may fill, never more than `total` bytes at a time."""

    def __init__(self, total: int = ALL_WINDOWS_BYTES) -> None:
        self._left = total

    def take(self, wanted: int) -> int:
        """Returns how many bytes a call gets, which may be none."""
        granted = max(0, min(wanted, self._left // _PART))
        self._left -= granted
        return granted

    def give(self, count: int) -> None:
        """A call that got so many is over."""
        self._left += count
