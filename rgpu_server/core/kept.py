"""Keeps places for the sessions of runs that hold a lease and have no session in it.

Other tenants cannot use a kept place, so keeping has three bounds. A place is kept for a minute,
from the claim or from the end of the last session in the lease. All kept places together are at
most a quarter of the places for sessions. When there would be more, the tenant with the most kept
places loses the one that was kept longest. A run without a kept place gets a session only if a
place is free.
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
    """Kept places by the key of their lease. Times are seconds of the caller's clock."""

    def __init__(self, policy: Policy) -> None:
        self._most = max(policy.max_sessions // _PART, 1)
        self._seconds = policy.keep_place_seconds
        # Lease key -> when keeping ends; the place that was kept longest comes first.
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
        """Ends the keeping because a session of the lease uses the place now."""
        self._until.pop(key, None)

    def give_up(self, key: LeaseKey) -> None:
        """Gives up the place that is kept for the lease, if there is one."""
        if self._until.pop(key, None) is not None:
            self.given_up += 1

    def lapse(self, now: float) -> None:
        """Gives up the places that have been kept for long enough."""
        for key in [key for key, until in self._until.items() if until <= now]:
            self.give_up(key)

    def next_end(self) -> float | None:
        """Returns when the next kept place lapses; None if there is none."""
        return next(iter(self._until.values()), None)

    def _spare(self) -> LeaseKey:
        """Returns the key of the place that was kept longest, of the tenant with the most kept
        places.
        """
        counts = Counter(key.tenant for key in self._until)
        most = max(counts.values())
        return next(key for key in self._until if counts[key.tenant] == most)
