"""NodePaths (rgpu.dev/v1alpha1): what a GPU node has measured of the network. Pure.

Objects are dictionaries as in YAML. A row is about a class of paths: those from the node to network
interfaces of one kind in one rack, by one transport. So an object has at most 64 rows, however many
nodes there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rgpu_cluster.core.paths import End, Figures
from rgpu_cluster.kubernetes.times import seconds_of, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rgpu_common.v1 import agent_pb2

MOST_ROWS = 64
# A row is left out when its figures are this old.
OLD_SECONDS = 86400
# A time further ahead is that of a clock which was wrong.
_AHEAD_SECONDS = 300
_MOST_NAME, _MOST_TRANSPORT, _MOST_NUMBER = 63, 16, 1 << 50
_NS_OF_US = 1000
# Of no later time can be written when it was, or how long ago.
_MOST_SECONDS = 1 << 35
_NUMBERS = (
    "roundTripNanoseconds", "jitterNanoseconds", "upBytesPerSecond", "downBytesPerSecond",
    "messagesPerSecond",
)  # fmt: skip
_USUAL = ("roundTripNanoseconds", "upBytesPerSecond", "downBytesPerSecond")


class Usual(NamedTuple):
    """What a class of paths has had lately at its best: a time in ns, rates in bytes a second."""

    round_trip_ns: int
    up_rate: int
    down_rate: int


class Row(Struct, frozen=True):
    """One class of paths. server: the other end. measured_at: seconds since 1970. usual: None
    before the agent has taken the row.
    """

    server: End
    figures: Figures
    measured_at: int
    usual: Usual | None = None

    @property
    def key(self) -> tuple[End, str]:
        return self.server, self.figures.transport


def rows_of(report: agent_pb2.NodeReport) -> list[Row]:
    """Returns the rows of a server's report. A path that cannot be is left out."""
    found = []
    for path in report.paths[:MOST_ROWS]:
        numbers = (
            path.round_trip_ns, path.jitter_ns, path.up_rate, path.down_rate, path.message_rate,
        )  # fmt: skip
        row = _row((path.rack, path.nic, path.transport), numbers, path.measured_at)
        if row is not None:
            found.append(row)
    return found


def client_of(content: Mapping[str, Any]) -> End | None:
    """Returns the end at which the node of an object is; None: the object does not say."""
    client = _table(_table(content.get("status")).get("client"))
    rack, nic = client.get("rack", ""), client.get("nic", "")
    if not client or not isinstance(rack, str) or not isinstance(nic, str):
        return None
    return End(rack, nic)


def rows_in(content: Mapping[str, Any]) -> list[Row]:
    """Returns the rows of an object. One that no agent of this release writes is left out."""
    said = _table(content.get("status")).get("paths")
    found = []
    for one in said[:MOST_ROWS] if isinstance(said, list) else ():
        table = _table(one)
        server = table.get("server")
        if not isinstance(server, dict):
            continue
        texts = server.get("rack", ""), server.get("nic", ""), table.get("transport")
        numbers = tuple(table.get(name, 0) for name in _NUMBERS)
        row = _row(texts, numbers, seconds_of(table.get("measuredAt")))
        if row is not None:
            found.append(replace(row, usual=_usual(table.get("usual"))))
    return found


def merged(known: Iterable[Row], measured: Iterable[Row], now: float) -> list[Row]:
    """Returns the newest row of each class, in the order of the classes. A row that is too old, or
    of a time to come, is left out.
    """
    both = (*known, *measured)
    fresh = [row for row in both if -_AHEAD_SECONDS <= now - row.measured_at < OLD_SECONDS]
    fresh.sort(key=lambda row: row.measured_at)
    # The later of two with one key stays.
    rows = list({row.key: row for row in fresh}.values())
    rows.sort(key=lambda row: row.measured_at)
    return sorted(rows[-MOST_ROWS:], key=lambda row: row.key)


def status_of(client: End, rows: Iterable[Row]) -> dict[str, Any]:
    """Returns the status of an object. Each field is there, so a merge patch replaces it."""
    rows = [*rows]
    slowest = max((row.figures.round_trip_ns for row in rows), default=None)
    newest = max((row.measured_at for row in rows), default=None)
    return {
        "client": {"rack": client.rack, "nic": client.nic},
        "measured": len(rows),
        "slowestRoundTrip": None if slowest is None else f"{_micro(slowest)}us",
        "measuredAt": None if newest is None else written(newest),
        "paths": [_written(row) for row in rows],
    }


def _written(row: Row) -> dict[str, Any]:
    one = row.figures
    numbers = one.round_trip_ns, one.jitter_ns, one.up_rate, one.down_rate, one.message_rate
    return {
        "server": {"rack": row.server.rack, "nic": row.server.nic},
        "transport": one.transport,
        **dict(zip(_NUMBERS, numbers, strict=True)),
        "measuredAt": written(row.measured_at),
        **({"usual": dict(zip(_USUAL, row.usual, strict=True))} if row.usual is not None else {}),
    }


def _row(texts: tuple[Any, ...], numbers: tuple[Any, ...], measured_at: Any) -> Row | None:
    rack, nic, transport = texts
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        return None
    if max(len(rack), len(nic)) > _MOST_NAME or not 0 < len(transport) <= _MOST_TRANSPORT:
        return None
    if not _are_figures(numbers) or measured_at is None or not 0 < measured_at < _MOST_SECONDS:
        return None
    trip, jitter, up, down, rate = numbers
    figures = Figures(trip, jitter, up, down, rate, transport)
    return Row(End(rack, nic), figures, int(measured_at))


def _usual(said: Any) -> Usual | None:
    numbers = tuple(_table(said).get(name, 0) for name in _USUAL)
    return Usual(*numbers) if _are_figures(numbers) else None


def _are_figures(numbers: tuple[Any, ...]) -> bool:
    """Returns whether a network can have these figures, of which the first is the round trip."""
    sound = all(isinstance(one, int) and 0 <= one <= _MOST_NUMBER for one in numbers)
    return sound and numbers[0] > 0


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _micro(nanoseconds: int) -> int:
    """Returns a time in microseconds, rounded up, so that no path takes none."""
    return -(-nanoseconds // _NS_OF_US)
