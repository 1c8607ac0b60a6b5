"""Times two ways to do the same, in turns, so that both see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

# An operation that waits for the worker's socket is not issued any faster than executed, so rows
# are short.
_ROW = 200


def once(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def in_turns(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """The median seconds of each call. Each is called once before, to warm up."""
    for call in calls:
        call()
    seen: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(seen, calls, strict=True):
            times.append(once(call))
    return [statistics.median(times) for times in seen]


def issue(
    rounds: int,
    cases: Mapping[str, Callable[[Any], object]],
    there: Any,
    here: Any,
    settle: Callable[[], object],
) -> dict[str, tuple[float, float]]:
    """Microseconds that each call keeps its caller, in a row of calls: with an array on the node,
    without the wait for it, and with one of this machine. All calls take turns.
    """
    issued: dict[str, list[float]] = {name: [] for name in cases}
    local: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds + 1):
        for name, call in cases.items():
            issued[name].append(once(lambda call=call: _row(call, there)))  # type: ignore[misc]
            settle()
            local[name].append(once(lambda call=call: _row(call, here)))  # type: ignore[misc]
    return {name: (_each(issued[name]), _each(local[name])) for name in cases}


def _row(call: Callable[[Any], object], array: Any) -> None:
    for _ in range(_ROW):
        call(array)


def _each(rows: list[float]) -> float:
    """Microseconds of one call. The first row warms up."""
    return statistics.median(rows[1:]) / _ROW * 1e6
