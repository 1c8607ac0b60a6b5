"""What a peer may ask for without bringing any data."""

from __future__ import annotations

from typing import Final

from rgpu_common.http2.frames import Error

# A burst, and what comes back in a second.
MOST: Final = 4000.0
A_SECOND: Final = 200.0
# Data that is carried, either way, earns what its windows and answers cost.
_EARNING_BYTES = 512


class ConnectionFailedError(Exception):
    """The connection is given up: the peer breaks the rules, or floods us."""

    def __init__(self, code: Error, why: str) -> None:
        super().__init__(why)
        self.code = code


class Allowance:
    """Every frame without data costs some; time and data give it back."""

    def __init__(self, now: float) -> None:
        self._left = MOST
        self._at = now
        self.now = now

    def spend(self, cost: float) -> None:
        """Raises ConnectionFailedError if there is no more."""
        if self.now > self._at:
            self._left = min(MOST, self._left + (self.now - self._at) * A_SECOND)
            self._at = self.now
        self._left -= cost
        if self._left < 0:
            raise ConnectionFailedError(Error.ENHANCE_YOUR_CALM, "too many frames without data")

    def earn(self, count: int) -> None:
        """`count` bytes were carried in a frame, at least one."""
        self._left = min(MOST, self._left + 1 + count / _EARNING_BYTES)
