"""Measures the paths to other nodes that the manager names, one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from netprobe.prober import ProbeBudget
from netprobe.survey import survey
from rgpu_common.errors import RgpuError
from rgpu_common.v1 import agent_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from netprobe.prober import Measurement
    from rgpu_server.agent.measured import MeasuredPaths

# What one measurement may cost, and how many may wait for their turn.
_BUDGET = ProbeBudget(seconds=0.1, bytes=16 << 20)
_MOST_WAITING = 16
_MOST_ERROR = 200
_NS = 1_000_000_000


class Measuring:
    """answer: is called with each result. measured: remembers it."""

    def __init__(
        self, answer: Callable[[agent_pb2.PathReport], None], measured: MeasuredPaths
    ) -> None:
        self._answer = answer
        self._measured = measured
        self._waiting: deque[agent_pb2.MeasureOrder] = deque(maxlen=_MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def order(self, order: agent_pb2.MeasureOrder) -> None:
        """Measures a path when the earlier ones are done."""
        self._waiting.append(order)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Forgets what waits, and waits for the measurement that is under way."""
        self._waiting.clear()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while self._waiting:
            order = self._waiting.popleft()
            path = await asyncio.to_thread(measure, order)
            self._measured.note(order, path)
            self._answer(path)


def measure(order: agent_pb2.MeasureOrder) -> agent_pb2.PathReport:
    """Measures all paths to a server, and returns the figures of the best; takes a second at most
    for each.
    """
    try:
        found = survey(order.address, budget=_BUDGET)
    except RgpuError as error:
        return agent_pb2.PathReport(node=order.node, error=str(error)[:_MOST_ERROR])
    best = next((p for p in found.paths if found.choice and p.uri == found.choice.uri), None)
    if best is None or best.round_trip is None:
        return agent_pb2.PathReport(node=order.node, error="no path works")
    return _figures(order.node, best)


def _figures(node: str, path: Measurement) -> agent_pb2.PathReport:
    assert path.round_trip is not None
    return agent_pb2.PathReport(
        node=node,
        round_trip_ns=round(path.round_trip.median * _NS),
        jitter_ns=round(path.round_trip.jitter * _NS),
        up_rate=0 if path.up is None else round(path.up.bytes_per_second),
        down_rate=0 if path.down is None else round(path.down.bytes_per_second),
        message_rate=round(path.messages_per_second or 0),
        transport=path.kind or path.uri.partition(":")[0],
    )
