"""What each weight does: a pool that is filled to a part, by the default weights and by others."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

from msgspec.structs import replace

from benchmarks.placement.ours import Placer
from benchmarks.placement.workload import machines, mix_of, tasks
from rgpu_cluster.core.decision import Decision
from rgpu_cluster.core.score import PRESETS, Weights
from rgpu_common.units import PPM

# The part of the cluster that is asked for.
LOAD = 0.7
_FGD = PRESETS["fgd"]
WEIGHTS = {
    "fgd, the default": _FGD,
    "without fragmentation": replace(_FGD, fragmentation=0),
    "without packing": replace(_FGD, packing=0),
    "without network and mode": replace(_FGD, network=0, mode=0),
    "10 x network and mode": replace(_FGD, network=10 * PPM, mode=10 * PPM),
    "without crowding": replace(_FGD, crowding=0),
    "40 x crowding": replace(_FGD, crowding=2 * PPM),
    "spread": PRESETS["spread"],
}


@dataclass(frozen=True, slots=True)
class Effect:
    """What the weights lead to.

    idle: the part of the cards that no lease is on, in percent. slowdown: the mean of what the
    network is predicted to cost programs, in percent of their device time. leases: those of the
    mean card that is shared.
    """

    name: str
    idle: float
    slowdown: float
    leases: float


def effect(name: str, weights: Weights, nodes: int, seed: int) -> Effect:
    """Fills a cluster to LOAD."""
    rng = random.Random(seed)
    cluster = machines(nodes, rng)
    drawn = tasks(int(LOAD * sum(m.cards for m in cluster) * PPM), rng)
    placer = Placer(cluster, weights, mix_of(drawn))
    slower = []
    for task in drawn:
        request = placer.request(task)
        decision = placer.decide(request)
        if isinstance(decision, Decision):
            placer.take(request, decision.chosen.cards)
            slower.append(100 * decision.chosen.slowdown_ppm / PPM)
    loads = [placer.pool.load(card.id) for card in placer.pool.cards()]
    shared = [load.leases for load in loads if load.leases and not load.whole]
    idle = 100 * sum(load.idle for load in loads) / len(loads)
    return Effect(name, idle, statistics.mean(slower), statistics.mean(shared))


def effects(nodes: int, seed: int) -> list[Effect]:
    """Returns what each of WEIGHTS leads to, for the same cluster and the same requests."""
    return [effect(name, weights, nodes, seed) for name, weights in WEIGHTS.items()]
