"""Which path to use, and when to change it. Pure: takes measurements, returns decisions with
reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from netprobe.cost import MIXED, Workload, cost
from netprobe.schemes import rank_of, scheme_of
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.prober import Measurement

# Paths whose cost is within this part of the best cost are not clearly different.
CLOSE = 0.10


@dataclass(frozen=True, slots=True)
class Ranked:
    """A path with the seconds that the workload is expected to take over it."""

    path: Measurement
    seconds: float

    @property
    def uri(self) -> str:
        return self.path.uri


class Choice(NamedTuple):
    """ranked: the paths that work, best first.  reason: a sentence."""

    uri: str
    reason: str
    ranked: tuple[Ranked, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(one.uri for one in self.ranked if one.uri != self.uri)


def rank(paths: Sequence[Measurement], workload: Workload = MIXED) -> list[Ranked]:
    """Returns the paths that work, best first. Preference decides among those close to the best."""
    costs = [Ranked(path, cost(path, workload).total) for path in paths if path.works]
    costs.sort(key=lambda one: one.seconds)
    if not costs:
        return []
    near = costs[0].seconds * (1 + CLOSE)
    close = [one for one in costs if one.seconds <= near]
    close.sort(key=lambda one: (rank_of(one.uri), one.seconds))
    return [*close, *costs[len(close) :]]


def choose(paths: Sequence[Measurement], workload: Workload = MIXED) -> Choice | None:
    """Returns the best path; None if none works."""
    ranked = rank(paths, workload)
    if not ranked:
        return None
    best = ranked[0]
    if len(ranked) == 1:
        return Choice(best.uri, _only(len(paths) - 1), tuple(ranked))
    return Choice(best.uri, _better(best, ranked[1], workload), tuple(ranked))


def _only(failed: int) -> str:
    return (
        f"it is the only one of {failed + 1} paths that works"
        if failed
        else ("it is the only path")
    )


def _better(best: Ranked, next_one: Ranked, workload: Workload) -> str:
    expected = f"a {workload.name} step is expected to take {format_seconds(best.seconds)}"
    if next_one.seconds <= best.seconds * (1 + CLOSE):
        return (
            f"{expected}, about as long as over {next_one.uri}, and "
            f"{scheme_of(best.uri)} is preferred between equals"
            if scheme_of(best.uri) != scheme_of(next_one.uri)
            else f"{expected}, about as long as over {next_one.uri}"
        )
    times = next_one.seconds / best.seconds
    most = cost(next_one.path, workload).most
    return f"{expected}, over {next_one.uri} {times:.1f} times as long, most of it for {most}"


@dataclass(frozen=True, slots=True)
class Move:
    """What to do now: change to `uri`, or stay (None); the reason is a sentence."""

    uri: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Inertia:
    """How much better another path must be, and how often in a row, before a session moves.

    margin: the session moves when a step takes 1 + margin times as long over its own path.
    """

    margin: float = 0.25
    times: int = 3

    @property
    def least(self) -> float:
        """The part of the time that another path must save: 0.2 for a margin of 0.25."""
        return 1 - 1 / (1 + self.margin)


@dataclass(slots=True)
class Chooser:
    """Counts how often another path was better, so that noise in measurements moves no session."""

    current: str
    inertia: Inertia = field(default_factory=Inertia)
    challenger: str = ""
    wins: int = 0

    def observe(self, paths: Sequence[Measurement], workload: Workload) -> Move:
        """Takes one round of measurements and returns what to do; after a move call `moved`."""
        known: Mapping[str, Measurement] = {path.uri: path for path in paths}
        ranked = rank(paths, workload)
        mine = known.get(self.current)
        if not ranked:
            return self._stay("no path works now")
        best = ranked[0]
        if mine is None or not mine.works:
            self.wins = 0
            why = mine.error if mine is not None and mine.error else "it was not measured"
            return Move(best.uri, f"{self.current} does not work any more: {why}")
        now = cost(mine, workload).total
        if best.uri == self.current or best.seconds * (1 + self.inertia.margin) > now:
            least = f"{self.inertia.least:.0%}"
            return self._stay(f"no path takes {least} less time than {self.current}")
        self.wins = self.wins + 1 if best.uri == self.challenger else 1
        self.challenger = best.uri
        better = (
            f"a {workload.name} step takes {format_seconds(best.seconds)} over {best.uri} and "
            f"{format_seconds(now)} over {self.current}"
        )
        if self.wins < self.inertia.times:
            return Move(None, f"{better}; measured so {self.wins} of {self.inertia.times} times")
        return Move(best.uri, f"{better}, {self.wins} times in a row")

    def moved(self, uri: str) -> None:
        """Notes that the session uses `uri` now."""
        self.current, self.challenger, self.wins = uri, "", 0

    def _stay(self, reason: str) -> Move:
        self.challenger, self.wins = "", 0
        return Move(None, reason)
