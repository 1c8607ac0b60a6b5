"""Measurements as if they had been made."""

from __future__ import annotations

from netprobe.estimate import Bandwidth, Confidence, RoundTrips
from netprobe.prober import Measurement

SERVER = bytes(range(16))


def path(uri: str, trip: float = 0.0005, rate: float = 125e6, messages: float = 1e6) -> Measurement:
    """A path with a round trip in seconds, bytes per second both ways, and messages per second."""
    width = Bandwidth(rate, Confidence.HIGH, shaped=False, trains=5, bytes=1 << 22)
    kind = uri.partition(":")[0]
    times = RoundTrips(60, trip, trip, trip, 0.0)
    return Measurement(uri, kind, "", trip, 2 * trip, times, width, width, messages, 0.1, SERVER)


def broken(uri: str, error: str = "nothing listens there") -> Measurement:
    """A path that does not work."""
    return Measurement(uri, error=error)
