"""Jobs in an hour on shared cards, beside the same jobs on exclusive cards.

The jobs are of KubeShare's kind ("KubeShare: A Framework to Manage GPUs as First-Class and Shared
Resources in Container Cloud", HPDC'20): inference services that use a part of a card, its mean and
spread as in its evaluation.  A job with the share that it needs takes as long as alone.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

from benchmarks.placement.ours import Placer
from benchmarks.placement.workload import Machine, Task
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES = 8
CARDS = 4
MEAN, SPREAD = 0.3, 0.1
SECONDS = 300.0
HOUR = 3600.0


def jobs(count: int, rng: random.Random) -> list[tuple[Task, float]]:
    """Returns tasks and how many seconds each runs."""
    shares = [min(max(rng.gauss(MEAN, SPREAD), 0.05), 1) for _ in range(count)]
    return [
        (Task(1, int(share * 100) * PPM // 100, 1), rng.expovariate(1 / SECONDS))
        for share in shares
    ]


def per_hour(drawn: Sequence[tuple[Task, float]], *, exclusive: bool) -> float:
    """Returns the jobs that end in an hour, of a line that always has more.

    The first that fits is started, in order of age; what does not fit waits.
    """
    placer = Placer([Machine(CARDS, 64)] * NODES)
    now, waiting, ended = 0.0, list(drawn), 0
    running: list[tuple[float, str]] = []
    while waiting:
        left = []
        for position, (task, seconds) in enumerate(waiting):
            request = placer.request(Task(1, PPM, 1) if exclusive else task)
            cards = getattr(getattr(placer.decide(request), "chosen", None), "cards", ())
            placer.take(request, cards)
            if cards:
                heapq.heappush(running, (now + seconds, request.id))
            else:
                left.append((task, seconds))
            if len(left) >= 16:  # the head of the line is enough
                left += waiting[position + 1 :]
                break
        waiting = left
        now, lease = heapq.heappop(running)
        placer.pool.release(lease)
        ended += 1
        if now > HOUR:
            return ended / now * HOUR
    return ended / now * HOUR
