"""Remembers which paths this server has measured, by class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rgpu_common.v1 import agent_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

# Of more classes the one that was measured longest ago is forgotten.
MOST_CLASSES = 64
_MOST_NAME = 63


class MeasuredPaths:
    """The newest figures of each class: rack, network interface and transport of the other end.

    wall_clock: seconds since 1970.
    """

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._rows: dict[tuple[str, str, str], agent_pb2.MeasuredPath] = {}

    def note(self, order: agent_pb2.MeasureOrder, path: agent_pb2.PathReport) -> None:
        """Takes the answer to an order of the manager. One without figures changes nothing."""
        if path.error or max(len(order.rack), len(order.nic)) > _MOST_NAME:
            return
        key = order.rack, order.nic, path.transport
        self._rows.pop(key, None)
        self._rows[key] = agent_pb2.MeasuredPath(
            rack=order.rack,
            nic=order.nic,
            transport=path.transport,
            round_trip_ns=path.round_trip_ns,
            jitter_ns=path.jitter_ns,
            up_rate=path.up_rate,
            down_rate=path.down_rate,
            message_rate=path.message_rate,
            measured_at=int(self._wall_clock()),
        )
        if len(self._rows) > MOST_CLASSES:
            del self._rows[next(iter(self._rows))]

    def rows(self) -> list[agent_pb2.MeasuredPath]:
        """Returns the classes, the one that was measured last at the end."""
        return list(self._rows.values())
