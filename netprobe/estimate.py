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
STEADY_TRIPS = 3
# A connection that opens slowly doubles what it sends in each of so many round trips, from 14 KB to
# more than any path of its length has under way.
OPENING_TRIPS = 8
# One that paces itself sends as much in each of them as in all before, and takes longer.
_PACED_TRIPS = 12
# A begin so much faster than the rest has been paid for by a bucket that was full.
_SHAPED = 2.0
# A sender waits that long, and a round trip, before it sends again what nobody acknowledged.
_TIMEOUT_SECONDS = 0.19


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
    """One transfer.  seconds: from the first byte of the order to the last of the answer.

    down: to here, so that its bytes come a round trip after the order, and not with it.
    """

    bytes: int
    seconds: float
    arrivals: tuple[Arrival, ...] = ()
    down: bool = False

    def begin(self, round_trip: float) -> float:
        """When its first byte can have come."""
        return round_trip if self.down else 0.0


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


def whole_rate(train: Train, round_trip: float) -> float:
    """Returns the bytes per second of a train, less the round trip that ordering it took."""
    return train.bytes / max(train.seconds - round_trip, train.seconds * 0.05, 1e-9)


def steady_rate(train: Train, round_trip: float) -> float | None:
    """Returns the bytes per second behind the begin of a train, as its receiver saw them; None if
    it is too short to have anything behind its begin.

    What came late, since a packet was lost before it or the receiver had to wait for a CPU, came
    with much else at once: counted from there the rest looks too fast, so the slowest count is
    right.  It may begin as soon as the connection has had the time to open.
    """
    skip = max(train.bytes // 4, min(train.bytes // 2, SKIP_BYTES))
    open_at = train.begin(round_trip) + OPENING_TRIPS * round_trip
    behind = [a for a in train.arrivals if a.bytes >= skip or a.seconds >= open_at]
    if len(behind) < 3:
        return None
    last = behind[-1]
    rates = [
        (last.bytes - first.bytes) / (last.seconds - first.seconds)
        for first in behind[: max(len(behind) * 2 // 3, 1)]
        if last.seconds > first.seconds and last.bytes > first.bytes
    ]
    return min(rates) if rates else None


def stretch_rate(train: Train, round_trip: float) -> float | None:
    """Returns the bytes per second of the fastest stretch of some long round trips; None if there
    is none, or a bucket may have paid for it.

    Who fills a short queue loses much at once, and all that follows waits for it, for some round
    trips.  The path carries what came before, each end counted from where it looks slowest.
    """
    least, most = STEADY_TRIPS * round_trip, OPENING_TRIPS * round_trip
    # A shorter train does not tell a bucket.
    if least < _STEADY_SECONDS or span(train) < most or is_shaped(train, round_trip):
        return None
    rates = []
    for i, end in enumerate(train.arrivals):
        before = train.arrivals[:i]
        begins = [a for a in before if least <= end.seconds - a.seconds <= most]
        if begins:
            rates.append(min((end.bytes - a.bytes) / (end.seconds - a.seconds) for a in begins))
    return max(rates, default=None)


def train_rate(train: Train, round_trip: float) -> float:
    """Returns the best guess that one train allows, in bytes per second."""
    steady, whole = steady_rate(train, round_trip), whole_rate(train, round_trip)
    if steady is None:
        return whole
    # No path carries less than what came over it, but for what a bucket had saved up.
    return steady if is_shaped(train, round_trip) else max(steady, whole)


def is_shaped(train: Train, round_trip: float = 0.0) -> bool:
    """True if the begin came so much faster than the rest that a bucket must have paid for it.

    What a connection that opens sends in its first round trips comes in as many heaps, and looks
    like that; so does what waited for its receiver, unless counted from when it can have come.
    """
    if span(train) < max(OPENING_TRIPS * round_trip, _WAKE_SECONDS):
        return False
    steady = steady_rate(train, round_trip)
    begin = [a for a in train.arrivals if a.bytes <= max(train.bytes // 4, 1)]
    if steady is None or len(begin) < 3:
        return False
    origin = Arrival(0, train.begin(round_trip))
    first, last = min(origin, begin[0], key=lambda a: a.seconds), begin[-1]
    took = last.seconds - first.seconds
    return took <= 0 or (last.bytes - first.bytes) / took > _SHAPED * steady


def last_rate(train: Train, round_trip: float) -> float | None:
    """Returns the bytes per second of the last third of a train: what a connection got that was
    opening until then.  None if it had opened long before, or that third was over too soon, or came
    in a heap behind what was lost: a connection that only opens lets no round trip pass.
    """
    pauses = [b.seconds - a.seconds for a, b in itertools.pairwise(train.arrivals)]
    if span(train) >= _PACED_TRIPS * round_trip or max(pauses, default=0.0) >= round_trip:
        return None
    rest = [arrival for arrival in train.arrivals if 3 * arrival.bytes >= 2 * train.bytes]
    if len(rest) < 3 or rest[-1].seconds - rest[0].seconds < max(round_trip / 2, _WAKE_SECONDS):
        return None
    last = rest[-1]
    rates = [
        (last.bytes - first.bytes) / (last.seconds - first.seconds)
        for first in rest[: len(rest) // 2]
        if last.seconds > first.seconds and last.bytes > first.bytes
    ]
    return min(rates, default=None)


def is_late(train: Train, round_trip: float) -> bool:
    """True if at its own rate all of it could have come while its receiver slept: how fast it was
    read then says nothing of the path.
    """
    rate = steady_rate(train, round_trip)
    if rate is None:
        return False
    first, last = train.arrivals[0], train.arrivals[-1]
    return (first.seconds - train.begin(round_trip)) * rate >= last.bytes - first.bytes


def is_stalled(train: Train, round_trip: float) -> bool:
    """True if its sender waited to send lost bytes again: so long that all the rest of a short
    measurement counts for nothing.
    """
    times = [train.begin(round_trip), *(arrival.seconds for arrival in train.arrivals)]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    return max(pauses, default=0.0) >= _TIMEOUT_SECONDS + round_trip


def agree(first: float, second: float, within: float = AGREEMENT) -> bool:
    """True if two rates differ by less than a part of the greater one."""
    return abs(first - second) <= within * max(first, second)


def is_steady(train: Train) -> bool:
    """True if enough of the train lies behind its begin, in bytes or in time."""
    if train.bytes >= SKIP_BYTES + _STEADY_BYTES:
        return span(train) >= _WAKE_SECONDS
    return train.bytes >= SKIP_BYTES // 4 and span(train) >= _STEADY_SECONDS


def span(train: Train) -> float:
    """Seconds from the first to the last arrival, so without the round trip."""
    if len(train.arrivals) < 2:
        return 0.0
    return train.arrivals[-1].seconds - train.arrivals[0].seconds


def settled(trains: Sequence[Train], round_trip: float) -> bool:
    """True if the last two trains say the same and can be believed."""
    if len(trains) < 2 or not is_steady(trains[-1]):
        return False
    if span(trains[-1]) < STEADY_TRIPS * round_trip:
        return False
    if any(is_late(train, round_trip) for train in trains[-2:]):
        return False
    one, two = (train_rate(train, round_trip) for train in trains[-2:])
    return agree(one, two)


def bandwidth(trains: Sequence[Train], round_trip: float) -> Bandwidth:
    """Returns the estimate of all trains of one direction; ValueError if there are none."""
    if not trains:
        raise ValueError("no train was sent")
    total = sum(train.bytes for train in trains)
    count = len(trains)
    # A path that only loses is as slow as it looks.
    stalled = [train for train in trains if is_stalled(train, round_trip)]
    trains = [train for train in trains if train not in stalled] or trains
    shaped = any(is_shaped(train, round_trip) for train in trains)
    rates = [train_rate(train, round_trip) for train in trains]
    confidence = Confidence.LOW
    if settled(trains, round_trip):
        # A bucket that is still emptying makes the earlier train the faster one.
        rate = rates[-1] if shaped else (rates[-1] + rates[-2]) / 2
        confidence = Confidence.HIGH
    else:
        rate = _unsettled(trains, rates, round_trip)
        if len(rates) > 1 and agree(rates[-1], rates[-2], 0.25):
            confidence = Confidence.FAIR
            # What is over too soon says too little, but for what a bucket had saved up.
            rate = rate if shaped else max(rate, min(rates[-2:]))
    # Where all bytes went into the train that waited, the others were only to try.
    rate = max(rate, *(stretch_rate(train, round_trip) or 0.0 for train in stalled), 0.0)
    return Bandwidth(rate, confidence, shaped, count, total)


def _unsettled(trains: Sequence[Train], rates: Sequence[float], round_trip: float) -> float:
    """The rate of trains that do not agree: of the long ones the middle, as each may have met a
    moment in which the machine was busy; where all are short, of the longest.  A connection that
    was still opening is judged by how each train ended.
    """
    longest = max(range(len(trains)), key=lambda i: (trains[i].bytes, i))
    rates = [
        max(rate, last_rate(train, round_trip) or 0.0, stretch_rate(train, round_trip) or 0.0)
        for train, rate in zip(trains, rates, strict=True)
    ]
    long = [
        (train, rate)
        for train, rate in zip(trains, rates, strict=True)
        if 2 * train.bytes >= trains[longest].bytes and span(train) >= STEADY_TRIPS * round_trip
    ]
    on_time = [(train, rate) for train, rate in long if not is_late(train, round_trip)]
    middle = sorted(rate for _, rate in on_time or long)
    return middle[(len(middle) - 1) // 2] if middle else rates[longest]
