"""Which of the requests in line are told now why they wait. Pure.

A condition and an event cost the API server more than a placement. So a request that gets its cards
within moments is told nothing, and each of the others hears at most once in a while. Namespaces
take turns, so that one with thousands of requests in line does not keep others from hearing.

A request that waits is taken again and again, because its reason may change while its place in line
does not, and because a sentence may be lost on its way. Whoever takes it leaves out what was said.
"""

from __future__ import annotations

from itertools import takewhile

from rgpu_common.turns import TurnQueue

# How long a request hears nothing after it was told something.
SECONDS = 10.0
# So many are told at once. Others have longer to wait, and no pod waits for sentences.
MOST = 100


class News:
    def __init__(self) -> None:
        # Request -> its namespace. Each is in one of the three below.
        self._namespaces: dict[str, str] = {}
        self._new: TurnQueue[str] = TurnQueue()
        # Request -> when it is told again at the earliest; the first one first.
        self._told: dict[str, float] = {}
        self._again: TurnQueue[str] = TurnQueue()

    def waits(self, request: str, namespace: str) -> None:
        """Notes that a request waits."""
        if request not in self._namespaces:
            self._namespaces[request] = namespace
            self._new.add(request, namespace)

    def forget(self, request: str) -> None:
        """Notes that a request has its cards, or is gone."""
        self._namespaces.pop(request, None)
        self._new.discard(request)
        self._told.pop(request, None)
        self._again.discard(request)

    def take(self, now: float) -> list[str]:
        """Returns those that are told now: the new ones first, then those that are told again, and
        where there are too many, half of each. now: seconds of any clock.
        """
        for request in list(takewhile(lambda one: self._told[one] <= now, self._told)):
            del self._told[request]
            self._again.add(request, self._namespaces[request])
        new = min(len(self._new), max(MOST // 2, MOST - len(self._again)))
        again = min(len(self._again), MOST - new)
        due = [self._new.pop() for _ in range(new)] + [self._again.pop() for _ in range(again)]
        self._told.update((request, now + SECONDS) for request in due)
        return due
