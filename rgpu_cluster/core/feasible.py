"""Whether an empty pool could take a request that does not fit now, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.core import filters
from rgpu_cluster.core.domains import Taken, bounds_of
from rgpu_cluster.core.node import site_of
from rgpu_cluster.core.request import Mode, describe
from rgpu_common.units import format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

WAITS = "no card has room for it now"


def would_fit(nodes: Iterable[Node], request: Request, paths: Paths) -> bool:
    """Returns whether the cards of these nodes could take the request without other leases."""
    taken, found = Taken(bounds_of([request])), 0
    for node in nodes:
        if not could_use(node, request, paths):
            continue
        fitting = sum(filters.of_kind(card, request) is None for card in node.cards)
        count = taken.most(node, min(fitting, request.cards))
        if count == request.cards:
            return True
        taken.take(node, count)
        found += count
    return not request.one_node and found >= request.cards


def could_use(node: Node, request: Request, paths: Paths) -> bool:
    """Returns whether a request may be on a node, whatever the cards of the node are."""
    return not (
        node.name in request.barred or _too_far(node, request, paths) or _too_slow(node, request)
    )


def remedy(pool: Pool, request: Request, paths: Paths) -> str:
    """Returns why no pool like this one takes the request, and what to ask for instead."""
    nodes = list(pool.nodes())
    cards = [card for node in nodes for card in node.cards]
    if not cards:
        return "no node has joined the pool; start `rgpu serve --join` on one"
    models = sorted({card.model for card in cards})
    if request.model and request.model not in models:
        return (
            f"the pool has no {request.model}; it has {', '.join(models)}: name one of them with "
            "--model, or leave it out"
        )
    pools = sorted({card.pool for card in cards if card.pool})
    if request.pool and request.pool not in pools:
        if not pools:
            return f"there is no pool {request.pool!r}, nor any other; leave out --pool"
        there = ", ".join(pools)
        return f"there is no pool {request.pool!r}; there is {there}: name one with --pool"
    profiles = sorted({card.mig for card in cards} - {""})
    if request.mig and request.mig not in profiles:
        if not profiles:
            return f"the pool has no MIG slices, and {request.mig} was asked for; leave out --mig"
        there = ", ".join(profiles)
        return f"no card is a MIG slice {request.mig}; name one of {there} with --mig"
    sizes = [card.memory_bytes for card in cards if card.mig == request.mig]
    if not sizes:
        return f"all cards are MIG slices; ask for one with --mig: {', '.join(profiles)}"
    most = max(sizes)
    if request.memory_on(most) > most:
        return (
            f"{format_bytes(request.memory_on(most))} were asked for, and the largest card has "
            f"{format_bytes(most)}; ask for less with --memory"
        )
    return (
        _far(nodes, request, paths)
        or _bounded(nodes, request, paths)
        or (
            f"the pool has too few cards for {describe(request)}; ask for less, or let another "
            "node join"
        )
    )


def _bounded(nodes: Iterable[Node], request: Request, paths: Paths) -> str:
    """Returns the sentence for a request that only its bounds keep off enough cards; else ""."""
    if request.one_node:
        anywhere = replace(request, one_node=False)
        if would_fit(nodes, anywhere, paths):
            return (
                f"no node has {request.cards} cards for {describe(anywhere)}; "
                "--across-nodes takes cards of several nodes"
            )
        return ""
    for place, most, without in (
        ("zone", request.max_per_zone, replace(request, max_per_zone=0)),
        ("rack", request.max_per_rack, replace(request, max_per_rack=0)),
        ("node", request.max_per_node, replace(request, max_per_node=0)),
    ):
        if most and would_fit(nodes, without, paths):
            unnamed = "" if place == "node" else f" (nodes without a {place} count as one {place})"
            return (
                f"the pool has too few {place}s for {request.cards} cards with at most {most} in "
                f"each{unnamed}; raise --max-per-{place}"
            )
    return ""


def _far(nodes: Iterable[Node], request: Request, paths: Paths) -> str:
    """Returns the sentence for a request that only its reach keeps off every card; else ""."""
    reached = [node for node in nodes if not _too_far(node, request, None)]
    if not any(filters.of_kind(card, request) is None for node in reached for card in node.cards):
        return _unreached(request)
    limit = request.max_slowdown_ppm
    if limit is not None and all(_too_far(node, request, paths) for node in reached):
        return (
            f"every path to such a card is predicted to cost more than {format_share(limit)}; "
            "raise --max-slowdown"
        )
    return ""


def _unreached(request: Request) -> str:
    rack = request.client.rack
    if request.farthest is Mode.ANY:
        return ""
    if request.farthest is Mode.NEAR and not rack:
        return (
            "a card in the program's rack was asked for, and its rack is not known; name it with "
            "RGPU_RACK (`rgpu pool` lists the racks), or leave --near out"
        )
    if request.farthest is Mode.NEAR:
        return f"no such card is in the program's rack {rack}; leave --near out"
    return "no such card is on the program's own node; leave --local out"


def _too_far(node: Node, request: Request, paths: Paths | None) -> bool:
    """paths: None leaves the slowdown out."""
    client = request.client
    if client.node and node.name == client.node:
        return False
    mode = Mode.NEAR if client.rack and client.rack == node.rack else Mode.ANY
    slowdown = 0
    if paths is not None and request.max_slowdown_ppm is not None:
        slowdown = paths.predict(client, site_of(node), request.profile).slowdown_ppm
    return filters.of_mode(mode, slowdown, request) is not None


def _too_slow(node: Node, request: Request) -> bool:
    remote = node.name != request.client.node
    return remote and 0 < node.bandwidth_bps < request.bandwidth_bps
