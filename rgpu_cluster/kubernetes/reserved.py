"""The claims that are reservations, and which of them are to have cards now. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubernetes.names import RESERVE_UNTIL
from rgpu_cluster.kubernetes.views import is_reserved, reserved_until
from rgpu_common.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

Key = tuple[str, str]
Rank = tuple[bool, str, str]


class Bounds(Struct, frozen=True):
    """How many reservations a namespace may have, and for how long."""

    most: int = 16
    longest_seconds: float = 86400.0


class ReservedClaims:
    """A namespace may have thousands of them, and all are looked at every few seconds. So what is
    asked for one claim costs no step for each other one.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._ranks: dict[Key, Rank] = {}
        # Namespace -> the ranks of its claims, in order.
        self._ordered: dict[str, list[Rank]] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._ranks))

    def __contains__(self, key: Key) -> bool:
        return key in self._ranks

    def note(self, key: Key, claim: Any) -> None:
        """Takes a claim that has changed; None: it has gone."""
        before = self._ranks.pop(key, None)
        ordered = self._ordered.setdefault(key[0], [])
        if before is not None:
            del ordered[bisect_left(ordered, before)]
        if claim is not None and (_says(claim) or is_reserved(claim)):
            self._ranks[key] = _rank(claim)
            insort(ordered, self._ranks[key])
        if not ordered:
            del self._ordered[key[0]]

    def wants(self, claim: Any, now: datetime) -> bool | str:
        """Returns whether a claim is a reservation that lasts still; or what is wrong with it."""
        if claim.metadata.deletionTimestamp is not None:
            return False
        until = reserved_until(claim, now, self._bounds.longest_seconds)
        if until is None or isinstance(until, str):
            return until or False
        if now >= until:
            return False if _allocated(claim) else _past(claim)
        return self._too_many(claim) or True

    def _too_many(self, claim: Any) -> str:
        """Returns a sentence if the namespace has as many older reservations as it may have."""
        namespace, most = claim.metadata.namespace, self._bounds.most
        ordered = self._ordered.get(namespace, [])
        if len(ordered) <= most or bisect_left(ordered, _rank(claim)) < most:
            return ""
        has = counted(most, "reservation")
        return f"namespace {namespace} may have {has}, and has as many; delete one"


def _rank(claim: Any) -> Rank:
    """Returns what puts claims in order: those that hold cards come first, then the oldest."""
    metadata = claim.metadata
    return not is_reserved(claim), str(metadata.creationTimestamp), str(metadata.uid)


def _past(claim: Any) -> str:
    text = str(claim.metadata.annotations[RESERVE_UNTIL])[:40]
    return f"{RESERVE_UNTIL} {text} is past, so the claim has no cards; write a later time"


def _allocated(claim: Any) -> bool:
    return claim.status is not None and getattr(claim.status, "allocation", None) is not None


def _says(claim: Any) -> bool:
    return RESERVE_UNTIL in (claim.metadata.annotations or {})
