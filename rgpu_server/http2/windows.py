"""What clients may send that nobody has read yet, of all calls together."""

from __future__ import annotations

from typing import Final

# Beyond what every stream has.
ALL_WINDOWS_BYTES: Final = 512 << 20
# A call gets at most this part of what is left, so that something is left for who comes later.
_PART = 64
# So many calls gather long messages at a time.
_MAX_WIDE = 64


class Windows:
    """Hands out memory that calls may fill, never more than `total` bytes at a time, and places
    for long messages beside it.
    """

    def __init__(self, total: int = ALL_WINDOWS_BYTES) -> None:
        self._left = total
        self._wide = _MAX_WIDE

    def take(self, wanted: int) -> int:
        """Returns how many bytes a call gets, which may be none."""
        granted = max(0, min(wanted, self._left // _PART))
        self._left -= granted
        return granted

    def give(self, count: int) -> None:
        """A call that got so many is over."""
        self._left += count

    def take_wide(self) -> bool:
        """True if a call may gather a long message."""
        if self._wide:
            self._wide -= 1
            return True
        return False

    def give_wide(self) -> None:
        """It does so no longer."""
        self._wide += 1
