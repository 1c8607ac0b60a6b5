"""Bounds how many refusals are written: to be refused costs a caller nothing."""

from __future__ import annotations

from rgpu_server.core.failures import Failures


class Refusals:
    """Counts the refusals of each caller, and says which are written, so that nobody fills the disk
    with them. The next line that is written says how many were left out.
    """

    def __init__(self) -> None:
        self._written = Failures(burst=100, per_minute=60.0)
        self._left_out = 0

    def left_out(self, whose: str, now: float) -> int | None:
        """Notes a refusal. Returns how many were left out before it; None: it is left out, too."""
        if not self._written.answered(whose, now):
            self._left_out += 1
            return None
        before, self._left_out = self._left_out, 0
        return before
