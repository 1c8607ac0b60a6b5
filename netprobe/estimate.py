"""Pure statistics over measured times: round trips, and bandwidth from trains of bytes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MIB = 1 << 20
# Two trains whose rates differ by less than this part say the same.
AGREEMENT = 0.10
# What opens slowly or comes out of a full bucket: the begin of a train says little of the rest.
SKIP_BYTES = MIB
# A train of which this much lies behind the begin can be believed, unless it was over so soon that
# it measured when the system woke whom.
_STEADY_BYTES = MIB
_STEADY_SECONDS = 0.02
_WAKE_SECONDS = 0.002
# Shorter trains show how much a connection dares to send at first: two of them agree on that.
_STEADY_TRIPS = 3
# A begin so much faster than the rest has been paid for by a bucket that was full.
_SHAPED = 2.0
FIRST_BYTES = 64 << 10
_LEAST_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A summary of round trips, in seconds.  jitter: the median of what lies between neighbours."""

    count: int
    minimum: float
    median: float
    p99: float
    jitter: float = 0.0


def summarise(seconds: Sequence[float]) -> RoundTrips:
    """Returns the summary; ValueError if there is nothing to sum up."""
    if not seconds:
        raise ValueError("no round trip was measured")
    ordered = sorted(seconds)
    last = len(ordered) - 1
    steps = sorted(abs(b - a) for a, b in itertools.pairwise(seconds))
    return RoundTrips(
        len(ordered),
        ordered[0],
        ordered[last // 2],
        ordered[min(last, round(last * 0.99))],
        steps[len(steps) // 2] if steps else 0.0,
    )


class Arrival(NamedTuple):
    """How many bytes of a train had come, and when, in seconds since it was ordered."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Train:
    """One transfer.  seconds: from the first byte of the order to the last of the answer."""

    bytes: int
    seconds: float
    arrivals: tuple[Arrival, ...] = ()


class Confidence(Enum):
    """How far to trust an estimate."""

    LOW = "low"
    FAIR = "fair"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of one direction.

    shaped: bytes came faster at first than later, as out of a token bucket.
    trains, bytes: what it took.
    """

    bytes_per_second: float
    confidence: Confidence
    shaped: bool
    trains: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What one direction of a path may cost."""

    seconds: float = 0.04
    bytes: int = 64 * MIB


def whole_rate(train: Train, round_trip: float) -> float:
    """Returns the bytes per second of a train, less the round trip that ordering it took."""
    return train.bytes / max(train.seconds - round_trip, train.seconds * 0.05, 1e-9)


def steady_rate(train: Train) -> float | None:
    """Returns the bytes per second behind the begin of a train, as its receiver saw them; None if
    it is too short to have anything behind its begin.

    What came late, since a packet was lost before it or the receiver had to wait for a CPU, came
    with much else at once: counted from there the rest looks too fast, so the slowest count is
    right.
    """
    skip = max(train.bytes // 4, min(train.bytes // 2, SKIP_BYTES))
    behind = [arrival for arrival in train.arrivals if arrival.bytes >= skip]
    if len(behind) < 3:
        return None
    last = behind[-1]
    rates = [
        (last.bytes - first.bytes) / (last.seconds - first.seconds)
        for first in behind[: max(len(behind) * 2 // 3, 1)]
        if last.seconds > first.seconds and last.bytes > first.bytes
    ]
    return min(rates) if rates else None


def train_rate(train: Train, round_trip: float) -> float:
    """Returns the best guess that one train allows, in bytes per second."""
    steady, whole = steady_rate(train), whole_rate(train, round_trip)
    if steady is None:
        return whole
    # No path carries less than what came over it, but for what a bucket had saved up.
    return steady if is_shaped(train, round_trip) else max(steady, whole)


def is_shaped(train: Train, round_trip: float = 0.0) -> bool:
    """True if the begin came so much faster than the rest that a bucket must have paid for it.

    What a connection sends in its first round trips comes in as many heaps, and looks like that.
    """
    if _span(train) < _STEADY_TRIPS * round_trip:
        return False
    steady = steady_rate(train)
    begin = [a for a in train.arrivals if a.bytes <= max(train.bytes // 4, 1)]
    if steady is None or len(begin) < 3 or _span(train) < _WAKE_SECONDS:
        return False
    first, last = begin[0], begin[-1]
    if last.seconds <= first.seconds:
        return True
    return (last.bytes - first.bytes) / (last.seconds - first.seconds) > _SHAPED * steady


def agree(first: float, second: float, within: float = AGREEMENT) -> bool:
    """True if two rates differ by less than a part of the greater one."""
    return abs(first - second) <= within * max(first, second)


def is_steady(train: Train) -> bool:
    """True if enough of the train lies behind its begin, in bytes or in time."""
    if train.bytes >= SKIP_BYTES + _STEADY_BYTES:
        return _span(train) >= _WAKE_SECONDS
    return train.bytes >= SKIP_BYTES // 4 and _span(train) >= _STEADY_SECONDS


def _span(train: Train) -> float:
    """Seconds from the first to the last arrival, so without the round trip."""
    if len(train.arrivals) < 2:
        return 0.0
    return train.arrivals[-1].seconds - train.arrivals[0].seconds


def settled(trains: Sequence[Train], round_trip: float) -> bool:
    """True if the last two trains say the same and can be believed."""
    if len(trains) < 2 or not is_steady(trains[-1]):
        return False
    if _span(trains[-1]) < _STEADY_TRIPS * round_trip:
        return False
    one, two = (train_rate(train, round_trip) for train in trains[-2:])
    return agree(one, two)


def bandwidth(trains: Sequence[Train], round_trip: float) -> Bandwidth:
    """Returns the estimate of all trains of one direction; ValueError if there are none."""
    if not trains:
        raise ValueError("no train was sent")
    shaped = any(is_shaped(train, round_trip) for train in trains)
    rates = [train_rate(train, round_trip) for train in trains]
    rate, confidence = _unsettled(trains, rates, round_trip), Confidence.LOW
    if settled(trains, round_trip):
        # A bucket that is still emptying makes the earlier train the faster one.
        rate = rates[-1] if shaped else (rates[-1] + rates[-2]) / 2
        confidence = Confidence.HIGH
    elif len(rates) > 1 and agree(rates[-1], rates[-2], 0.25):
        confidence = Confidence.FAIR
    total = sum(train.bytes for train in trains)
    return Bandwidth(rate, confidence, shaped, len(trains), total)


def _unsettled(trains: Sequence[Train], rates: Sequence[float], round_trip: float) -> float:
    """The rate of trains that do not agree: of the long ones the middle, as each may have met a
    moment in which the machine was busy; where all are short, of the longest.
    """
    longest = max(range(len(trains)), key=lambda i: (trains[i].bytes, i))
    long = sorted(
        rate
        for train, rate in zip(trains, rates, strict=True)
        if 2 * train.bytes >= trains[longest].bytes and _span(train) >= _STEADY_TRIPS * round_trip
    )
    return long[(len(long) - 1) // 2] if long else rates[longest]


def next_train(
    trains: Sequence[Train], round_trip: float, budget: Budget, spent: float
) -> int | None:
    """Returns how many bytes the next train of a direction should have; None: it is enough.

    spent: seconds that the trains so far took.
    """
    if not trains:
        return min(FIRST_BYTES, budget.bytes)
    if settled(trains, round_trip):
        return None
    wanted = max(trains[-1].bytes * 2, 4 * FIRST_BYTES)
    # On a path of long round trips each doubling is faster than the last: count on the last rate.
    rate = max(train_rate(trains[-1], round_trip), 1.0)
    fits = int((budget.seconds - spent - round_trip) * rate)
    left = budget.bytes - sum(train.bytes for train in trains)
    size = min(wanted, fits, left)
    # A shorter train than the last says less than it did.
    return size if size >= max(_LEAST_BYTES, trains[-1].bytes * 3 // 4) else None
