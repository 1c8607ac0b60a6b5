"""GPU nodes of a pool, as their device agents report them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from rgpu_cluster.core.errors import PoolError

if TYPE_CHECKING:
    from rgpu_cluster.core.card import Card

MAX_CARDS_PER_NODE = 128
# The taint of a node whose operator drains it.
DRAINING = "drain"
# The taint of a node whose daemon refused what the pool says it has, or cannot be asked.
STALE = "stale"


class Node(Struct, frozen=True):
    """One GPU node.

    generation: grows with every report of the node's agent, also over restarts of the agent.
    rack, zone: its place in the network; "" if the operator names none.
    nic: the class of its network interface, for example "100G-rdma". Nodes of one class and rack
        have the same measured paths.
    bandwidth_bps: what its network interface carries; 0: unknown, and then not reserved.
    taints: why it takes no new leases, for example "drain"; empty: it takes them.
    release: that of rgpu on its server.
    """

    name: str
    generation: int
    cards: tuple[Card, ...]
    address: str = ""
    rack: str = ""
    zone: str = ""
    nic: str = ""
    bandwidth_bps: int = 0
    taints: frozenset[str] = field(default_factory=frozenset)
    release: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise PoolError("a node reported no name; set --node-name on its server")
        if len(self.cards) > MAX_CARDS_PER_NODE:
            raise PoolError(
                f"node {self.name} reported {len(self.cards)} cards, and a node has at most "
                f"{MAX_CARDS_PER_NODE}"
            )
        seen = set()
        for card in self.cards:
            if card.id.node != self.name or card.id.ordinal in seen:
                raise PoolError(
                    f"node {self.name} reported card {card.id}; cards have the node's name, "
                    "and each number once"
                )
            if card.memory_bytes <= 0:
                raise PoolError(f"card {card.id} was reported with {card.memory_bytes} bytes")
            seen.add(card.id.ordinal)


class Site(NamedTuple):
    """What placement needs of a node: nodes with equal sites are equally far from any client."""

    rack: str
    zone: str
    nic: str
    taints: frozenset[str]


def site_of(node: Node) -> Site:
    """Returns the site of a node."""
    return Site(node.rack, node.zone, node.nic, node.taints)
