"""Clusters and requests, drawn from the published shapes of a GPU cluster.

The parts of tasks by the GPUs that they ask for are those of table 1 of "Beware of Fragmentation:
Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC'23), of a cluster
of 6,212 GPUs.  The sizes of shares, processors and memory within a part are our own.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from rgpu_cluster.core.fragmentation import Mix, Shape
from rgpu_common.units import PPM

GIB = 1 << 30
CARD_BYTES = 32 * GIB
# The number of cards of a task, and how many of a thousand tasks ask for it.  0: a share of a card.
# Tasks without a GPU (133 of a thousand in the table) are left out.
CARDS = ((0, 436), (1, 553), (2, 2), (4, 2), (8, 6))
SHARES = (5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90)
# Processors for each card of a task, and cards and processors of a node.
PROCESSORS = (4, 6, 8, 10, 12, 16)
NODES = (((8, 96), 6), ((8, 64), 2), ((4, 64), 2), ((2, 32), 2))


@dataclass(frozen=True, slots=True)
class Task:
    """What one task asks for.  share_ppm: of each of its cards; PPM: whole cards."""

    cards: int
    share_ppm: int
    processors: int

    @property
    def whole(self) -> bool:
        """Whether its cards are for it alone."""
        return self.share_ppm == PPM

    @property
    def demand_ppm(self) -> int:
        """What it takes of the cluster, in ppm of a card."""
        return self.cards * self.share_ppm

    @property
    def memory_bytes(self) -> int:
        """The memory that it asks for on each card: as much as its share."""
        return CARD_BYTES * self.share_ppm // PPM


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster."""

    cards: int
    processors: int


def machines(count: int, rng: random.Random) -> list[Machine]:
    """Returns so many nodes."""
    kinds, weights = zip(*NODES, strict=True)
    return [Machine(*kind) for kind in rng.choices(kinds, weights, k=count)]


def task(rng: random.Random) -> Task:
    """Returns one task."""
    counts, weights = zip(*CARDS, strict=True)
    cards = rng.choices(counts, weights)[0]
    if not cards:
        share = rng.choice(SHARES)
        # A small share has not many fewer processors: data is loaded for it all the same.
        return Task(1, PPM * share // 100, max(2, rng.choice(PROCESSORS) * (share + 40) // 140))
    return Task(cards, PPM, cards * rng.choice(PROCESSORS))


def tasks(demand_ppm: int, rng: random.Random) -> list[Task]:
    """Returns tasks that together ask for `demand_ppm`."""
    drawn: list[Task] = []
    while demand_ppm > 0:
        drawn.append(task(rng))
        demand_ppm -= drawn[-1].demand_ppm
    return drawn


def shapes(drawn: list[Task]) -> list[tuple[Task, float]]:
    """Returns the different tasks among `drawn`, without processors, and the part of each."""
    counts = Counter((t.cards, t.share_ppm) for t in drawn)
    return [(Task(*key, 0), count / len(drawn)) for key, count in sorted(counts.items())]


def mix_of(drawn: list[Task]) -> Mix:
    """Returns the same as the core takes it."""
    return Mix(
        tuple(
            (Shape(t.cards, t.share_ppm, t.share_ppm, t.whole), int(part * PPM))
            for t, part in shapes(drawn)
        )
    )
