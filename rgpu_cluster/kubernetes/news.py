"""Which of the requests in line are told now why they wait. Pure.

A condition and an event cost the API server more than a placement. So a request that gets its cards
within moments is told nothing, and each of the others hears at most once in a while.

A request that waits is taken again and again, because its reason may change while its place in line
does not, and because a sentence may be lost on its way. Whoever takes it leaves out what was said.
"""

from __future__ import annotations

from itertools import islice

# How long a request hears nothing after it was told something.
SECONDS = 10.0
# So many are told at once. Others have longer to wait, and no pod waits for sentences.
MOST = 100


class News:
    def __init__(self) -> None:
        # Both are in the order in which they are told.
        self._new: dict[str, None] = {}
        # Request -> when it is told again at the earliest.
        self._told: dict[str, float] = {}

    def waits(self, request: str) -> None:
        """Notes that a request waits."""
        if request not in self._told:
            self._new[request] = None

    def forget(self, request: str) -> None:
        """Notes that a request has its cards, or is gone."""
        self._new.pop(request, None)
        self._told.pop(request, None)

    def take(self, now: float) -> list[str]:
        """Returns those that are told now: the new ones first, then those that were told longest
        ago. now: seconds of any clock.
        """
        due = list(islice(self._new, MOST))
        old = (one for one, again in self._told.items() if again <= now)
        due += islice(old, MOST - len(due))
        for request in due:
            self.forget(request)
            self._told[request] = now + SECONDS
        return due
