"""Decides whether the network of this node has become much worse than it was. Pure.

One bad path says nothing, because the other end may be at fault. But all classes of paths that this
node has measured lately have only this node in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.kubernetes.node_paths import Usual

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.core.paths import End
    from rgpu_cluster.kubernetes.node_paths import Row

# Figures of this age say something about now: the manager has each class measured every 10 minutes.
LATELY_SECONDS = 1800
LEAST_CLASSES = 2
# A path is degraded if it is so many times worse than usual, and bad for any data centre.
_TIMES_WORSE = 8
_BAD_TRIP_NS = 1_000_000
_BAD_RATE = 125_000_000
# What is usual follows a network that stays worse, by a tenth of itself with each measurement.
_FOLLOWS = 10


def with_usual(known: Iterable[Row], measured: Iterable[Row]) -> list[Row]:
    """Returns the measured rows that are newer than all of their class, whatever the transport,
    with what is usual for the class.
    """
    newest = _newest(known)
    found = []
    for row in sorted(measured, key=lambda row: row.measured_at):
        before = newest.get(row.server)
        if before is None or row.measured_at > before.measured_at:
            newest[row.server] = replace(row, usual=_usual(before, row))
            found.append(newest[row.server])
    return found


def is_degraded(rows: Iterable[Row], now: float) -> bool:
    """Returns whether more than half of the classes that were measured lately are degraded."""
    lately = [row for row in _newest(rows).values() if now - row.measured_at <= LATELY_SECONDS]
    bad = sum(_is_bad(row) for row in lately)
    return len(lately) >= LEAST_CLASSES and 2 * bad > len(lately)


def _newest(rows: Iterable[Row]) -> dict[End, Row]:
    return {row.server: row for row in sorted(rows, key=lambda row: row.measured_at)}


def _usual(before: Row | None, row: Row) -> Usual:
    now = row.figures
    if before is None or before.usual is None:
        return Usual(now.round_trip_ns, now.up_rate, now.down_rate)
    trip, up, down = before.usual
    return Usual(
        min(now.round_trip_ns, trip + trip // _FOLLOWS + 1),
        max(now.up_rate, up - up // _FOLLOWS),
        max(now.down_rate, down - down // _FOLLOWS),
    )


def _is_bad(row: Row) -> bool:
    if row.usual is None:
        return False
    trip = row.figures.round_trip_ns
    if trip >= max(_TIMES_WORSE * row.usual.round_trip_ns, _BAD_TRIP_NS):
        return True
    pairs = (row.figures.up_rate, row.usual.up_rate), (row.figures.down_rate, row.usual.down_rate)
    return any(rate < _BAD_RATE and rate * _TIMES_WORSE <= usual for rate, usual in pairs)
