"""Explains why a path was not chosen although a column of the table favours it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netprobe.choice import CLOSE
from netprobe.cost import cost
from netprobe.schemes import LOCAL, rank_of, scheme_of
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netprobe.choice import Choice
    from netprobe.cost import Cost, Workload
    from netprobe.prober import Measurement

# Smaller differences of round trips need no explanation.
_NOTEWORTHY = 0.05


def contradictions(
    paths: Sequence[Measurement], choice: Choice | None, workload: Workload, same_host: bool
) -> list[str]:
    """Returns a sentence for each path whose round trip is lower, or whose step is quicker, than
    the chosen path's.
    """
    there = {path.uri: path for path in paths if path.works}
    taken = there.get(choice.uri) if choice is not None else None
    if taken is None:
        return []
    found = (
        _why_not(path, taken, workload, same_host) for path in there.values() if path is not taken
    )
    return [sentence for sentence in found if sentence]


def _why_not(path: Measurement, taken: Measurement, workload: Workload, same_host: bool) -> str:
    mine, its = cost(taken, workload), cost(path, workload)
    if its.total < mine.total:
        return (
            f"{path.uri} has the quicker {workload.name} step ({_times(its.total, mine.total)}) "
            + (_near(path, taken, its, mine, same_host))
        )
    if path.round_trip is None or taken.round_trip is None:
        return ""
    trip, own = path.round_trip.median, taken.round_trip.median
    if trip >= own * (1 - _NOTEWORTHY):
        return ""
    return (
        f"{path.uri} has the lower round trip ({_times(trip, own)}) and is not chosen: "
        f"{_dearer(its, mine, workload)}"
    )


def _near(path: Measurement, taken: Measurement, its: Cost, mine: Cost, same_host: bool) -> str:
    """Returns why a path with a quicker step was passed over."""
    if same_host and scheme_of(taken.uri) in LOCAL:
        shares = scheme_of(taken.uri) == "shm"
        way = "shares memory with the server" if shares else "does not use the network"
        return (
            "and is not chosen: on one machine such times depend mostly on what else runs there, "
            f"and {scheme_of(taken.uri)}: {way}"
        )
    if mine.total <= its.total * (1 + CLOSE) and rank_of(taken.uri) < rank_of(path.uri):
        return (
            f"and is not chosen: the two are within {CLOSE:.0%} of each other, which is the error "
            f"of such measurements, and then {scheme_of(taken.uri)} is preferred to "
            f"{scheme_of(path.uri)}"
        )
    return "and is not chosen: a path that was measured before is kept until another is better"


def _dearer(its: Cost, mine: Cost, workload: Workload) -> str:
    """Returns which part of the step makes the path slower than the chosen one."""
    parts = {
        f"to issue its {workload.calls:.0f} calls": its.calls - mine.calls,
        "to copy to the device": its.up - mine.up,
        "to copy to the host": its.down - mine.down,
        "to wait for answers, whose times vary more": its.waits - mine.waits,
    }
    what, seconds = max(parts.items(), key=lambda part: part[1])
    return (
        f"a {workload.name} step takes {_times(its.total, mine.total)}, of which "
        f"{format_seconds(max(seconds, 0.0))} more {what}"
    )


def _times(its: float, chosen: float) -> str:
    return f"{format_seconds(its)}, over the chosen path {format_seconds(chosen)}"
