"""The four metrics of GPUManager, for dashboards that were made for it (`metrics.gpumanager`).

Its names and units as they are, although they break Prometheus' rules: percent and MiB, and
`container_gpu_memory_total` is what is used.  namespace is the tenant, pod and container are the
lease's key.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from rgpu_server.observe.snapshot import LeaseView

_MIB = 1 << 20
_WHO = ("pod_name", "namespace", "node", "container_name")


def gpumanager_metrics(views: list[LeaseView]) -> Iterator[Metric]:
    """Leases of one key, of which at most one is not ending, are one container."""
    from prometheus_client.core import GaugeMetricFamily

    node = socket.gethostname()
    sums: dict[tuple[str, str], dict[int, list[float]]] = {}
    for view in views:
        key, quota = view.lease.key, view.lease.quota
        devices = sums.setdefault((key.name, key.tenant), {})
        values = (
            100 * view.time.share_1s_ppm / PPM,
            view.counters.used_bytes / _MIB,
            quota.share_request_ppm / PPM,
            quota.memory_bytes / _MIB,
        )
        row = devices.setdefault(view.lease.device, [0.0] * len(values))
        devices[view.lease.device] = [a + b for a, b in zip(row, values, strict=True)]
    for name, text, label, at, each in (
        ("container_gpu_utilization", "GPU utilization in percent", "gpu", 0, True),
        ("container_request_gpu_utilization", "GPU share requested", "req_of_gpu", 2, False),
        ("container_gpu_memory_total", "GPU memory used in MiB", "gpu_memory", 1, True),
        (
            "container_request_gpu_memory",
            "GPU memory requested in MiB",
            "req_of_gpu_memory",
            3,
            False,
        ),
    ):
        metric = GaugeMetricFamily(name, text, labels=(*_WHO, label))
        for (key_name, tenant), devices in sums.items():
            who = [key_name, tenant, node, key_name]
            if each:
                for device, values_of in devices.items():
                    metric.add_metric([*who, f"gpu{device}"], values_of[at])
            metric.add_metric([*who, "total"], sum(row[at] for row in devices.values()))
        yield metric
