"""Keys of leases that have ended, so that no program silently runs under another lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.crowds import FairStore
from rgpu_server.core.model import Code, LeaseKey, LeaseState, RefusedError

if TYPE_CHECKING:
    from rgpu_server.core.policy import Policy

MAX_REMEMBERED = 4096


class _Ended(Struct, frozen=True):
    state: LeaseState
    at: float


class EndedKeys:
    """Remembers the keys of ended leases for a while, at most the last few thousand. Beyond, those
    of the tenant with the most are forgotten, the oldest first.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._keys: FairStore[LeaseKey, _Ended] = FairStore(MAX_REMEMBERED)

    def add(self, key: LeaseKey, state: LeaseState, now: float) -> None:
        """Notes that a lease of this key has ended."""
        self._keys.put(key, key.tenant, _Ended(state, now))

    def forget(self, key: LeaseKey) -> None:
        """Forgets a key that is in use again."""
        self._keys.pop(key)

    def clean(self, now: float) -> None:
        """Forgets the keys that were remembered for long enough."""
        keep = self._policy.memory_seconds
        for key in [key for key, ended in self._keys.items() if now - ended.at >= keep]:
            self._keys.pop(key)

    def check(self, key: LeaseKey, now: float) -> None:
        """Refuses a key whose lease ended not long ago."""
        ended = self._keys.get(key)
        if ended is not None and now - ended.at < self._policy.memory_seconds:
            raise RefusedError(
                Code.LEASE_ENDED,
                f"lease {key} {ended.state.value}, {now - ended.at:.0f} s ago; "
                "ask for a new grant or use another lease key",
            )
