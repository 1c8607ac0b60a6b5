"""What Prometheus reads of a manager."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.book import Stage
from rgpu_cluster.core.card import free_ppm
from rgpu_cluster.core.quotas import largest_cards, wish_of
from rgpu_cluster.core.standing import standings_of
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_cluster.core.card import Card
    from rgpu_cluster.core.line import Line
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.standing import Standing
    from rgpu_cluster.manager.shell import Shell
    from rgpu_cluster.manager.uses import CardUse

# The kinds of events, each of which is counted: kind -> what the counter's help says.
COUNTED = {
    "placed": "Requests that were placed.",
    "denied": "Requests that were denied.",
    "withdrawn": "Requests that were taken back.",
    "ended": "Placed requests that have ended.",
    "granted": "Grants of daemons.",
    "refused": "Grants that daemons refused.",
    "shrunk": "Leases that shrank for others.",
    "grown": "Leases that grew again.",
    "announced": "Leases whose end was announced, because another tenant is owed the room.",
    "taken_back": "Leases that ended because another tenant was owed the room.",
    "joined": "Streams of nodes that were accepted.",
    "cut": "Streams of nodes that ended.",
    "lost": "Nodes, and requests on them, that were lost.",
    "drained": "Nodes that began to take no new leases.",
    "undrained": "Nodes that take leases again.",
}
# Gauges of each model and pool of cards: name -> help, the sum that it shows, its unit in sums.
CARD_GAUGES = {
    "rgpu_pool_cards": ("Cards.", "cards", 1),
    "rgpu_pool_free_cards": (
        "Device time that new leases can have, in cards; nodes that take none have none.",
        "free", PPM,
    ),
    "rgpu_pool_guaranteed_cards": ("Guaranteed shares, in cards.", "guaranteed", PPM),
    "rgpu_pool_reserved_cards": ("Guaranteed shares of reservations, in cards.", "reserved", PPM),
    "rgpu_pool_used_cards": ("Device time that programs used in the last second, in cards.",
                             "used", PPM),
    "rgpu_pool_lent_cards": ("The part of it beyond their guaranteed shares, in cards.",
                             "lent", PPM),
    "rgpu_pool_queued_cards": (
        "Shares for which requests wait, in cards, by the model and pool that they name; empty: "
        "any.", "queued", PPM,
    ),
    "rgpu_pool_memory_bytes": ("Memory of the cards.", "memory", 1),
    "rgpu_pool_free_memory_bytes": ("Memory that new leases can have.", "free_memory", 1),
    "rgpu_pool_leased_memory_bytes": ("Memory of the leases.", "leased", 1),
    "rgpu_pool_used_memory_bytes": ("Memory that programs hold.", "used_memory", 1),
    "rgpu_pool_queued_memory_bytes": ("Memory for which requests wait.", "queued_memory", 1),
    "rgpu_pool_leases": ("Leases on the cards.", "leases", 1),
}  # fmt: skip
# Gauges of each tenant that the configuration names: name -> help, the figure, its unit.
TENANT_GAUGES: dict[str, tuple[str, Callable[[Standing], int | None], int]] = {
    "rgpu_tenant_quota_cards": (
        "Shares that the tenant may have, in cards; absent: no bound.",
        lambda s: s.quota.share_ppm, PPM,
    ),
    "rgpu_tenant_quota_memory_bytes": (
        "Memory that the tenant may have; absent: no bound.", lambda s: s.quota.memory_bytes, 1,
    ),
    "rgpu_tenant_cards": ("Shares that it has, in cards.", lambda s: s.has.share_ppm, PPM),
    "rgpu_tenant_memory_bytes": ("Memory that it has.", lambda s: s.has.memory_bytes, 1),
    "rgpu_tenant_reserved_cards": (
        "The part of its shares that is reserved, in cards.", lambda s: s.reserved.share_ppm, PPM,
    ),
    "rgpu_tenant_reserved_memory_bytes": (
        "The part of its memory that is reserved.", lambda s: s.reserved.memory_bytes, 1,
    ),
    "rgpu_tenant_borrowed_cards": (
        "Shares that it has beyond its quota, in cards.", lambda s: s.borrowed.share_ppm, PPM,
    ),
    "rgpu_tenant_borrowed_memory_bytes": (
        "Memory that it has beyond its quota.", lambda s: s.borrowed.memory_bytes, 1,
    ),
    "rgpu_tenant_queued_cards": (
        "Shares for which it waits, in cards.", lambda s: s.waits.share_ppm, PPM,
    ),
    "rgpu_tenant_queued_memory_bytes": (
        "Memory for which it waits.", lambda s: s.waits.memory_bytes, 1,
    ),
}  # fmt: skip
# Gauges of the cluster with the label `state`: name -> help.
STATE_GAUGES = {"rgpu_pool_nodes": "Nodes.", "rgpu_pool_requests": "Requests by state."}


class ManagerCollector:
    """A collector of prometheus_client. Labels are models, pools and the tenants of the
    configuration, never other tenants or requests.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def collect(self) -> Iterator[Any]:
        """Yields all families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        shell = self._shell
        for kind, text in COUNTED.items():
            yield CounterMetricFamily(f"rgpu_manager_{kind}", text, value=shell.counted[kind])
        nodes = GaugeMetricFamily(
            "rgpu_pool_nodes", STATE_GAUGES["rgpu_pool_nodes"], labels=["state"]
        )
        known = list(shell.core.pool.nodes())
        there = sum(node.name in shell.links for node in known)
        nodes.add_metric(["connected"], there)
        nodes.add_metric(["silent"], len(known) - there)
        yield nodes
        requests = GaugeMetricFamily(
            "rgpu_pool_requests", STATE_GAUGES["rgpu_pool_requests"], labels=["state"]
        )
        stages = Counter(booking.stage for booking in shell.core.book)
        requests.add_metric(["waiting"], len(shell.core.line))
        for stage in Stage:
            requests.add_metric([stage.value], stages[stage])
        yield requests
        yield from self._cards(GaugeMetricFamily)
        yield from self._tenants(GaugeMetricFamily)

    def _cards(self, gauge: Any) -> Iterator[Any]:
        sums = pool_sums(self._shell)
        for name, (text, key, divisor) in CARD_GAUGES.items():
            family = gauge(name, text, labels=["model", "pool"])
            for labels, counts in sorted(sums.items()):
                family.add_metric(list(labels), counts[key] / divisor)
            yield family

    def _tenants(self, gauge: Any) -> Iterator[Any]:
        core = self._shell.core
        standings = standings_of(core.quotas, core.pool, core.line)
        for name, (text, of, divisor) in TENANT_GAUGES.items():
            family = gauge(name, text, labels=["tenant"])
            for tenant, standing in sorted(standings.items()):
                value = of(standing)
                if value is not None:  # no bound has no number
                    family.add_metric([tenant], value / divisor)
            yield family


def pool_sums(shell: Shell) -> dict[tuple[str, str], Counter[str]]:
    """Returns the sums of CARD_GAUGES by model and pool."""
    pool = shell.core.pool
    sums: dict[tuple[str, str], Counter[str]] = {}
    for node in pool.nodes():
        for card in node.cards:
            mine = sums.setdefault((card.title, card.pool), Counter())
            _add_card(mine, card, pool, shell.uses.of(card.id), takes=not node.taints)
    _add_queued(sums, shell.core.line, pool)
    return sums


def _add_card(mine: Counter[str], card: Card, pool: Pool, use: CardUse, *, takes: bool) -> None:
    load = pool.load(card.id)
    mine["cards"] += 1
    mine["guaranteed"] += PPM if load.whole else load.used_ppm
    mine["reserved"] += sum(one.share_ppm for one in pool.holdings(card.id) if one.reserved)
    mine["memory"] += card.memory_bytes
    mine["leased"] += load.used_bytes
    mine["leases"] += load.leases
    mine["used"] += use.used_ppm
    mine["lent"] += use.lent_ppm
    mine["used_memory"] += use.used_bytes
    if takes and not load.whole:
        mine["free"] += max(free_ppm(load), 0)
        mine["free_memory"] += max(card.memory_bytes - load.used_bytes, 0)


def _add_queued(sums: dict[tuple[str, str], Counter[str]], line: Line, pool: Pool) -> None:
    """Adds what waits. A model or a pool that no card has counts as any: clients choose them."""
    models, pools = {model for model, _ in sums}, {pool for _, pool in sums}
    largest = largest_cards(pool)
    for entry in line:
        request = entry.request
        model = request.model if request.model in models else ""
        group = request.pool if request.pool in pools else ""
        mine = sums.setdefault((model, group), Counter())
        wish = wish_of(request, largest)
        mine["queued"] += wish.share_ppm
        mine["queued_memory"] += wish.memory_bytes
