"""Measures one path: plan.py decides what to send next, C++ sends it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netprobe.estimate import MIB, Bandwidth, RoundTrips, Train, bandwidth, summarise
from netprobe.native import LIFE_SECONDS, Line
from netprobe.plan import FIRST_BYTES, Budget, next_train
from rgpu_common.closing import Closing
from rgpu_common.errors import RgpuError

if TYPE_CHECKING:
    from collections.abc import Callable


BATCH = 64
_WARM_UP = 3
_MESSAGES = 1024
_MESSAGE_BYTES = 64
_GRANTED_PART = 0.5
# The part of the total time that pings get.
_PING_PART = 0.2
# A measurement that takes longer than this many times its time, plus seconds, is given up.
_LIMIT_TIMES, _LIMIT_SECONDS = 3.0, 4.0


class AnotherServerError(RgpuError):
    """A path leads to another server than expected."""

    def __init__(self, uri: str, server: bytes) -> None:
        super().__init__(f"{uri} leads to another server")
        self.server = server


@dataclass(frozen=True, slots=True)
class ProbeBudget:
    """What measuring one path may cost.

    seconds: in total. A path with long round trips gets the time of at least `round_trips` of them,
    because fewer are not enough. bytes: per direction.
    """

    seconds: float = 0.1
    bytes: int = 64 * MIB
    pings: int = 60
    round_trips: int = 60
    timeout: float = 2.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is known about one path. Times in seconds, rates per second; error: why it is unknown.

    connect: until the transport was connected. handshake: until the server answered. server: which
    server answered; for a path that does not work, which one answered before (`Entry.after`).
    """

    uri: str
    kind: str = ""
    error: str = ""
    connect: float = 0.0
    handshake: float = 0.0
    round_trip: RoundTrips | None = None
    up: Bandwidth | None = None
    down: Bandwidth | None = None
    messages_per_second: float | None = None
    seconds: float = 0.0
    server: bytes = b""

    @property
    def works(self) -> bool:
        return not self.error and self.round_trip is not None


def measure(
    uri: str,
    budget: ProbeBudget | None = None,
    *,
    server: bytes = b"",
    through: str = "",
    progress: Callable[[str], None] | None = None,
) -> Measurement:
    """Measures a path; the result of a path that does not work has an `error`.

    server: the server that must answer. through: the address to connect to if a process of this
    machine carries the path. progress: called with what is measured next.
    """
    budget = budget or ProbeBudget()
    say = progress or (lambda _: None)
    started = time.perf_counter()
    try:
        say("handshake")
        with open_path(uri, budget.timeout, server=server, through=through) as opened:
            say("round trip")
            total = max(budget.seconds, budget.round_trips * opened.first)
            # Not more than a part of the time that the responder gives a probe.
            total = min(total, opened.granted * _GRANTED_PART)
            opened.limit(_LIMIT_TIMES * total + _LIMIT_SECONDS)
            opened.ping(budget.pings, total * _PING_PART)
            # Opening the path has used a part of the time; with long round trips, most of it.
            left = min(total - opened.elapsed, total * (1 - _PING_PART))
            return opened.measure(max(left, total / 2), budget.bytes, say)
    except RgpuError as error:
        return failed(uri, error, time.perf_counter() - started)


def failed(uri: str, error: RgpuError, seconds: float = 0.0) -> Measurement:
    """Returns the measurement of a path that does not work."""
    server = error.server if isinstance(error, AnotherServerError) else b""
    return Measurement(uri, error=str(error), seconds=seconds, server=server)


def open_path(
    uri: str,
    timeout: float,
    *,
    server: bytes = b"",
    through: str = "",
    life: float = LIFE_SECONDS,
) -> OpenPath:
    """Connects and takes the first round trips; arguments as for `measure`. life: seconds for the
    whole probe.

    Raises:
        RgpuError: the path does not work, or leads to another server.
    """
    line = Line(uri, timeout, life, through)
    try:
        if server and line.offer.server != server:
            raise AnotherServerError(uri, line.offer.server)
        return OpenPath(uri, line, line.ping(_WARM_UP, 1.0))
    except RgpuError:
        line.close()
        raise


class OpenPath(Closing):
    """A path with an open probe."""

    def __init__(self, uri: str, line: Line, trips: list[float]) -> None:
        self.uri = uri
        self._line = line
        self._trips = trips
        self._started = time.perf_counter() - line.open_seconds - sum(trips)

    def close(self) -> None:
        """Closes the connection."""
        self._line.close()

    @property
    def first(self) -> float:
        """The shortest round trip so far, in seconds."""
        return min(self._trips)

    @property
    def granted(self) -> float:
        """The seconds that the responder gives a probe in total."""
        return self._line.offer.seconds

    @property
    def elapsed(self) -> float:
        """The seconds since opening began."""
        return time.perf_counter() - self._started

    def limit(self, seconds: float) -> None:
        """Bounds the time for everything from now on."""
        self._line.limit(seconds)

    def ping(self, count: int, seconds: float) -> None:
        """Measures the round trip; drops the first round trips, which only warmed up the path."""
        self._trips = self._line.ping(count, seconds) or self._trips

    def measure(
        self, seconds: float, size: int, say: Callable[[str], None] = lambda _: None
    ) -> Measurement:
        """Measures messages and bandwidth within `seconds` and `size` bytes each way."""
        line, times = self._line, summarise(self._trips)
        granted = line.offer.bytes // 4
        if granted < FIRST_BYTES:
            raise RgpuError(f"{self.uri}: the responder grants too few bytes to measure anything")
        say("messages")
        rate = _message_rate(line, times.minimum, seconds * 0.12)
        each = Budget(seconds * 0.44, min(size, granted))
        say("bandwidth up")
        up = _bandwidth(line, times.minimum, each, down=False)
        say("bandwidth down")
        down = _bandwidth(line, times.minimum, each, down=True)
        # The few bytes of the messages pass a shaped link faster than more bytes would.
        rate = min(rate, up.bytes_per_second / _MESSAGE_BYTES)
        return Measurement(
            self.uri, line.kind, "", line.connect_seconds, line.open_seconds, times, up, down,
            rate, self.elapsed, line.offer.server,
        )  # fmt: skip


def _bandwidth(line: Line, round_trip: float, budget: Budget, *, down: bool) -> Bandwidth:
    trains: list[Train] = []
    started = time.perf_counter()
    while True:
        spent = time.perf_counter() - started
        order = next_train(trains, round_trip, budget, spent)
        if order is None:
            return bandwidth(trains, round_trip)
        trains.append(line.train(order.bytes, down=down, seconds=order.seconds))


def _message_rate(line: Line, round_trip: float, seconds: float) -> float:
    """Measures small messages one way, like a program's launches; doubles their number while
    there is time.
    """
    messages, best = _MESSAGES, 0.0
    stop = time.perf_counter() + seconds
    while True:
        took = line.count(messages, BATCH)
        best = max(best, messages / max(took - round_trip, took * 0.05, 1e-9))
        if time.perf_counter() + 2 * took > stop or messages >= 1 << 16:
            return best
        messages *= 2
