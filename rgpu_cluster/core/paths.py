"""What the network between a client and a card costs.

Paths are measured by class, not by pair of nodes: from a client's rack and network interface to a
card's rack and network interface. netprobe's formula (netprobe/cost.py) gives the time that a
program waits for the network for each second of device time; here in integers, in ppm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.core.node import Site
    from rgpu_cluster.core.request import Client, Profile

NS = 1_000_000_000
# An estimate without a measurement is raised by a half, and an old measurement by a half for each
# half hour of its age, up to twice: an unknown path must not win against a known equal one.
UNMEASURED_PPM = 500_000
AGE_SECONDS = 1800
MOST_WIDENING_PPM = 1_000_000
AGE_STEP_SECONDS = 30
# No more is predicted: it decides nothing, and messages have 64 bits.
MOST_WAITING_PPM = 1_000_000_000 * PPM
# Of more measured classes the one that was measured longest ago is forgotten.
MOST_MEASURED = 1 << 16


class End(NamedTuple):
    """One end of a path."""

    rack: str
    nic: str


class Figures(Struct, frozen=True):
    """What netprobe measured: times in ns, rates in bytes and messages a second."""

    round_trip_ns: int
    jitter_ns: int
    up_rate: int
    down_rate: int
    message_rate: int
    transport: str = "tcp"
    age_seconds: int = 0


# Paths of the same host, rack and pool for which nothing was measured or declared.
SAME_RACK = Figures(60_000, 20_000, 1_100_000_000, 1_100_000_000, 1_000_000)
OTHER_RACK = Figures(250_000, 80_000, 600_000_000, 600_000_000, 1_000_000)

# Figures so many times worse than `OTHER_RACK` are doubtful: the machines may have been too busy to
# measure. If that comes out so often in a row, it is believed.
DOUBTFUL_TIMES = 100
MOST_DOUBTS = 3


def is_doubtful(figures: Figures) -> bool:
    """Returns whether figures may tell more of busy machines than of the network."""
    slowest = min(figures.up_rate, figures.down_rate)
    return (
        slowest * DOUBTFUL_TIMES < OTHER_RACK.up_rate
        or figures.round_trip_ns > DOUBTFUL_TIMES * OTHER_RACK.round_trip_ns
    )


class Predicted(Struct, frozen=True):
    """The cost of a path for a program.

    slowdown_ppm: time spent on the network for each second of device time.
    measured: False if no measurement of exactly this class of paths exists, or it is doubted.
    transport: "" if that is not known either.
    """

    slowdown_ppm: int
    measured: bool
    transport: str


HERE = Predicted(0, True, "shm")


def waiting_ppm(figures: Figures, profile: Profile) -> int:
    """Returns the time on the network for each second of device time, in ppm of it.

    syncs x (round trip + jitter / 2) + calls / message rate + bytes up / rate + bytes down / rate.
    """
    trip = figures.round_trip_ns + figures.jitter_ns // 2
    spent = (
        profile.syncs * trip
        + profile.calls * NS // max(figures.message_rate, 1)
        + profile.up_bytes * NS // max(figures.up_rate, 1)
        + profile.down_bytes * NS // max(figures.down_rate, 1)
    )
    return min(spent * PPM // NS, MOST_WAITING_PPM)


def widened(ppm: int, by_ppm: int) -> int:
    """Returns an estimate raised by so many ppm of itself."""
    return ppm + ppm * by_ppm // PPM


class Paths:
    """The figures of the classes of paths, measured by agents or declared by the operator."""

    def __init__(
        self,
        measured: Mapping[tuple[End, End], Figures] | None = None,
        declared: Mapping[tuple[End, End], Figures] | None = None,
    ) -> None:
        self._measured = dict(measured or {})
        self._declared = dict(declared or {})
        # How many doubtful figures of a class have come in a row.
        self._doubts: dict[tuple[End, End], int] = {}
        self._aged_ns = 0

    def learn(self, client: End, server: End, figures: Figures) -> None:
        """Takes a measurement; it replaces an earlier one of the same class."""
        self._measured.pop((client, server), None)
        self._measured[client, server] = figures
        doubts = self._doubts.pop((client, server), 0)
        if is_doubtful(figures):
            self._doubts[client, server] = min(doubts + 1, MOST_DOUBTS)
        if len(self._measured) > MOST_MEASURED:
            oldest = next(iter(self._measured))
            del self._measured[oldest]
            self._doubts.pop(oldest, None)

    def doubted(self, ends: tuple[End, End]) -> bool:
        """Returns whether the figures of a class are doubtful, and have not been confirmed."""
        return 0 < self._doubts.get(ends, 0) < MOST_DOUBTS

    def grow_older(self, now_ns: int) -> None:
        """Counts up the ages of all measurements. now_ns: of a clock that never goes back."""
        passed = (now_ns - self._aged_ns) // NS
        if passed < AGE_STEP_SECONDS:
            return
        self._aged_ns = now_ns
        for ends, figures in self._measured.items():
            self._measured[ends] = replace(figures, age_seconds=figures.age_seconds + passed)

    def measured(self) -> Mapping[tuple[End, End], Figures]:
        """Returns the measured classes of paths."""
        return self._measured

    def predict(self, client: Client, site: Site, profile: Profile) -> Predicted:
        """Returns what the path from a client to a site is predicted to cost.

        A class without a measurement, or with one that is doubted, takes the declared figures, else
        the median of the measured classes between the same kind of places (one rack, or two), else
        a constant; each raised.
        """
        ends = End(client.rack, client.nic), End(site.rack, site.nic)
        known = self._measured.get(ends)
        if known is not None and not self.doubted(ends):
            age = min(known.age_seconds * PPM // (2 * AGE_SECONDS), MOST_WIDENING_PPM)
            return Predicted(widened(waiting_ppm(known, profile), age), True, known.transport)
        likely = self._declared.get(ends) or self._median(ends, profile)
        ppm = widened(waiting_ppm(likely, profile), UNMEASURED_PPM)
        return Predicted(ppm, False, "")

    def _median(self, ends: tuple[End, End], profile: Profile) -> Figures:
        same_rack = ends[0].rack == ends[1].rack
        alike = [
            figures
            for (client, server), figures in self._measured.items()
            if (client.rack == server.rack) == same_rack and not self.doubted((client, server))
        ]
        if not alike:
            return SAME_RACK if same_rack else OTHER_RACK
        alike.sort(key=lambda figures: waiting_ppm(figures, profile))
        return alike[len(alike) // 2]
