"""Places for sessions that are kept for runs: a run holds a lease before it has a session in it.

A place that is kept is one that others cannot have, so keeping has three bounds.  A place is kept
for a minute, counted from the claim, or from the end of the last session in the lease.  All kept
places are at most a quarter of the places for sessions.  Beyond that the tenant with the most kept
places loses the one that it has had for longest.  A run whose place is not kept any more gets a
session as everybody does, while there is a place.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_server.core.model import LeaseKey
    from rgpu_server.core.policy import Policy

_PART = 4


class KeptPlaces:
    """By the key of the lease.  Times are seconds of the caller's clock."""

    def __init__(self, policy: Policy) -> None:
        self._most = max(policy.max_sessions // _PART, 1)
        self._seconds = policy.keep_place_seconds
        # Until when, the longest kept first.
        self._until: dict[LeaseKey, float] = {}
        # How often a place was given up.
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._until)

    def __iter__(self) -> Iterator[LeaseKey]:
        return iter(tuple(self._until))

    def __contains__(self, key: LeaseKey) -> bool:
        return key in self._until

    def besides(self, key: LeaseKey) -> int:
        """Returns how many places are kept for other leases than that of `key`."""
        return len(self._until) - (key in self._until)

    def keep(self, key: LeaseKey, now: float) -> None:
        """Keeps a place for the lease from now on."""
        self._until.pop(key, None)
        self._until[key] = now + self._seconds
        if len(self._until) > self._most:
            self.give_up(self._spare())

    def take(self, key: LeaseKey) -> None:
        """A session of the lease has the place now."""
        self._until.pop(key, None)

    def give_up(self, key: LeaseKey) -> None:
        """No place is kept for the lease any more, if one was."""
        if self._until.pop(key, None) is not None:
            self.given_up += 1

    def lapse(self, now: float) -> None:
        """Gives up the places that have been kept for long enough."""
        for key in [key for key, until in self._until.items() if until <= now]:
            self.give_up(key)

    def next_end(self) -> float | None:
        """Returns when `lapse` has something to do."""
        return next(iter(self._until.values()), None)

    def _spare(self) -> LeaseKey:
        """The longest kept place of the tenant that has the most."""
        counts = Counter(key.tenant for key in self._until)
        most = max(counts.values())
        return next(key for key in self._until if counts[key.tenant] == most)
