"""What a device counted: begin and end of each piece of work of a tenant.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000_000
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Log:
    """begin, end: ns of the device's clock, in order; nominal: what each piece counts, in ns."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    nominal: NDArray[np.float64]

    @classmethod
    def read(cls, path: Path, nominal: Sequence[float]) -> Log:
        """Reads a tenant's file; `nominal`: what the pieces of its cycle count."""
        stamps = np.fromfile(path, dtype=np.int64).reshape(-1, 2)
        repeats = -(-len(stamps) // len(nominal))
        counts = np.tile(np.array(nominal, dtype=np.float64), repeats)[: len(stamps)]
        return cls(stamps[:, 0], stamps[:, 1], counts)

    def work(self, start: int, end: int) -> float:
        """What was done between two moments, in ns; of a piece at an edge its part inside."""
        return float(np.sum(self._parts(start, end) * self.nominal))

    def busy(self, start: int, end: int) -> float:
        """How long pieces were on the device between two moments, in ns."""
        return float(np.sum(np.clip(self._inside(start, end), 0, None)))

    def pieces(self, start: int, end: int) -> float:
        """How many pieces were done between two moments; of one at an edge its part inside."""
        return float(np.sum(self._parts(start, end)))

    def first_begin(self, after: int) -> int | None:
        """When the first piece after a moment began."""
        at = int(np.searchsorted(self.begin, after))
        return int(self.begin[at]) if at < len(self.begin) else None

    def median_piece(self) -> float:
        """How long a piece takes, in ns."""
        return float(np.median(self.end - self.begin))

    def _inside(self, start: int, end: int) -> NDArray[np.int64]:
        return np.minimum(self.end, end) - np.maximum(self.begin, start)

    def _parts(self, start: int, end: int) -> NDArray[np.float64]:
        inside = np.clip(self._inside(start, end), 0, None)
        return inside / np.maximum(self.end - self.begin, 1)


def curve(log: Log, start: int, end: int, step: int) -> list[float]:
    """The work of each step between two moments, in ns per ns."""
    edges = np.arange(start, end + 1, step)
    length = np.maximum(log.end - log.begin, 1)
    done = np.concatenate(([0.0], np.cumsum(log.nominal)))
    # What was done up to an edge: all that had begun, less the rest of the last one.
    begun = np.searchsorted(log.begin, edges)
    last = np.maximum(begun - 1, 0)
    rest = np.clip(log.end[last] - edges, 0, None) / length[last] * log.nominal[last]
    upto = done[begun] - np.where(begun > 0, rest, 0.0)
    return [float(x) for x in np.diff(upto) / step]


def together(logs: Sequence[Log], start: int, end: int) -> float:
    """How long pieces of more than one tenant were on the device at once, in ns."""
    ones = [np.ones(len(log.begin)) for log in logs]
    moments = np.concatenate([edge for log in logs for edge in (log.begin, log.end)])
    change = np.concatenate([x for one in ones for x in (one, -one)])
    order = np.lexsort((change, moments))
    moments, level = np.clip(moments[order], start, end), np.cumsum(change[order])
    return float(np.sum(np.diff(moments)[level[:-1] > 1]))


def held(logs: Sequence[Log], start: int, end: int) -> list[float]:
    """How long each tenant had the device, in ns: from the first piece of each of its turns to the
    end of the last one, so with the gaps between its own pieces.
    """
    begin = np.concatenate([log.begin for log in logs])
    finish = np.concatenate([log.end for log in logs])
    who = np.concatenate([np.full(len(log.begin), n) for n, log in enumerate(logs)])
    order = np.argsort(begin, kind="stable")
    begin, finish, who = begin[order], finish[order], who[order]
    first = np.flatnonzero(np.concatenate(([True], who[1:] != who[:-1])))
    last = np.concatenate((first[1:] - 1, [len(who) - 1]))
    turns = np.clip(np.minimum(finish[last], end) - np.maximum(begin[first], start), 0, None)
    return [float(np.sum(turns[who[first] == n])) for n in range(len(logs))]


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    total = sum(values)
    return total * total / (len(values) * sum(v * v for v in values)) if total else 0.0
