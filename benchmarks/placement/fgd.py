"""Fragmentation gradient descent as its paper describes it, one node at a time: the reference.

A task runs on one node, which has its GPUs and, if processors are counted, its processors.  The
node's fragmentation for a task of the mix is what is free of its GPUs and of no use to the task:
all of it if the node cannot take the task, else the GPUs that have too little left.  A task goes to
the GPUs whose node's expected fragmentation grows least (sections 3 and 4 of the ATC'23 paper).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rgpu_common.units import PPM

if TYPE_CHECKING:
    from benchmarks.placement.workload import Machine, Task

Mix = list[tuple["Task", float]]


@dataclass(slots=True)
class Node:
    """What is free of a node: of each GPU in ppm, and processors."""

    free: list[int]
    processors: int
    costs: dict[tuple[int, int, int], tuple[float, list[int]]] = field(default_factory=dict)


class Fgd:
    """A cluster that places tasks in this order.

    processors: a task needs the processors of the node that has its GPUs.
    """

    def __init__(self, machines: list[Machine], mix: Mix, *, processors: bool) -> None:
        self._nodes = [Node([PPM] * m.cards, m.processors) for m in machines]
        self._mix = mix
        self._counts_processors = processors
        # Of the tasks of the mix; for those that need processors their mean, as a node sees them.
        self._known: dict[tuple[tuple[int, ...], int], float] = {}

    def place(self, task: Task) -> bool:
        """Places a task; False if no node has room."""
        best: tuple[float, int] | None = None
        for number, node in enumerate(self._nodes):
            cost = self._cost(node, task)
            if cost is not None and (best is None or cost < best[0]):
                best = (cost, number)
        if best is None:
            return False
        node = self._nodes[best[1]]
        _, gpus = node.costs[self._key(task)]
        for gpu in gpus:
            node.free[gpu] -= task.share_ppm
        node.processors -= task.processors
        node.costs.clear()
        return True

    def _key(self, task: Task) -> tuple[int, int, int]:
        return task.cards, task.share_ppm, task.processors if self._counts_processors else 0

    def _cost(self, node: Node, task: Task) -> float | None:
        """The growth of the node's fragmentation; None if the task does not fit."""
        key = self._key(task)
        if key not in node.costs:
            node.costs[key] = self._best(node, task)
        cost, gpus = node.costs[key]
        return cost if gpus else None

    def _best(self, node: Node, task: Task) -> tuple[float, list[int]]:
        if not self._fits(node.free, node.processors, task):
            return 0.0, []
        left = node.processors - task.processors
        before = self._fragmentation(node.free, node.processors)
        if task.whole:
            gpus = [n for n, free in enumerate(node.free) if free == PPM][: task.cards]
            after = [0 if n in gpus else free for n, free in enumerate(node.free)]
            return self._fragmentation(after, left) - before, gpus
        choices = []
        for n, free in enumerate(node.free):
            if free >= task.share_ppm:
                after = [*node.free]
                after[n] -= task.share_ppm
                choices.append((self._fragmentation(after, left) - before, n))
        cost, gpu = min(choices)
        return cost, [gpu]

    def _fits(self, free: list[int], processors: int, task: Task) -> bool:
        if self._counts_processors and task.processors > processors:
            return False
        return sum(1 for f in free if f >= task.share_ppm) >= task.cards

    def _fragmentation(self, free: list[int], processors: int) -> float:
        key = (tuple(sorted(free)), processors if self._counts_processors else 0)
        known = self._known.get(key)
        if known is None:
            known = sum(part * self._useless(free, processors, t) for t, part in self._mix)
            self._known[key] = known
        return known

    def _useless(self, free: list[int], processors: int, task: Task) -> int:
        if not self._fits(free, processors, task):
            return sum(free)
        return sum(f for f in free if f < task.share_ppm)
