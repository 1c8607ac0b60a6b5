"""Decides when to measure again and when to move. Pure: events in, actions out; no clock,
no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from netprobe.cost import MIXED, Workload, profile
from rgpu_client.session.pacing import MOVES, pace_seconds
from rgpu_client.variables import flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.choice import Chooser
    from netprobe.prober import Measurement

# With less work than this between two answers the workload of the program is not known.
_LEAST_WORK = 20.0
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Times between the agent's actions, in seconds.

    ask: between two questions for counters. measure: between two measurements as a rule. follow:
    between two measurements while another path seems to be better. least: between any two.
    """

    ask: float = 5.0
    measure: float = 60.0
    follow: float = 5.0
    least: float = 2.0
    # A session that does less than this part of its earlier work has degraded.
    degraded: float = 0.5


def pace_of(environment: Mapping[str, str]) -> Pace:
    """Returns the times for RGPU_AGENT_SECONDS; UsageError."""
    usual, seconds = Pace(), pace_seconds(environment)
    if seconds is None:
        return usual
    quick = {name: min(getattr(usual, name), seconds) for name in ("ask", "follow", "least")}
    return replace(usual, measure=seconds, **quick)


def may_move(environment: Mapping[str, str]) -> bool:
    """True if running sessions may be told to move: RGPU_MOVE is not 0; UsageError."""
    return flag(environment, MOVES) is not False


@dataclass(frozen=True, slots=True)
class Stats:
    """A session's counters since it began, and its path."""

    calls: int
    bulk_bytes: int
    syncs: int
    path: str = ""
    up_bytes: int | None = None
    down_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask every session for its counters."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure all paths; `reason` is the end of a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Tell sessions to change to a path."""

    uri: str
    reason: str


Action = Ask | Measure | MoveTo


def parse_stats(text: str) -> Stats | None:
    """Returns the counters of `STATS calls=N bulk_bytes=N syncs=N path=URI`; None for any other
    message. Unknown words are ignored.
    """
    head, _, rest = text.partition(" ")
    if head != "STATS":
        return None
    words = dict(word.partition("=")[::2] for word in rest.split(" ") if "=" in word)

    def number(name: str) -> int | None:
        value = words.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None

    calls, bulk, syncs = number("calls"), number("bulk_bytes"), number("syncs")
    if calls is None or bulk is None or syncs is None:
        return None
    return Stats(calls, bulk, syncs, words.get("path", ""), number("up_bytes"),
                 number("down_bytes"))  # fmt: skip


@dataclass(slots=True)
class _Session:
    last: Stats | None = None
    at: float = 0.0
    # The work done per second, as a moving average.
    usual: float = 0.0


@dataclass(slots=True)
class Watcher:
    """The state of all sessions of one program tree, which usually share one path."""

    chooser: Chooser
    pace: Pace = field(default_factory=Pace)
    workload: Workload = MIXED
    sessions: dict[int, _Session] = field(default_factory=dict)
    asked_at: float | None = None
    measured_at: float | None = None
    wanted: str = ""

    def tick(self, now: float) -> list[Action]:
        """Returns the actions that are due now."""
        actions: list[Action] = []
        if self.sessions and self._due(self.asked_at, now, self.pace.ask):
            self.asked_at = now
            actions.append(Ask())
        if self.wanted and self._due(self.measured_at, now, self.pace.least):
            actions.append(self._measure(now, self.wanted))
        elif self.chooser.challenger and self._due(self.measured_at, now, self.pace.follow):
            actions.append(self._measure(now, "another path seems to be better"))
        elif self._due(self.measured_at, now, self.pace.measure):
            actions.append(self._measure(now, "it is time again"))
        return actions

    def opened(self, session: int) -> None:
        """A session has connected to the agent."""
        self.sessions[session] = _Session()

    def closed(self, session: int) -> None:
        """A session has disconnected."""
        self.sessions.pop(session, None)

    def said(self, session: int, stats: Stats, now: float) -> None:
        """A session has sent its counters."""
        mine = self.sessions.get(session)
        if mine is None:
            return
        before, since = mine.last, now - mine.at
        mine.last, mine.at = stats, now
        if stats.path and stats.path != self.chooser.current:
            self.chooser.moved(stats.path)
        if before is None or since <= 0 or stats.calls < before.calls:
            return
        self._learn(mine, _difference(before, stats), since)

    def measured(self, paths: Sequence[Measurement]) -> list[Action]:
        """The measurement that was asked for is complete."""
        move = self.chooser.observe(paths, self.workload)
        if move.uri is None:
            return []
        self.chooser.wins = 0  # so a session that cannot move is not told to at every measurement
        return [MoveTo(move.uri, move.reason)]

    def next_at(self, now: float) -> float:
        """Returns when the next tick is due, at the latest."""
        pause = self.pace.measure
        if self.sessions:
            pause = min(pause, self.pace.ask)
        if self.chooser.challenger:
            pause = min(pause, self.pace.follow)
        if self.wanted:
            pause = min(pause, self.pace.least)
        return now + pause

    def _due(self, at: float | None, now: float, pause: float) -> bool:
        return at is None or now - at >= pause

    def _measure(self, now: float, reason: str) -> Measure:
        self.measured_at, self.wanted = now, ""
        return Measure(reason)

    def _learn(self, session: _Session, work: Workload, seconds: float) -> None:
        enough = work.calls + work.syncs >= _LEAST_WORK
        if not enough and work.up_bytes + work.down_bytes < _LEAST_BYTES:
            session.usual = 0.0  # too little work to compare with
            return
        self.workload = work
        # A wait counts as 100 calls, and 10 kB count as one call.
        rate = (work.calls + 100 * work.syncs + (work.up_bytes + work.down_bytes) / 1e4) / seconds
        if session.usual > 0 and rate < self.pace.degraded * session.usual:
            self.wanted = "the program does less than before"
            session.usual = rate
        else:
            session.usual = rate if session.usual == 0 else 0.7 * session.usual + 0.3 * rate


def _difference(before: Stats, now: Stats) -> Workload:
    bulk = max(now.bulk_bytes - before.bulk_bytes, 0)
    up, down = bulk / 2, bulk / 2
    if now.up_bytes is not None and before.up_bytes is not None:
        up = float(max(now.up_bytes - before.up_bytes, 0))
        down = float(max(bulk - up, 0))
    return profile(now.calls - before.calls, max(now.syncs - before.syncs, 0), up, down)
