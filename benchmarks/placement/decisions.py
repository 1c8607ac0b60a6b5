"""How long a decision over a large pool takes, and how many are placed in a second."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from benchmarks.placement.ours import Placer
from benchmarks.placement.workload import Machine, tasks
from rgpu_cluster.core.decision import Decision
from rgpu_common.units import PPM

NODES = 1000
CARDS = 8
# The pool is so full when decisions are measured.
FULL = 0.7


@dataclass(frozen=True, slots=True)
class Figures:
    """p50_ms, p99_ms: of one decision. per_second: decisions that are taken, with their books."""

    p50_ms: float
    p99_ms: float
    per_second: float
    classes: int


def measure(count: int, seed: int = 1) -> Figures:
    """Measures `count` decisions over 1,000 nodes with 8 cards each."""
    rng = random.Random(seed)
    placer = Placer([Machine(CARDS, 96)] * NODES)
    for task in tasks(int(FULL * NODES * CARDS * PPM), rng):
        placer.place(task)
    times, spent = [], 0.0
    asked = [task for _ in range(count) for task in tasks(1, rng)]
    for task in asked:
        request = placer.request(task)
        start = time.perf_counter()
        decision = placer.decide(request)
        decided = time.perf_counter()
        if isinstance(decision, Decision):
            placer.take(request, decision.chosen.cards)
            placer.pool.release(request.id)
        spent += time.perf_counter() - start
        times.append(decided - start)
    times.sort()
    return Figures(
        1e3 * times[len(times) // 2],
        1e3 * times[len(times) * 99 // 100],
        count / spent,
        len(placer.pool.classes),
    )
