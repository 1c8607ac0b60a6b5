"""The cost model: how long a step of a program takes over a path. Pure.
docs/explanation/paths.md explains the formula.

    time = syncs x round trip + calls / message rate + bytes up / bandwidth up
         + bytes down / bandwidth down

A synchronous call costs a round trip. A posted call costs one small message. A copy costs its
bytes. The server's own work is the same on every path and left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netprobe.prober import Measurement

MIB = 1 << 20
# The part of the jitter that a wait meets on average: half of the waits take longer than the
# median.
_JITTER_PART = 0.5
# Used for values that could not be measured; so slow that no other path loses to it.
_LEAST_RATE = 1e6
_LEAST_MESSAGES = 1e4


@dataclass(frozen=True, slots=True)
class Workload:
    """What a program does in one step or in some time.

    calls: commands posted without waiting. syncs: waits for an answer.
    """

    name: str
    calls: float
    syncs: float
    up_bytes: float
    down_bytes: float

    @property
    def empty(self) -> bool:
        return not (self.calls or self.syncs or self.up_bytes or self.down_bytes)


CALL_BOUND = Workload("call-bound", 1000, 1, 0, 0)
BULK_BOUND = Workload("bulk-bound", 2, 2, 64 * MIB, 64 * MIB)
MIXED = Workload("mixed", 1000, 8, 8 * MIB, 2 * MIB)
WORKLOADS = {"call": CALL_BOUND, "bulk": BULK_BOUND, "mixed": MIXED}


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds that a workload takes over a path, by cause."""

    waits: float
    calls: float
    up: float
    down: float

    @property
    def total(self) -> float:
        return self.waits + self.calls + self.up + self.down

    @property
    def most(self) -> str:
        """Returns the words for the largest part."""
        parts = {
            "waiting for answers": self.waits,
            "issuing calls": self.calls,
            "copying to the device": self.up,
            "copying to the host": self.down,
        }
        return max(parts, key=lambda name: parts[name])


def cost(path: Measurement, workload: Workload) -> Cost:
    """Returns the workload's cost over a path; raises ValueError if the path does not work."""
    if path.round_trip is None or path.error:
        raise ValueError(f"{path.uri} does not work")
    trip = path.round_trip.median + _JITTER_PART * path.round_trip.jitter
    up = path.up.bytes_per_second if path.up is not None else _LEAST_RATE
    down = path.down.bytes_per_second if path.down is not None else _LEAST_RATE
    messages = path.messages_per_second or _LEAST_MESSAGES
    return Cost(
        workload.syncs * trip,
        workload.calls / messages,
        workload.up_bytes / max(up, 1.0),
        workload.down_bytes / max(down, 1.0),
    )


def profile(calls: float, syncs: float, up_bytes: float, down_bytes: float) -> Workload:
    """Returns the workload of a session's counters, named after what it mostly does."""
    total = up_bytes + down_bytes
    # A call costs about as much as the bytes of a small message. From 64 KiB per call on, copies
    # dominate.
    if total > 64 * 1024 * max(calls + syncs, 1):
        name = BULK_BOUND.name
    elif total < 256 * max(calls + syncs, 1):
        name = CALL_BOUND.name
    else:
        name = MIXED.name
    return Workload(name, calls, syncs, up_bytes, down_bytes)
