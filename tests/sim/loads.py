"""The behaviour of applications: how many kernels each has queued, and how long the next one is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.device import Device
    from sim.worker import Worker

Duration = int | Callable[[], int]


class Load:
    """queued: kernels that the application has launched and the worker has not released."""

    def __init__(self, kernel: Duration) -> None:
        self.kernel = kernel
        self.queued = 0
        self.device: Device
        self.worker: Worker

    def start(self, device: Device, worker: Worker) -> None:
        self.device, self.worker = device, worker
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def take(self, now: int) -> int:
        self.queued -= 1
        return self.kernel if isinstance(self.kernel, int) else self.kernel()

    def done(self, now: int) -> None:
        """A kernel has completed."""

    def add(self, count: int) -> None:
        self.queued += count
        self.worker.poke()


class Saturated(Load):
    """Never runs out of work; `pauses` are (from, to) in which it launches nothing."""

    def __init__(self, kernel: Duration, pauses: list[tuple[int, int]] | None = None) -> None:
        super().__init__(kernel)
        self.pauses = pauses or []

    def begin(self) -> None:
        for start, end in self.pauses:
            self.device.at(start, self._set, 0)
            self.device.at(end, self._set, 1)
        if not any(start <= self.device.now < end for start, end in self.pauses):
            self._set(1)

    def _set(self, queued: int) -> None:
        self.queued = queued
        if queued:
            self.worker.poke()

    def take(self, now: int) -> int:
        return self.kernel if isinstance(self.kernel, int) else self.kernel()


class Once(Load):
    """Launches `count` kernels, and never another."""

    def __init__(self, kernel: Duration, count: int = 1) -> None:
        super().__init__(kernel)
        self.count = count

    def begin(self) -> None:
        self.add(self.count)


class Syncing(Load):
    """Launches `count` kernels, waits for them, works `gap` on the host, and again."""

    def __init__(self, kernel: Duration, gap: int, count: int = 1) -> None:
        super().__init__(kernel)
        self.gap, self.count = gap, count
        self.open = 0

    def begin(self) -> None:
        self.open = self.count
        self.add(self.count)

    def done(self, now: int) -> None:
        self.open -= 1
        if self.open == 0:
            self.device.at(now + self.gap, self.begin)


class Bursty(Load):
    """Every `period` a burst of `count` kernels arrives; notes how long each burst takes."""

    def __init__(self, kernel: int, count: int, period: int, first: int = 0) -> None:
        super().__init__(kernel)
        self.count, self.period, self.first = count, period, first
        self.arrivals: list[tuple[int, int]] = []
        self.finished = 0
        self.launched = 0
        self.times: list[int] = []

    def begin(self) -> None:
        self.device.at(self.device.now + self.first, self._burst)

    def _burst(self) -> None:
        self.launched += self.count
        self.arrivals.append((self.launched, self.device.now))
        self.device.at(self.device.now + self.period, self._burst)
        self.add(self.count)

    def done(self, now: int) -> None:
        self.finished += 1
        while self.arrivals and self.arrivals[0][0] <= self.finished:
            self.times.append(now - self.arrivals.pop(0)[1])


def mixed(seed: int, low: int, high: int) -> Callable[[], int]:
    """Unpredictable kernels, log-uniform between low and high."""
    rng = random.Random(seed)
    ratio = high / low
    return lambda: int(low * ratio ** rng.random())
