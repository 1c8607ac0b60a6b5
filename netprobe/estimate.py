"""Statistics of measured times: round trips, and bandwidth from trains of bytes. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MIB = 1 << 20
# Two rates that differ by less than this part agree.
AGREEMENT = 0.10
# The first bytes of a train are not representative: the connection may still be opening, or a full
# token bucket may let them through.
SKIP_BYTES = MIB
# A train with this many bytes after its first ones can be trusted, unless it took less than
# _WAKE_SECONDS: then it measured how fast the system wakes processes.
_STEADY_BYTES = MIB
_STEADY_SECONDS = 0.02
_WAKE_SECONDS = 0.002
# Shorter trains only show how much a connection sends at first, and two of them would agree.
STEADY_TRIPS = 3
# A connection that opens doubles what it sends in each round trip. After this many it has grown
# from 14 KB to more than any path of that length can have in flight.
OPENING_TRIPS = 8
# A connection that paces itself sends in each round trip as much as in all before, and takes
# longer.
_PACED_TRIPS = 12
# First bytes faster than the rest by this factor came out of a full token bucket.
_SHAPED = 2.0
# A sender waits this long, plus a round trip, before it sends unacknowledged bytes again.
_TIMEOUT_SECONDS = 0.19


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A summary of round trips, in seconds. jitter: median difference between successive ones."""

    count: int
    minimum: float
    median: float
    p99: float
    jitter: float = 0.0


def summarise(seconds: Sequence[float]) -> RoundTrips:
    """Returns the summary; raises ValueError for an empty sequence."""
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
    """How many bytes of a train had arrived, and when, in seconds since the order was sent."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Train:
    """One transfer. seconds: from the first byte of the order to the last byte of the answer.

    down: the bytes come to this end, so the first one arrives a round trip after the order.
    """

    bytes: int
    seconds: float
    arrivals: tuple[Arrival, ...] = ()
    down: bool = False

    def begin(self, round_trip: float) -> float:
        """Returns when the train's first byte can have arrived."""
        return round_trip if self.down else 0.0


class Confidence(Enum):
    """How far an estimate can be trusted."""

    LOW = "low"
    FAIR = "fair"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """The bandwidth of one direction.

    shaped: the first bytes came faster than the rest, as out of a token bucket. trains, bytes: how
    many were used to measure it.
    """

    bytes_per_second: float
    confidence: Confidence
    shaped: bool
    trains: int
    bytes: int


def whole_rate(train: Train, round_trip: float) -> float:
    """Returns a train's bytes per second, without the round trip for ordering it."""
    return train.bytes / max(train.seconds - round_trip, train.seconds * 0.05, 1e-9)


def steady_rate(train: Train, round_trip: float) -> float | None:
    """Returns the bytes per second of a train after its first bytes, as the receiver saw them; None
    if the train is too short for that.

    Bytes that were late (after a lost packet, or because the receiver waited for a CPU) arrive
    together with many others. Measured from such a moment the rest looks too fast, so the slowest
    result counts. The measurement may start as soon as the connection has had time to open.
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
    """Returns the bytes per second of the fastest stretch of some long round trips. None if there
    is no such stretch, or if a token bucket may have paid for it.

    A sender that fills a short queue loses much at once, and everything after it is delayed for
    some round trips. The bytes before that show the path's rate. Each stretch ends at an arrival
    and starts where it looks slowest.
    """
    least, most = STEADY_TRIPS * round_trip, OPENING_TRIPS * round_trip
    # A shorter train does not show whether there is a token bucket.
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
    """Returns the best guess from one train, in bytes per second."""
    steady, whole = steady_rate(train, round_trip), whole_rate(train, round_trip)
    if steady is None:
        return whole
    # A path cannot be slower than what came over it, except for bytes that a token bucket had
    # saved.
    return steady if is_shaped(train, round_trip) else max(steady, whole)


def is_shaped(train: Train, round_trip: float = 0.0) -> bool:
    """Returns True if the first bytes came so much faster than the rest that a token bucket must
    have paid for them.

    Two other causes look alike. A connection that opens sends its first round trips in bursts; and
    bytes that waited for their receiver arrive at once, unless time is counted from when they can
    have arrived.
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
    """Returns the bytes per second of the last third of a train, for a connection that was
    opening until then. None if it had opened long before, if that third was too short, or if it
    arrived in a burst after a loss: an opening connection lets no round trip pass without bytes.
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
    """Returns True if, at its own rate, the whole train could have arrived while its receiver
    slept. The time of reading it then says nothing about the path.
    """
    rate = steady_rate(train, round_trip)
    if rate is None:
        return False
    first, last = train.arrivals[0], train.arrivals[-1]
    return (first.seconds - train.begin(round_trip)) * rate >= last.bytes - first.bytes


def is_stalled(train: Train, round_trip: float) -> bool:
    """Returns True if the sender waited to send lost bytes again. That takes so long that a
    short measurement is worthless.
    """
    times = [train.begin(round_trip), *(arrival.seconds for arrival in train.arrivals)]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    return max(pauses, default=0.0) >= _TIMEOUT_SECONDS + round_trip


def agree(first: float, second: float, within: float = AGREEMENT) -> bool:
    """Returns True if two rates differ by less than a part of the greater one."""
    return abs(first - second) <= within * max(first, second)


def is_steady(train: Train) -> bool:
    """Returns True if enough of the train follows its first bytes, in bytes or in time."""
    if train.bytes >= SKIP_BYTES + _STEADY_BYTES:
        return span(train) >= _WAKE_SECONDS
    return train.bytes >= SKIP_BYTES // 4 and span(train) >= _STEADY_SECONDS


def span(train: Train) -> float:
    """Returns the seconds from the first to the last arrival, which do not include the round
    trip.
    """
    if len(train.arrivals) < 2:
        return 0.0
    return train.arrivals[-1].seconds - train.arrivals[0].seconds


def settled(trains: Sequence[Train], round_trip: float) -> bool:
    """Returns True if the last two trains agree and can be trusted."""
    if len(trains) < 2 or not is_steady(trains[-1]):
        return False
    if span(trains[-1]) < STEADY_TRIPS * round_trip:
        return False
    if any(is_late(train, round_trip) for train in trains[-2:]):
        return False
    one, two = (train_rate(train, round_trip) for train in trains[-2:])
    return agree(one, two)


def bandwidth(trains: Sequence[Train], round_trip: float) -> Bandwidth:
    """Returns the estimate from all trains of one direction; raises ValueError if there are
    none.
    """
    if not trains:
        raise ValueError("no train was sent")
    total = sum(train.bytes for train in trains)
    count = len(trains)
    # If every train was stalled by losses, the path is as slow as it looks.
    stalled = [train for train in trains if is_stalled(train, round_trip)]
    trains = [train for train in trains if train not in stalled] or trains
    shaped = any(is_shaped(train, round_trip) for train in trains)
    rates = [train_rate(train, round_trip) for train in trains]
    confidence = Confidence.LOW
    if settled(trains, round_trip):
        # While a token bucket empties, the earlier train is too fast, so only the last one counts.
        rate = rates[-1] if shaped else (rates[-1] + rates[-2]) / 2
        confidence = Confidence.HIGH
    else:
        rate = _unsettled(trains, rates, round_trip)
        if len(rates) > 1 and agree(rates[-1], rates[-2], 0.25):
            confidence = Confidence.FAIR
            # A short train underestimates the rate, except for what a token bucket had saved.
            rate = rate if shaped else max(rate, min(rates[-2:]))
    # If all bytes went into the stalled train, the other trains were only small trials.
    rate = max(rate, *(stretch_rate(train, round_trip) or 0.0 for train in stalled), 0.0)
    return Bandwidth(rate, confidence, shaped, count, total)


def _unsettled(trains: Sequence[Train], rates: Sequence[float], round_trip: float) -> float:
    """Returns the rate of trains that do not agree: the median of the long ones, since each may
    have met a moment when the machine was busy; if all are short, the rate of the longest. If a
    connection was still opening, the end of each train counts.
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
