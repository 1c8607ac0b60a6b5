"""Remembers which attempts of which requests were revoked. Pure."""

from __future__ import annotations

MOST = 4096
KEEP_SECONDS = 600.0


class Attempts:
    """The manager may revoke a lease whose grant is still under way. The grant then comes too late.

    An attempt is forgotten after ten minutes, because no message is under way for so long; and
    earlier if there are thousands.
    """

    def __init__(self) -> None:
        # Request -> the latest revoked attempt, and when; the one that was revoked first comes
        # first.
        self._revoked: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._revoked)

    def revoke(self, request: str, attempt: int, now: float) -> None:
        """Notes that this attempt and earlier ones are revoked. now: seconds, never going back."""
        before, _ = self._revoked.pop(request, (0, now))
        self._revoked[request] = (max(before, attempt), now)
        for first in list(self._revoked):
            if len(self._revoked) <= MOST and now - self._revoked[first][1] < KEEP_SECONDS:
                break
            del self._revoked[first]

    def is_revoked(self, request: str, attempt: int) -> bool:
        """Returns whether a grant of this attempt comes too late."""
        return attempt <= self._revoked.get(request, (0, 0.0))[0]
