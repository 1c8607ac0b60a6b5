"""Trains as if they had been sent, over links whose truth is known."""

from __future__ import annotations

from itertools import pairwise

from netprobe.estimate import Arrival, Train
from netprobe.plan import Budget, Order, next_train

SEGMENT = 1448


def link(size: int, rate: float, trip: float, *, line: float = 0.0, burst: int = 0) -> Train:
    """Returns a train over a link of `rate` whose token bucket passes `burst` bytes at the rate
    `line`.
    """
    step = max(size // 60, 1)

    def when(count: int) -> float:
        fast = min(count, burst)
        # While the bucket empties it is filled as well.
        return trip / 2 + (fast / line if line else 0.0) + (count - fast) / rate

    counts = [*range(step, size, step), size]
    arrivals = tuple(Arrival(count, trip / 2 + when(count)) for count in counts)
    return Train(size, when(size) + trip / 2, arrivals, down=True)


def curve(points: list[tuple[int, float]], pieces: int = 64) -> tuple[Arrival, ...]:
    """Arrivals on straight lines between points of bytes and seconds."""
    step = points[-1][0] // pieces
    return tuple(
        Arrival(count, begin + (end - begin) * (count - low) / (high - low))
        for (low, begin), (high, end) in pairwise([(0, 0.0), *points])
        for count in range(low - low % step + step, high + 1, step)
    )


class Opening:
    """A path whose connection paces itself: each round trip it sends twice as fast as in the one
    before, from ten segments on, until the path carries no more.
    """

    def __init__(self, rate: float, trip: float) -> None:
        self.rate, self.trip = rate, trip
        self._pace = 10 * SEGMENT / trip

    def send(self, order: Order) -> Train:
        """Returns a train as it arrives here, with arrivals a twentieth of a round trip apart."""
        step, sent, now = self.trip / 20, 0.0, 0.0
        arrivals: list[Arrival] = []
        while sent < order.bytes and now < order.seconds:
            now += step
            sent = min(sent + self._pace * step, order.bytes)
            self._pace = min(self._pace * 2 ** (1 / 20), self.rate)
            arrivals.append(Arrival(int(sent), now + self.trip))
        return Train(int(sent), arrivals[-1].seconds, tuple(arrivals), down=True)

    def probe(self, budget: Budget) -> tuple[list[Train], float]:
        """Returns the trains that a prober sends over this path, and the seconds that they took."""
        trains: list[Train] = []
        spent = 0.0
        while (order := next_train(trains, self.trip, budget, spent)) is not None:
            trains.append(self.send(order))
            spent += trains[-1].seconds
        return trains, spent
