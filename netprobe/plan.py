"""Decides which train to send next, from those sent so far. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from netprobe.estimate import (
    MIB,
    OPENING_TRIPS,
    STEADY_TRIPS,
    Train,
    is_stalled,
    settled,
    span,
    train_rate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_BYTES = 64 << 10
_LEAST_BYTES = 16 << 10
# A connection that paces itself at most doubles what it has in flight per round trip, and a train
# that is too short costs two or three round trips. In fewer round trips than this, growing trains
# do not reach what a fast path of this length (10 Gbit/s over 13 ms) has in flight.
_FEW_TRIPS = 32
_LONG_SECONDS = 0.013
# A train of this size is enough to show that a path is too slow for a train that ends by time.
_TRIED_BYTES = 4 * FIRST_BYTES
# Round trips for the order, for bytes still queued when the sender's time ends, and for the answer.
_DRAIN_TRIPS = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """What measuring one direction of a path may cost."""

    seconds: float = 0.04
    bytes: int = 64 * MIB


class Order(NamedTuple):
    """The next train. seconds: its sender starts no new piece after them."""

    bytes: int
    seconds: float


def next_train(
    trains: Sequence[Train], round_trip: float, budget: Budget, spent: float
) -> Order | None:
    """Returns the next train of a direction; None if the trains suffice.

    spent: seconds that the trains so far took.
    """
    # If a path is slower than the last train suggested, the next one ends after twice the time.
    limit = 2 * budget.seconds
    if not trains:
        return Order(min(FIRST_BYTES, budget.bytes), limit)
    if settled(trains, round_trip):
        return None
    rest = _rest(trains, round_trip, budget, spent)
    if rest is not None:
        return rest
    size = _size(trains, round_trip, budget, spent)
    # A train that is shorter than the last one adds nothing.
    enough = size >= max(_LEAST_BYTES, trains[-1].bytes * 3 // 4)
    return Order(size, limit) if enough else None


def _left(trains: Sequence[Train], budget: Budget) -> int:
    return budget.bytes - sum(train.bytes for train in trains)


def _rest(trains: Sequence[Train], round_trip: float, budget: Budget, spent: float) -> Order | None:
    """Returns one train of all bytes left, if the connection opens for most of the time left.
    Its rate is not known yet, so the train ends by time.
    """
    last = trains[-1]
    opens = last.bytes >= _TRIED_BYTES and span(last) < STEADY_TRIPS * round_trip
    long = round_trip >= _LONG_SECONDS and budget.seconds < _FEW_TRIPS * round_trip
    if not (long and opens):
        return None
    seconds = budget.seconds - spent - _DRAIN_TRIPS * round_trip
    size = _left(trains, budget)
    if seconds < OPENING_TRIPS * round_trip or size < 2 * last.bytes:
        return None
    return None if is_stalled(last, round_trip) else Order(size, seconds)


def _size(trains: Sequence[Train], round_trip: float, budget: Budget, spent: float) -> int:
    """Returns the size of the next train, within the time and bytes left."""
    last, rate = trains[-1], train_rate(trains[-1], round_trip)
    stalled = [train for train in trains if is_stalled(train, round_trip)]
    if stalled == [last]:
        # Send it once more, as if nothing had been lost.
        wanted, spent = last.bytes, spent - last.seconds
        rate = max(train_rate(train, round_trip) for train in trains)
    elif span(last) < STEADY_TRIPS * round_trip:
        # A train of twice as many bytes would be too short again.
        wanted = last.bytes * 4
    else:
        wanted = last.bytes * 2
    # On paths with long round trips each train is faster than the last, so plan with the last rate.
    fits = int((budget.seconds - spent - round_trip) * max(rate, 1.0))
    return min(max(wanted, 4 * FIRST_BYTES), fits, _left(trains, budget))
