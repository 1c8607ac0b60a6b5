"""The same tasks, placed by rgpu's core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.placement.workload import CARD_BYTES
from rgpu_cluster.core.card import Card, CardId
from rgpu_cluster.core.decision import Decision, Refusal
from rgpu_cluster.core.fragmentation import USUAL, Mix
from rgpu_cluster.core.legacy import choose
from rgpu_cluster.core.node import Node
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Client, Request, holding_of
from rgpu_cluster.core.score import PRESETS, Weights
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.placement.workload import Machine, Task

RACKS = 16


def pool_of(machines: Sequence[Machine], racks: int = RACKS, nic: str = "100G") -> Pool:
    """Returns a pool of these nodes, each card in a location of its own on two NUMA nodes."""
    pool = Pool()
    for number, machine in enumerate(machines):
        name = f"n{number:04d}"
        cards = tuple(
            Card(
                CardId(name, ordinal),
                "A100",
                CARD_BYTES,
                location=(f"numa{2 * ordinal // machine.cards}", f"switch{ordinal // 2}"),
            )
            for ordinal in range(machine.cards)
        )
        pool.report(Node(name, 1, cards, rack=f"r{number % racks}", nic=nic), {})
    return pool


class Placer:
    """A pool that places tasks by a preset, or by the order of an earlier system.

    borrow: tasks that share a card may have what others leave idle. Else they have their share.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        order: str | Weights = "fgd",
        mix: Mix = USUAL,
        paths: Paths | None = None,
        *,
        borrow: bool = False,
    ) -> None:
        self.pool = pool_of(machines)
        self.paths = paths or Paths()
        self._order = order
        self._mix = mix
        self._borrow = borrow
        self._number = 0

    def request(self, task: Task, client: Client | None = None) -> Request:
        """Returns the request of a task."""
        self._number += 1
        return Request(
            f"t{self._number}",
            "tenant",
            share_ppm=task.share_ppm,
            limit_ppm=PPM if self._borrow else task.share_ppm,
            memory_bytes=task.memory_bytes,
            cards=task.cards,
            whole=task.whole,
            client=client or Client("", f"r{self._number % RACKS}", "100G"),
        )

    def decide(self, request: Request) -> Decision | Refusal:
        """Returns where a request goes by the weights."""
        weights = PRESETS[self._order] if isinstance(self._order, str) else self._order
        return place(self.pool, request, self.paths, weights, self._mix)

    def take(self, request: Request, cards: Sequence[CardId]) -> None:
        """Puts the request there."""
        for card in cards:
            self.pool.take(card, holding_of(request, self.pool.card(card).memory_bytes))

    def place(self, task: Task) -> bool:
        """Places a task; False if there is no room."""
        request = self.request(task)
        if isinstance(self._order, str) and self._order not in PRESETS:
            cards = choose(self.pool, request, self._order)
        else:
            decision = self.decide(request)
            cards = decision.chosen.cards if isinstance(decision, Decision) else ()
        if len(cards) < task.cards:  # an order for one card
            return False
        self.take(request, cards)
        return True
