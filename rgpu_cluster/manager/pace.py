"""Limits how often one peer may say something. Pure."""

from __future__ import annotations


class Pace:
    """A token bucket: `burst` at once, and later on `per_second`."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = float(burst)
        self._at: float | None = None

    def allows(self, now: float) -> bool:
        """Counts one message. now: seconds, never going back."""
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        self._left = min(self._left + passed * self._per_second, float(self._burst))
        if self._left < 1:
            return False
        self._left -= 1
        return True
