"""Pure statistics over measured times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A summary of round trips, in seconds."""

    count: int
    minimum: float
    median: float
    p99: float


def summarise(seconds: Sequence[float]) -> RoundTrips:
    """Returns the summary; ValueError if there is nothing to sum up."""
    if not seconds:
        raise ValueError("no round trip was measured")
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return RoundTrips(
        len(ordered), ordered[0], ordered[last // 2], ordered[min(last, round(last * 0.99))]
    )
