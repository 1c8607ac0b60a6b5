"""Which train to send next, out of those so far.  Pure."""

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
# A connection that opens by pacing at most doubles what it has under way in a round trip, and a
# train that is over soon costs two or three of them.  Over so few round trips trains that grow do
# not get as far as what a fast path of this length, 10 Gbit/s over 13 ms, has under way.
_FEW_TRIPS = 32
_LONG_SECONDS = 0.013
# A path that is too slow for a train of which nothing but the time is known has shown it by then.
_TRIED_BYTES = 4 * FIRST_BYTES
# The order, what a queue holds back when the sender's time ends, the answer.
_DRAIN_TRIPS = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """What one direction of a path may cost."""

    seconds: float = 0.04
    bytes: int = 64 * MIB


class Order(NamedTuple):
    """The next train.  seconds: its sender begins no piece after them."""

    bytes: int
    seconds: float


def next_train(
    trains: Sequence[Train], round_trip: float, budget: Budget, spent: float
) -> Order | None:
    """Returns what the next train of a direction should be; None: it is enough.

    spent: seconds that the trains so far took.
    """
    # A path that is slower than the last train promised ends at twice its time.
    limit = 2 * budget.seconds
    if not trains:
        return Order(min(FIRST_BYTES, budget.bytes), limit)
    if settled(trains, round_trip):
        return None
    rest = _rest(trains, round_trip, budget, spent)
    if rest is not None:
        return rest
    size = _size(trains, round_trip, budget, spent)
    # A shorter train than the last says less than it did.
    enough = size >= max(_LEAST_BYTES, trains[-1].bytes * 3 // 4)
    return Order(size, limit) if enough else None


def _left(trains: Sequence[Train], budget: Budget) -> int:
    return budget.bytes - sum(train.bytes for train in trains)


def _rest(trains: Sequence[Train], round_trip: float, budget: Budget, spent: float) -> Order | None:
    """One train of all that is left, where a connection opens for most of the time that there is;
    how much it carries is not known, so it ends with its time.
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
    """The bytes of the next train, as far as there are time and bytes left."""
    last, rate = trains[-1], train_rate(trains[-1], round_trip)
    stalled = [train for train in trains if is_stalled(train, round_trip)]
    if stalled == [last]:
        # Once it is sent again, as if nothing had been lost.
        wanted, spent = last.bytes, spent - last.seconds
        rate = max(train_rate(train, round_trip) for train in trains)
    elif span(last) < STEADY_TRIPS * round_trip:
        # One of twice as many bytes would be over too soon as well.
        wanted = last.bytes * 4
    else:
        wanted = last.bytes * 2
    # On a path of long round trips each train is faster than the last: count on the last rate.
    fits = int((budget.seconds - spent - round_trip) * max(rate, 1.0))
    return min(max(wanted, 4 * FIRST_BYTES), fits, _left(trains, budget))
