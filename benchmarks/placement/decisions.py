"""How long a decision over a large pool takes, and how many are placed in a second.

The more cards differ, the more classes there are. `mixed` requests ask for memory that has nothing
to do with their shares, so fewer cards are alike.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from benchmarks.placement.ours import Placer
from benchmarks.placement.workload import GIB, Machine, task
from rgpu_cluster.core.decision import Decision
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from rgpu_cluster.core.request import Request

NODES = 1000
CARDS = 8
# The pool is so full when decisions are measured.
FULL = 0.7


@dataclass(frozen=True, slots=True)
class Figures:
    """p50_ms, p99_ms: of one decision. processor_ms: the 99th percentile of its processor time,
    which other programs of the machine do not lengthen. per_second: decisions that are taken, with
    their books.
    """

    p50_ms: float
    p99_ms: float
    processor_ms: float
    per_second: float
    classes: int


def _request(placer: Placer, rng: random.Random, *, mixed: bool, borrow: bool) -> Request:
    asked = placer.request(task(rng))
    if not mixed or asked.whole:
        return asked
    share, memory = rng.randint(1, 20) * PPM // 20, rng.randint(1, 16) * 2 * GIB
    limit = PPM if borrow else share
    return replace(asked, share_ppm=share, limit_ppm=limit, memory_bytes=memory)


def _full(rng: random.Random, *, mixed: bool, borrow: bool) -> Placer:
    """Returns a pool of 1,000 nodes with 8 cards each, of whose time FULL is taken."""
    placer = Placer([Machine(CARDS, 96)] * NODES, borrow=borrow)
    left = int(FULL * NODES * CARDS * PPM)
    while left > 0:
        request = _request(placer, rng, mixed=mixed, borrow=borrow)
        decision = placer.decide(request)
        if isinstance(decision, Decision):
            placer.take(request, decision.chosen.cards)
            left -= request.cards * request.share_ppm
    return placer


def measure(count: int, *, mixed: bool, borrow: bool = False, seed: int = 1) -> Figures:
    """Measures `count` decisions. borrow: requests that share a card look for idle time."""
    rng = random.Random(seed)
    placer = _full(rng, mixed=mixed, borrow=borrow)
    times, processor, spent = [], [], 0.0
    for request in [_request(placer, rng, mixed=mixed, borrow=borrow) for _ in range(count)]:
        cpu, start = time.thread_time(), time.perf_counter()
        decision = placer.decide(request)
        times.append(time.perf_counter() - start)
        processor.append(time.thread_time() - cpu)
        if isinstance(decision, Decision):
            placer.take(request, decision.chosen.cards)
            placer.pool.release(request.id)
        spent += time.perf_counter() - start
    times.sort()
    processor.sort()
    return Figures(
        1e3 * times[len(times) // 2],
        1e3 * times[len(times) * 99 // 100],
        1e3 * processor[len(processor) * 99 // 100],
        count / spent,
        len(placer.pool.classes),
    )
