"""What one more event costs a manager whose cards are taken and in whose line many requests wait.

The core alone, without sockets: 1,000 nodes with 8 cards. A request that comes is tried, hears its
place, and waits. When a lease ends, its card goes to one of those that wait.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from benchmarks.placement.workload import CARD_BYTES, task
from rgpu_cluster.core import events as on
from rgpu_cluster.core.actions import Grant, Waiting
from rgpu_cluster.core.card import Card, CardId, Elastic, Holding
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.node import Node
from rgpu_cluster.core.request import Client, Request
from rgpu_common.units import PPM

NODES, CARDS, RACKS = 1000, 8, 25
WAITING, TENANTS = 1000, 40


@dataclass(frozen=True, slots=True)
class Figures:
    """In ms. came: of a request that comes and waits. cpu: its processor time, which other programs
    of the machine do not lengthen. left: of a lease that ends, with who gets its card.
    """

    came_p50: float
    came_p99: float
    cpu_p50: float
    cpu_p99: float
    left_p50: float
    left_p99: float


def measure(count: int, *, elastic: bool, seed: int = 1) -> Figures:
    """Measures `count` events of each kind. elastic: a lease in 100 may shrink a little, which is
    not enough for anybody.
    """
    rng = random.Random(seed)
    manager = Manager()
    nodes = [_node(f"n{number}") for number in range(NODES)]
    for node in nodes:
        held = {card.id: (_lease(card.id, rng, elastic=elastic),) for card in node.cards}
        manager.handle(on.NodeReported(node, held), 0)
    for number in range(WAITING):
        manager.handle(on.Asked(_request(number, rng), wait=True), 0)
    assert len(manager.line) == WAITING, "a request found room in a full pool"
    came, cpu = [], []
    for number in range(count):
        asked = on.Asked(_request(WAITING + number, rng), wait=True)
        begun, start = time.thread_time(), time.perf_counter()
        said = manager.handle(asked, 0)
        came.append(time.perf_counter() - start)
        cpu.append(time.thread_time() - begun)
        assert any(isinstance(one, Waiting) for one in said), "a request found room"
        manager.handle(on.Withdrawn(asked.request.id), 0)
    return Figures(*_of(came), *_of(cpu), *_of(_departures(manager, nodes[:count])))


def _departures(manager: Manager, nodes: list[Node]) -> list[float]:
    """Ends one lease of each node; returns how long it took until somebody had its card."""
    times = []
    for node in nodes:
        there = {card.id: manager.pool.holdings(card.id) for card in node.cards[1:]}
        again = Node(node.name, node.generation + 1, node.cards, rack=node.rack)
        start = time.perf_counter()
        said = manager.handle(on.NodeReported(again, there), 0)
        times.append(time.perf_counter() - start)
        assert any(isinstance(one, Grant) for one in said), "a card is free while requests wait"
    return times


def _of(times: list[float]) -> tuple[float, float]:
    times.sort()
    return 1e3 * times[len(times) // 2], 1e3 * times[len(times) * 99 // 100]


def _node(name: str) -> Node:
    cards = tuple(Card(CardId(name, number), "H200", CARD_BYTES) for number in range(CARDS))
    return Node(name, 1, cards, rack=f"r{int(name[1:]) % RACKS}")


def _lease(card: CardId, rng: random.Random, *, elastic: bool) -> Holding:
    least = Elastic(PPM - PPM // 50, CARD_BYTES, PPM, CARD_BYTES)
    shrinks = least if elastic and rng.random() < 0.01 else None
    return Holding(f"old-{card}", "owner", PPM, CARD_BYTES, attempt=1, elastic=shrinks)


def _request(number: int, rng: random.Random) -> Request:
    asked = task(rng)
    return Request(
        id=f"run-{number:016}",
        tenant=f"t{rng.randrange(TENANTS)}",
        share_ppm=asked.share_ppm,
        memory_bytes=asked.memory_bytes,
        cards=asked.cards,
        whole=asked.whole,
        client=Client("", f"r{rng.randrange(RACKS)}"),
        priority=rng.choice((0, 0, 0, 1)),
    )
