"""What the manager knows of reservations, to show them and to say what has become of them.

The nodes say how much is left of each with every report. Nothing here decides when one ends.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rgpu_common.clusters import MAX_RESERVE_SECONDS
from rgpu_common.crowds import FairStore
from rgpu_common.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rgpu_common.v1 import agent_pb2

MOST_ENDED = 2048
MOST_KNOWN = 100_000
# A reservation of a node that has been away since is forgotten so long after its end.
_AFTER_SECONDS = 60.0
_OVER = "its time was over"
_HINT = "`rgpu reserve` makes another one"


class Part(NamedTuple):
    """Its cards on one node. until: when they end, by the manager's monotonic clock."""

    ordinals: tuple[int, ...]
    until: float


class Reservation(Struct):
    """parts: by node. cards: how many it has in all. released: its tenant ended it."""

    id: str
    tenant: str
    parts: dict[str, Part]
    cards: int
    share_ppm: int
    memory_bytes: int
    whole: bool
    released: bool = False

    @property
    def name(self) -> str:
        """What its tenant called it."""
        return name_of(self.id)

    @property
    def until(self) -> float:
        """When its first cards end."""
        return min(part.until for part in self.parts.values())

    @property
    def missing(self) -> int:
        """How many of its cards no node has reported."""
        return max(self.cards - sum(len(part.ordinals) for part in self.parts.values()), 0)


def name_of(reservation: str) -> str:
    """Returns the name in the id of a reservation: the part before its random part."""
    return reservation.rpartition("-")[0]


class Reservations:
    """Those of all nodes, and the last that have ended. now: seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Reservation] = OrderedDict()
        # Id -> tenant, when, why.
        self._ended: FairStore[str, tuple[str, float, str]] = FairStore(MOST_ENDED)
        self._endings: dict[str, asyncio.Event] = {}

    def __iter__(self) -> Iterator[Reservation]:
        return iter(list(self._known.values()))

    def get(self, reservation: str) -> Reservation | None:
        """Returns the reservation with this id, or None."""
        return self._known.get(reservation)

    def heard(self, node: str, leases: Iterable[agent_pb2.HeldLease], now: float) -> None:
        """Takes a node's report: all reservations that it has, and how long they last."""
        there: dict[str, list[agent_pb2.HeldLease]] = {}
        for lease in leases:
            if lease.reserved and lease.request_id:
                there.setdefault(lease.request_id, []).append(lease)
        for one in [one for one in self._known.values() if node in one.parts]:
            if one.id not in there:
                self._lose(one, node, now)
        for reservation, held in there.items():
            self._note(reservation, node, held, now)

    def _lose(self, one: Reservation, node: str, now: float) -> None:
        if len(one.parts) == 1:
            self._end(one, now)
        else:
            del one.parts[node]

    def _note(
        self, reservation: str, node: str, held: list[agent_pb2.HeldLease], now: float
    ) -> None:
        first, left = held[0], held[0].left_seconds
        left = min(max(left, 0.0), MAX_RESERVE_SECONDS) if math.isfinite(left) else 0.0
        part = Part(tuple(sorted(lease.ordinal for lease in held)), now + left)
        before = self._known.pop(reservation, None)
        parts = {**before.parts, node: part} if before is not None else {node: part}
        if before is not None and before.tenant != first.tenant:
            parts, before = {node: part}, None
        self._known[reservation] = Reservation(
            reservation,
            first.tenant,
            dict(sorted(parts.items())),
            first.cards or len(held),
            first.share_ppm,
            first.memory_bytes,
            first.whole,
            before is not None and before.released,
        )
        self._ended.pop(reservation)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def released(self, reservation: str) -> None:
        """Notes that its tenant ends it."""
        one = self._known.get(reservation)
        if one is not None:
            one.released = True

    async def ended(self, reservation: str) -> None:
        """Returns when a reservation is there no more."""
        while reservation in self._known:
            await self._endings.setdefault(reservation, asyncio.Event()).wait()

    def look(self, now: float) -> None:
        """Forgets those that have ended on nodes that did not come back."""
        for one in list(self._known.values()):
            if one.until + _AFTER_SECONDS < now:
                self._end(one, now)

    def _end(self, one: Reservation, now: float) -> None:
        del self._known[one.id]
        ending = self._endings.pop(one.id, None)
        if ending is not None:
            ending.set()
        why = _OVER if one.until <= now + 1.0 else "its server ended it"
        why = "it was released" if one.released else why
        self._ended.put(one.id, one.tenant, (one.tenant, now, why))

    # Answers

    def find(self, text: str, tenant: str) -> Reservation | str:
        """Returns the tenant's reservation with this id or name, or why there is none."""
        mine = [one for one in self._known.values() if one.tenant == tenant]
        found = [one for one in mine if one.id == text] or [one for one in mine if one.name == text]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(one.id for one in found[:5])
            return f"tenant {tenant} has {len(found)} reservations {text!r}: name one of {ids}"
        return ""

    def why_none(self, text: str, tenant: str, now: float) -> str:
        """Returns why the tenant has no reservation with this id or name, in a sentence."""
        for reservation, (whose, at, why) in reversed(self._ended.items()):
            if whose == tenant and text in (reservation, name_of(reservation)):
                ago = format_duration(now - at)
                return f"reservation {reservation} ended {ago} ago, because {why}; {_HINT}"
        return (
            f"tenant {tenant} has no reservation {text[:64]!r}; `rgpu pool` lists them, and {_HINT}"
        )
