"""Pools and requests for the tests of placement."""

from __future__ import annotations

from typing import Any

from rgpu_cluster.core.card import Card, CardId, Holding, Labels
from rgpu_cluster.core.decision import Decision, Refusal
from rgpu_cluster.core.node import Node
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Request
from rgpu_common.units import PPM

GIB = 1 << 30
PERCENT = PPM // 100


def node(name: str, cards: int = 1, memory: int = 80 * GIB, **options: Any) -> Node:
    """A node with equal cards, two behind each switch, four in each NUMA node."""
    model = options.pop("model", "H100")
    pool = options.pop("pool", "")
    mig = options.pop("mig", "")
    made = tuple(
        Card(
            CardId(name, i),
            model,
            memory,
            pool=pool,
            location=(f"numa{i // 4}", f"switch{i // 2}"),
            mig=mig,
        )
        for i in range(cards)
    )
    return Node(name, options.pop("generation", 1), made, **options)


def pool_of(*nodes: Node) -> Pool:
    """A pool with these nodes and no lease."""
    made = Pool()
    for one in nodes:
        assert made.report(one, {})
    return made


def request(number: int = 1, **options: Any) -> Request:
    """A request of tenant a for 30 % of a card and 8 GiB, unless the options say otherwise."""
    return Request(
        **{
            "id": f"run-{number}",
            "tenant": "a",
            "share_ppm": PPM if options.get("whole") else 30 * PERCENT,
            "memory_bytes": 8 * GIB,
            **options,
        }
    )


def holding(asked: Request) -> Holding:
    """What a placed request has of each of its cards."""
    share = PPM if asked.whole else asked.share_ppm
    return Holding(asked.id, asked.tenant, share, asked.memory_bytes, asked.labels, asked.whole)


def put(pool: Pool, card: tuple[str, int], number: int = 100, **options: Any) -> None:
    """Puts a lease on a card."""
    pool.take(CardId(*card), holding(request(number, **options)))


def decide(pool: Pool, asked: Request, paths: Paths | None = None, **options: Any) -> Decision:
    """Places a request, which must succeed."""
    answer = place(pool, asked, paths or Paths(), **options)
    assert isinstance(answer, Decision), answer
    return answer


def refuse(pool: Pool, asked: Request, paths: Paths | None = None) -> Refusal:
    """Places a request, which must fail."""
    answer = place(pool, asked, paths or Paths())
    assert isinstance(answer, Refusal), answer
    return answer


def labels(affinity: str = "", anti: str = "", exclusion: str = "") -> Labels:
    """The labels of a request."""
    return Labels(affinity, anti, exclusion)
