"""What Prometheus reads of a manager."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.book import Stage
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_cluster.manager.shell import Shell

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
    "rgpu_pool_guaranteed_cards": ("Guaranteed shares, in cards.", "guaranteed", PPM),
    "rgpu_pool_memory_bytes": ("Memory of the cards.", "memory", 1),
    "rgpu_pool_leased_memory_bytes": ("Memory of the leases.", "leased", 1),
    "rgpu_pool_leases": ("Leases on the cards.", "leases", 1),
}
# Gauges of the cluster with the label `state`: name -> help.
STATE_GAUGES = {"rgpu_pool_nodes": "Nodes.", "rgpu_pool_requests": "Requests by state."}


class ManagerCollector:
    """A collector of prometheus_client. Labels are models and pools, never tenants or requests."""

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

    def _cards(self, gauge: Any) -> Iterator[Any]:
        pool = self._shell.core.pool
        sums: dict[tuple[str, str], Counter[str]] = {}
        for card in pool.cards():
            load = pool.load(card.id)
            mine = sums.setdefault((card.title, card.pool), Counter())
            mine["cards"] += 1
            mine["guaranteed"] += PPM if load.whole else load.used_ppm
            mine["memory"] += card.memory_bytes
            mine["leased"] += load.used_bytes
            mine["leases"] += load.leases
        for name, (text, key, divisor) in CARD_GAUGES.items():
            family = gauge(name, text, labels=["model", "pool"])
            for labels, counts in sorted(sums.items()):
                family.add_metric(list(labels), counts[key] / divisor)
            yield family
