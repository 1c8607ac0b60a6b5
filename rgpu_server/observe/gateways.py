"""The metrics of gateways: `tls:`, `ucx:` and `grpc:`, as far as the server listens there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.gateway.figures import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from rgpu_server.gateway.figures import Figures

    Row = tuple[str, str, Callable[[Figures], float]]

_GAUGES: tuple[Row, ...] = (
    ("rgpu_gateway_up", "1: the gateway's process is there.", lambda f: float(f.up)),
    ("rgpu_gateway_connections", "Connections carried now.", lambda f: f.open),
)
_COUNTERS: tuple[Row, ...] = (
    (
        "rgpu_gateway_restarts_total",
        "Gateways that ended and were replaced.",
        lambda f: f.restarts,
    ),
    ("rgpu_gateway_received_bytes_total", "Bytes from clients.", lambda f: f.received_bytes),
    ("rgpu_gateway_sent_bytes_total", "Bytes to clients.", lambda f: f.sent_bytes),
)


def gateway_metrics(gateways: Mapping[str, Figures]) -> Iterator[Metric]:
    """Returns families with a row for each gateway, by transport; none if there is none."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if not gateways:
        return
    for rows, kind in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
        for name, text, value in rows:
            metric = kind(name, text, labels=["transport"])
            for transport, figures in gateways.items():
                metric.add_metric([transport], value(figures))
            yield metric
    text = "Who came to a gateway and did not get in."
    labels = ["transport", "reason"]
    refused = CounterMetricFamily("rgpu_gateway_refused_total", text, labels=labels)
    for transport, figures in gateways.items():
        for reason in REFUSALS:
            refused.add_metric([transport, reason], figures.refused(reason))
    yield refused
