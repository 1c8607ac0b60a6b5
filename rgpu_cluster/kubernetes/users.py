"""Which gated pods use which claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Key = tuple[str, str]


class Users:
    """The gated pods of each claim. A key is the namespace and the name. Iterates over claims."""

    def __init__(self) -> None:
        # Claim -> the gated pods that use it.
        self._users: dict[Key, set[Key]] = {}
        # The same the other way round.
        self._uses: dict[Key, set[Key]] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._users)

    def of(self, claim: Key) -> Iterable[Key]:
        """Returns the gated pods that use a claim."""
        return self._users.get(claim, ())

    def change(self, pod: Key, claims: set[Key]) -> set[Key]:
        """Notes which claims a pod uses now: none if it is gone or not gated. Returns those that it
        uses or has used.
        """
        before = self._uses.pop(pod, set())
        if claims:
            self._uses[pod] = claims
        for claim in before - claims:
            self._users[claim].discard(pod)
            if not self._users[claim]:
                del self._users[claim]
        for claim in claims:
            self._users.setdefault(claim, set()).add(pod)
        return before | claims
