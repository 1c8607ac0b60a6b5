"""The exact orders of KubeShare, gpushare and GPUManager, for those who come from them.

They know no network: a request takes a card of any node that passes the filters. They look at every
card, as their originals do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_cluster.core import filters, topology
from rgpu_cluster.core.card import free_ppm
from rgpu_cluster.core.request import Mode
from rgpu_common.units import PPM, VMEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_cluster.core.card import Card, CardId
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

Key = tuple[int | str, ...]


def choose(pool: Pool, request: Request, name: str) -> tuple[CardId, ...]:
    """Returns the cards in the order `name`; empty if there is no room.

    name: "kubeshare", "gpushare" or "gpumanager".
    """
    return ORDERS[name](pool, _fitting(pool, request), request)


def _fitting(pool: Pool, request: Request) -> list[Card]:
    fitting = []
    for card in pool.cards():
        kind, site, state = pool.classes.where(card.id)
        reason = filters.of_kind(kind, request) or filters.of_site(site)
        if reason is None and filters.of_state(state, kind, request, Mode.LOCAL) is None:
            fitting.append(card)
    return fitting


def _first(cards: Sequence[Card], key: Callable[[Card], Key]) -> tuple[CardId, ...]:
    return (min(cards, key=key).id,) if cards else ()


def _kubeshare(pool: Pool, cards: Sequence[Card], request: Request) -> tuple[CardId, ...]:
    """Best fit by device time in thousandths; worst fit if the request has an affinity (HPDC'20).

    A card that carries the affinity comes before an idle one.
    """
    if request.labels.affinity:

        def worst(card: Card) -> Key:
            load = pool.load(card.id)
            return load.idle, -(free_ppm(load) - request.share_ppm) // 1000, *card.id

        return _first(cards, worst)
    return _first(cards, lambda c: ((free_ppm(pool.load(c.id)) - request.share_ppm) // 1000, *c.id))


def _gpushare(pool: Pool, cards: Sequence[Card], _: Request) -> tuple[CardId, ...]:
    """Binpack: the card with the least free memory that has room."""
    return _first(cards, lambda c: (c.memory_bytes - pool.load(c.id).used_bytes, *c.id))


def _gpumanager(pool: Pool, cards: Sequence[Card], request: Request) -> tuple[CardId, ...]:
    """Nodes by free cores, free memory and name; on the node share, fragment or link order."""
    by_node: dict[str, list[Card]] = {}
    for card in cards:
        by_node.setdefault(card.id.node, []).append(card)
    nodes = [name for name, fitting in by_node.items() if len(fitting) >= request.cards]
    if not nodes:
        return ()
    fitting = by_node[min(nodes, key=lambda name: _node_key(pool, name))]
    if not request.whole and request.cards == 1:
        return _first(fitting, lambda card: _share_key(pool, card))
    chosen = topology.closest(fitting, request.cards)
    return tuple(sorted(card.id for card in chosen))


def _node_key(pool: Pool, name: str) -> Key:
    node = pool.node(name)
    assert node is not None
    cores = sum(free_ppm(pool.load(card.id)) * 100 // PPM for card in node.cards)
    memory = sum(_free_units(pool, card) for card in node.cards)
    return cores, memory, name


def _share_key(pool: Pool, card: Card) -> Key:
    """Free cores, free memory in units of 256 MiB, processes, minor number: ascending."""
    load = pool.load(card.id)
    return (
        free_ppm(load) * 100 // PPM,
        _free_units(pool, card),
        load.leases,
        card.id.ordinal,
    )


def _free_units(pool: Pool, card: Card) -> int:
    return (card.memory_bytes - pool.load(card.id).used_bytes) // VMEM_BYTES


ORDERS: dict[str, Callable[[Pool, Sequence[Card], Request], tuple[CardId, ...]]] = {
    "kubeshare": _kubeshare,
    "gpushare": _gpushare,
    "gpumanager": _gpumanager,
}
