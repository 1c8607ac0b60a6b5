"""Whether the path that is chosen is close to the best when not all paths have been measured."""

from __future__ import annotations

import random

from msgspec.structs import replace

from benchmarks.placement.ours import RACKS, Placer
from benchmarks.placement.workload import Machine, task
from rgpu_cluster.core.decision import Decision
from rgpu_cluster.core.paths import End, Figures, Paths, waiting_ppm
from rgpu_cluster.core.request import Client, Profile
from rgpu_common.units import PPM

NIC = "100G"
UNMEASURED = 0.2
# A program's time on the chosen card may be so much longer than on the best one.
CLOSE = 1.05
# Programs for each second of device time: one that waits often, one that moves much, a training.
PROFILES = (
    Profile(calls=20_000, syncs=2_000, up_bytes=16 << 20, down_bytes=4 << 20),
    Profile(calls=2_000, syncs=20, up_bytes=2 << 30, down_bytes=256 << 20),
    Profile(calls=5_000, syncs=100, up_bytes=256 << 20, down_bytes=1 << 20),
)


def _figures(same_rack: bool, rng: random.Random) -> Figures:
    """A path within a rack, or between two: some are bad, as in any network."""
    slow = rng.lognormvariate(0, 0.5)
    trip, rate = (25_000, 10e9) if same_rack else (90_000, 3e9)
    return Figures(
        int(trip * slow), int(trip * slow / 5), int(rate / slow), int(rate / slow), 1_000_000
    )


def close_to_the_best(count: int, seed: int) -> float:
    """Returns the part of placements on a path that is close to the best, from 0 to 1.

    All classes of paths have true figures, a fifth of them is not known to the placer, and every
    rack has room.
    """
    rng = random.Random(seed)
    racks = [End(f"r{n}", NIC) for n in range(RACKS)]
    true = {(a, b): _figures(a == b, rng) for a in racks for b in racks}
    measured = {ends: figures for ends, figures in true.items() if rng.random() >= UNMEASURED}
    placer = Placer([Machine(8, 96)] * 10 * RACKS, "latency", paths=Paths(measured))
    good = 0
    for _ in range(count):
        client = rng.choice(racks)
        request = replace(
            placer.request(task(rng), Client("", client.rack, client.nic)),
            profile=rng.choice(PROFILES),
        )
        decision = placer.decide(request)
        assert isinstance(decision, Decision)
        node = placer.pool.node(decision.chosen.cards[0].node)
        assert node is not None
        costs = {b: PPM + waiting_ppm(true[client, b], request.profile) for b in racks}
        good += costs[End(node.rack, node.nic)] <= CLOSE * min(costs.values())
    return good / count
