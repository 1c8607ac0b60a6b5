"""The metrics of the token loop, and of devices that go from one lease to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.tokens.health import BOUNDS_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from rgpu_server.observe.snapshot import Observer
    from rgpu_server.observe.totals import Growing
    from rgpu_server.tokens.link import TokenLink


def token_loop_metrics(link: TokenLink, observer: Observer, totals: Growing) -> Iterator[Metric]:
    """Yields the metrics.  totals: what the loop reported, over all loops that there were."""
    yield from _health(link, observer.token_silence())
    devices = [ordinal for ordinal in observer.ordinals() if totals.sums(ordinal)]
    yield from _switches(totals, devices)
    yield from _times(totals, devices)


def _health(link: TokenLink, silent_seconds: float | None) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    up = GaugeMetricFamily("rgpu_token_loop_up", "1: the token loop is there.")
    up.add_metric([], float(link.connected))
    yield up
    text = "Token loops that ended and were replaced."
    yield CounterMetricFamily("rgpu_token_loop_restarts_total", text, value=link.restarts)
    if silent_seconds is not None:
        text = "Time since the token loop last reported."
        yield GaugeMetricFamily("rgpu_token_loop_silent_seconds", text, value=silent_seconds)


def _switches(totals: Growing, devices: list[int]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    switches = CounterMetricFamily(
        "rgpu_token_switches_total",
        "Times that a device went from one lease to another.",
        labels=["device"],
    )
    fenced = CounterMetricFamily(
        "rgpu_token_fenced_total",
        "Leases that did not leave a device and were made to.",
        labels=["device"],
    )
    for device in devices:
        switched, fences, _, _ = totals.sums(device)
        switches.add_metric([str(device)], switched)
        fenced.add_metric([str(device)], fences)
    yield from (switches, fenced)


def _times(totals: Growing, devices: list[int]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    decisions = HistogramMetricFamily(
        "rgpu_token_decision_seconds", "Time of a decision.", labels=["device"]
    )
    handovers = HistogramMetricFamily(
        "rgpu_token_handover_seconds",
        "Time that a device which is wanted stands still between two leases.",
        labels=["device"],
    )
    for device in devices:
        _, _, decision_ns, handover_ns = totals.sums(device)
        for metric, kind, ns in (
            (decisions, "decisions", decision_ns),
            (handovers, "handovers", handover_ns),
        ):
            buckets = _buckets(totals.sums((kind, device)))
            metric.add_metric([str(device)], buckets, ns / 1e9)
    yield from (decisions, handovers)


def _buckets(counts: tuple[int, ...]) -> list[tuple[str, float]]:
    """Counts by class, added up as Prometheus wants them."""
    bounds = [f"{ns / 1e9:g}" for ns in BOUNDS_NS] + ["+Inf"]
    sums, total = [], 0
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        sums.append((bound, float(total)))
    return sums
