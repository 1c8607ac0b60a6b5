"""What stays free when more is asked for than there is: our orders beside FGD's."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from benchmarks.placement.fgd import Fgd
from benchmarks.placement.ours import Placer
from benchmarks.placement.workload import Machine, Task, machines, mix_of, shapes, tasks
from rgpu_common.units import PPM

# Tasks come until they have asked for so much of the cluster.
MOST = 1.3
POINTS = 26
ORDERS = ("fgd", "binpack", "spread", "latency", "kubeshare", "gpushare", "gpumanager")
CARDS = "FGD, cards alone"
LOCAL = "FGD, cards and processors of one node"
REMOTE = "fgd, processors of any node"


class Order(Protocol):
    """Something that places tasks one after the other."""

    def place(self, task: Task) -> bool: ...


@dataclass(frozen=True, slots=True)
class Curve:
    """What part of the cluster's cards is taken after so much has been asked for.

    asked, taken: parts of the cluster, as many of one as of the other.
    """

    name: str
    asked: list[float]
    taken: list[float]

    @property
    def unallocated(self) -> float:
        """The part of the cards that stays free, in percent."""
        return 100 * (1 - self.taken[-1])


class Elsewhere:
    """Places cards by `order`, and processors on any node that has them, as remote programs do."""

    def __init__(self, order: Order, cluster: list[Machine]) -> None:
        self._order = order
        self._processors = [m.processors for m in cluster]

    def place(self, task: Task) -> bool:
        fitting = [(p, n) for n, p in enumerate(self._processors) if p >= task.processors]
        if not fitting or not self._order.place(task):
            return False
        self._processors[min(fitting)[1]] -= task.processors
        return True


def run(name: str, order: Order, drawn: list[Task], capacity_ppm: int) -> Curve:
    """Lets the tasks come in turn; what does not fit goes away."""
    asked = taken = 0
    curve = Curve(name, [0.0], [0.0])
    for task in drawn:
        asked += task.demand_ppm
        if order.place(task):
            taken += task.demand_ppm
        if asked * POINTS >= len(curve.asked) * MOST * capacity_ppm:
            curve.asked.append(asked / capacity_ppm)
            curve.taken.append(taken / capacity_ppm)
    return curve


def _drawn(nodes: int, seed: int) -> tuple[list[Machine], list[Task], int]:
    """Returns a cluster, the tasks that come, and the capacity in ppm of a card."""
    rng = random.Random(seed)
    cluster = machines(nodes, rng)
    capacity = sum(m.cards for m in cluster) * PPM
    return cluster, tasks(int(MOST * capacity), rng), capacity


def curves(nodes: int, seed: int) -> list[Curve]:
    """Runs all orders over the same cluster and the same tasks."""
    cluster, drawn, capacity = _drawn(nodes, seed)
    mix, reference = mix_of(drawn), shapes(drawn)
    found = [
        run(CARDS, Fgd(cluster, reference, processors=False), drawn, capacity),
        run(LOCAL, Fgd(cluster, reference, processors=True), drawn, capacity),
        run(REMOTE, Elsewhere(Placer(cluster, "fgd", mix), cluster), drawn, capacity),
    ]
    return found + [run(name, Placer(cluster, name, mix), drawn, capacity) for name in ORDERS]
