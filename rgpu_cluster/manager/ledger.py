"""What has happened, for people: the last decisions and the last events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.crowds import FairStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_cluster.core.decision import Decision, Refusal
    from rgpu_cluster.core.request import Request

MOST_DECISIONS = 4096
MOST_EVENTS = 2048


class Event(Struct, frozen=True):
    """One thing that happened. at: seconds since 1970. tenant: whose request it was, or "". name:
    what people call the request.
    """

    number: int
    at: float
    kind: str
    node: str
    request: str
    tenant: str
    sentence: str
    name: str = ""


class Decided(Struct, frozen=True):
    """The last decision about a request.

    at: seconds since 1970. attempt: how often the request was placed.
    """

    request: Request
    decision: Decision | Refusal
    at: float
    attempt: int = 0


class Ledger:
    """Keeps the last few thousand decisions and events. Beyond, those of the tenant with the most
    are forgotten, the oldest first.
    """

    def __init__(self) -> None:
        self._decided: FairStore[str, Decided] = FairStore(MOST_DECISIONS)
        self._events: FairStore[int, Event] = FairStore(MOST_EVENTS)
        self._number = 0

    def decide(self, decided: Decided) -> None:
        """Notes a decision; it replaces an earlier one about the same request."""
        self._decided.put(decided.request.id, decided.request.tenant, decided)

    def decisions(self) -> Iterator[Decided]:
        """Yields the last decision about each request."""
        return (decided for _, decided in self._decided.items())

    def decided(self, request: str) -> Decided | None:
        """Returns the last decision about a request, or None."""
        return self._decided.get(request)

    def note(
        self,
        at: float,
        kind: str,
        sentence: str,
        node: str = "",
        request: str = "",
        tenant: str = "",
        name: str = "",
    ) -> Event:
        """Notes an event, and returns it. tenant: whose request it is, and name: what people call
        it; "": as the last decision about it says.
        """
        known = self._decided.get(request)
        if known is not None:
            tenant, name = tenant or known.request.tenant, name or known.request.name
        self._number += 1
        event = Event(self._number, at, kind, node, request, tenant, sentence, name)
        self._events.put(event.number, tenant, event)
        return event

    def events(self, after: int) -> Iterator[Event]:
        """Yields the events after a number, the oldest first."""
        return (event for number, event in self._events.items() if number > after)
